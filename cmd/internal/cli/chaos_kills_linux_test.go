// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// killStores are the stores on which tenure is killed again and again. That on Kubernetes
// has a test of its own: its engine takes minutes to build.
var killStores = []struct {
	name    string
	harness func(*testing.T) *harness
}{
	{"sqlite", newHarness},
	{"dynamodb", newTableHarness},
	{"postgres", newDatabaseHarness},
	{"etcd", func(t *testing.T) *harness {
		address := strings.TrimPrefix(enginetest.Shared(t, enginetest.Etcd, "etcd"), "http://")
		return newHarnessOn(t, "etcd://"+address+"/test/"+cryptorand.Text())
	}},
	{"zookeeper", func(t *testing.T) *harness {
		address := enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
		return newHarnessOn(t, "zookeeper://"+address+"/test-"+cryptorand.Text())
	}},
}

func newHarnessOn(t *testing.T, url string) *harness {
	s := newHarness(t)
	s.url = url
	return s
}

// newDatabaseHarness is a harness whose store is a table in a database of its own on PostgreSQL.
func newDatabaseHarness(t *testing.T) *harness {
	s := newHarnessOn(t, enginetest.Database(t, enginetest.PostgreSQL(t)))
	if p := s.start("table", "create"); p.status() != 0 {
		t.Fatal("there is no table")
	}
	return s
}

// killRounds is the variable that says how many rounds there are on each store.
const killRounds = "TENURE_KILL_ROUNDS"

// TestKilledAtAnyTime kills tenure at random moments of its acquire, its heartbeats and its
// release, on every store. All processes have one owner's name, so nothing but the id of a
// lease tells them apart. The test requires:
//
//   - No two commands work at once, and each token is used once.
//   - No living holder's lock is freed: a process that was not killed ends by itself.
//   - The lock of a dead holder whose command had begun is freed by its guardian: after the
//     grace, never before it, and long before the lease has run out.
//
// It reports the time from the SIGKILL until the command of a waiting successor runs.
func TestKilledAtAnyTime(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	for _, on := range killStores {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			playKills(t, on.harness(t))
		})
	}
}

func TestKubernetesKilledAtAnyTime(t *testing.T) {
	kubeconfig := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	playKills(t, newHarnessOn(t, "kubernetes://default?kubeconfig="+kubeconfig))
}

const (
	// killGrace is how long a dead holder's lock stays held.
	killGrace = 500 * time.Millisecond
	// No round waits for killLease to run out; rounds wait for killShort where a death is
	// not proved.
	killLease, killShort = 2 * time.Minute, 4 * time.Second
	// killBound is when the successor is too late, however busy the machine is.
	killBound = 30 * time.Second
)

// kills is a series of rounds on one store.
type kills struct {
	*harness
	client *tenure.Client
	latest tenure.Term     // that was judged
	took   []time.Duration // from a SIGKILL until the command of one who waited ran
}

// mourner is what runs under the lock. The kernel's lock must be free when it begins: what
// of a killed one lives on would still have that. It works, and does not end when asked,
// but where its life is written down.
const mourner = `
now=$(date +%s%N) life=$(cat "$DIR/life" 2>/dev/null)
exec 9>"$DIR/flock"
flock -n 9 || echo "token $TENURE_TOKEN runs beside another" >>"$DIR/failures"
echo "$TENURE_TOKEN $now" >>"$DIR/begun"
[ -z "$life" ] || exec sleep "$life"
trap "" TERM; setsid sleep 600 & sleep 600
`

func playKills(t *testing.T, s *harness) {
	s.write("mourner.sh", mourner)
	k := &kills{harness: s, client: s.client()}
	rounds := 4
	if text := os.Getenv(killRounds); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%q: want a number of rounds, 1 at least", killRounds, text)
		}
		rounds = n
	} else if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		if round%2 == 0 {
			k.killForWaiter()
		} else {
			k.killAtAnyMoment()
		}
		if f := k.read("failures"); f != "" {
			t.Error(f)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	var used []string
	for _, line := range k.begun() {
		used = append(used, strings.Fields(line)[0])
	}
	if slices.Sort(used); len(slices.Compact(slices.Clone(used))) != len(used) {
		t.Errorf("tokens used twice: %v", used)
	}
	slices.Sort(k.took)
	t.Logf("%d rounds, grace %v. From the SIGKILL to the command of a successor who waits: median %v, worst of %d %v",
		rounds, killGrace, k.took[len(k.took)/2], len(k.took), k.took[len(k.took)-1])
}

// run starts tenure with the mourner.
func (k *kills) run(lease time.Duration) *process {
	return k.start("run", "--json", "--owner", "same", "--lease", lease.String(), "--heartbeat", "100ms",
		"--refresh", "100ms", "--grace", killGrace.String(), "job", "--", "sh", k.path("mourner.sh"))
}

// lives has the commands that begin from now on live for that long; for ever, if it is 0.
func (k *kills) lives(life time.Duration) {
	text := ""
	if life > 0 {
		text = strconv.FormatFloat(life.Seconds(), 'f', 3, 64)
	}
	k.write("life", text)
}

// successorLives is lives for a successor: half of them outlive whatever a guardian may still do.
func (k *kills) successorLives() {
	k.lives([]time.Duration{time.Millisecond, killGrace + 300*time.Millisecond}[rand.IntN(2)])
}

// begun returns a line for each command that has begun: its token, and when.
func (k *kills) begun() []string {
	return slices.Collect(strings.Lines(k.read("begun")))
}

// next waits until one more command has begun than there were, and returns its token, and
// when it began.
func (k *kills) next(of string, before int) (token uint64, at time.Time) {
	k.t.Helper()
	k.await(of, func() bool { return len(k.begun()) > before })
	var ns int64
	if _, err := fmt.Sscan(k.begun()[before], &token, &ns); err != nil {
		k.t.Fatal(err)
	}
	return token, time.Unix(0, ns)
}

// kill kills a tenure, and returns when.
func (k *kills) kill(p *process) time.Time {
	k.t.Helper()
	at := time.Now()
	p.signal(syscall.SIGKILL)
	p.status()
	return at
}

// killForWaiter kills a holder at work, between any two heartbeats.
func (k *kills) killForWaiter() {
	k.lives(0)
	before := len(k.begun())
	victim := k.run(killLease)
	token, _ := k.next("the command", before)
	k.successorLives()
	waiter := k.run(killLease)
	k.await("a waiting successor", func() bool { return strings.Contains(waiter.stderr.String(), `"event":"waiting"`) })
	time.Sleep(rand.N(150 * time.Millisecond))
	killed := k.kill(victim)
	successor, began := k.next("the successor's command", before+1)
	took := began.Sub(killed)
	if took > killBound {
		k.t.Errorf("the successor began %v after the death, which a guardian knew", took)
	}
	k.ends(waiter)
	if dead := k.judge(killed, successor); dead.Token != token || dead.End != tenure.EndCrashed {
		k.t.Errorf("the term that was ended by a kill under token %d is in the history as %+v", token, dead)
	}
	k.took = append(k.took, took)
}

// killAtAnyMoment kills tenure from its start on, around its acquire; or around its release,
// if its command lives for a moment alone.
func (k *kills) killAtAnyMoment() {
	before := len(k.begun())
	var victim *process
	if rand.IntN(2) == 0 {
		k.lives(20 * time.Millisecond)
		victim = k.run(killShort)
		k.next("the command", before)
		time.Sleep(rand.N(50 * time.Millisecond))
	} else {
		k.lives(0)
		victim = k.run(killShort)
		time.Sleep(rand.N(250 * time.Millisecond))
	}
	killed := k.kill(victim)
	k.successorLives()
	k.settled(&before)
	waiter := k.run(killLease)
	successor, began := k.next("the successor's command", before)
	if took := began.Sub(killed); took > killShort+killBound {
		k.t.Errorf("the successor began %v after the death, at a lease of %v", took, killShort)
	}
	k.ends(waiter)
	k.judge(killed, successor)
}

// settled counts the commands that have begun once the command of the killed one cannot
// begin any more: its guardian has ended, or waits for the grace with nothing below it.
func (k *kills) settled(before *int) {
	k.t.Helper()
	k.await("the end of the killed one's command", func() bool {
		for _, pid := range k.left(markName + "=" + k.mark) {
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil &&
				strings.TrimSpace(string(text)) != "tenure" {
				return false
			}
		}
		return true
	})
	*before = len(k.begun())
}

// ends waits for the end of a tenure that was not killed, which must be in order.
func (k *kills) ends(p *process) {
	k.t.Helper()
	if status := p.status(); status != 0 {
		k.t.Errorf("a process that was not killed ended with status %d", status)
	}
	k.await("the end of all guardians", func() bool { return len(k.left(markName+"="+k.mark)) == 0 })
}

// judge checks the terms of a round. The last one is the successor's, who has released.
// It returns the one before, if that is of this round.
func (k *kills) judge(killed time.Time, successor uint64) (dead tenure.Term) {
	k.t.Helper()
	var list []tenure.Term
	k.await("the history", func() (read bool) {
		var err error
		list, err = k.client.History(k.t.Context(), "job")
		return err == nil && len(list) > 0 // the machine may be busy
	})
	if end := list[0]; end.Token != successor || end.End != tenure.EndReleased {
		k.t.Errorf("the successor's term under token %d, which was not ended by a kill, is in the history as %+v",
			successor, end)
	}
	if len(list) > 1 && list[1].Token > k.latest.Token {
		dead = list[1]
	}
	if n := successor - k.latest.Token; n > 2 {
		k.t.Errorf("%d terms in a round of two", n)
	}
	k.latest = list[0]
	if early := dead.Until.Sub(killed); dead.End == tenure.EndCrashed && early < killGrace {
		k.t.Errorf("free %v after the death of token %d: the last requests of the dead have %v", early, dead.Token, killGrace)
	}
	return dead
}

// What becomes of the lock of a tenure that was killed.

// client returns a client on the store of the harness, by which the test looks.
func (s *harness) client() *tenure.Client {
	s.t.Helper()
	c, err := tenure.New(s.store(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// past returns the term with the token from the history of the lock.
func (s *harness) past(c *tenure.Client, name string, token uint64) tenure.Term {
	s.t.Helper()
	list, err := c.History(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(t tenure.Term) bool { return t.Token == token })
	if i < 0 {
		s.t.Fatalf("no token %d in the history: %+v", token, list)
	}
	return list[i]
}

// TestKilledTenureIsFreed: nobody waits for the lease of a tenure that was killed, where its
// guardian knows that nothing is left. The lease is longer than the test lasts.
func TestKilledTenureIsFreed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		words []string
	}{
		{"run", []string{"run"}},
		{"lead", []string{"lead"}},
		{"contained", []string{"run", "--contain"}},
		{"slot", []string{"run", "--slots", "1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "lead" || tc.name == "slot" {
				enginetest.MakeVerify(t)
			}
			eachStore(t, func(t *testing.T, s *harness) {
				if tc.name == "contained" {
					s.needContain()
				}
				s.write("mourner.sh", mourner)
				args := append(slices.Clone(tc.words), "--lease", "10m", "--heartbeat", "500ms", "--refresh", "200ms")
				args = append(args, "--grace", "1s", "job", "--", "sh", s.path("mourner.sh"))
				first := s.start(args...)
				s.await("the command", func() bool { return s.read("begun") != "" })
				store := s.store()
				time.Sleep(700 * time.Millisecond) // for a heartbeat
				second := s.start(append(append([]string{"run", "--json"}, tc.words[1:]...), args[len(tc.words):]...)...)
				if tc.name != "slot" {
					s.await("a waiting successor", func() bool {
						return strings.Contains(second.stderr.String(), `"event":"waiting"`)
					})
				}
				guardian := first.guardian()
				line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", guardian))
				if err != nil || strings.Contains(string(line), s.url) {
					t.Errorf("the guardian's arguments, which anybody may read, have the store in them: %q, %v", line, err)
				}
				killed := time.Now()
				first.signal(syscall.SIGKILL)
				s.await("the freeing", func() bool {
					name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", guardian))
					return err != nil || string(name) == "tenure\n"
				})
				_ = syscall.Kill(guardian, syscall.SIGTERM) // as a service manager ends what is left of a unit
				s.await("the successor's command", func() bool { return strings.Count(s.read("begun"), "\n") == 2 })
				if took := time.Since(killed); took < time.Second {
					t.Errorf("the successor began %v after the death: the last requests of the dead had no second", took)
				}
				if f := s.read("failures"); f != "" {
					t.Error(f)
				}
				name := "job"
				if tc.name == "slot" {
					locks, err := store.List(t.Context(), "job", "")
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range locks.Records {
						if r.State == driver.Held {
							name = r.Key
						}
					}
				}
				if p := s.past(s.client(), name, 1); p.End != tenure.EndCrashed || p.Until.Before(killed) {
					t.Errorf("the history has %+v", p)
				}
				second.signal(syscall.SIGKILL) // its guardian frees the lock, and ends
				second.status()
				s.await("the end of its guardian", func() bool { return len(s.left(markName+"="+s.mark)) == 0 })
			})
		})
	}
}

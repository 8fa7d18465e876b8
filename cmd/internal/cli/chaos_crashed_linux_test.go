// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

// What becomes of the lock of a tenure that was killed.

// solitary works beside nobody: the kernel's lock must be free when it begins. What of a
// killed one lives on would still have that.
const solitary = `
exec 9>"$DIR/flock"
flock -n 9 || echo "token $TENURE_TOKEN runs beside another" >>"$DIR/failures"
echo "$TENURE_TOKEN" >>"$DIR/begun"
[ -e "$DIR/quick" ] || { trap "" TERM; setsid sleep 600 & sleep 600; }
`

// client returns a client on the store of the scene, by which the test looks.
func (s *scene) client() *tenure.Client {
	s.t.Helper()
	c, err := tenure.New(s.store(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// past returns the tenure of the lock with the token, as the history has it.
func (s *scene) past(c *tenure.Client, name string, token uint64) tenure.Tenure {
	s.t.Helper()
	list, err := c.History(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(t tenure.Tenure) bool { return t.Token == token })
	if i < 0 {
		s.t.Fatalf("no token %d in the history: %+v", token, list)
	}
	return list[i]
}

// TestKilledTenureIsFreed: nobody waits for the lease of a tenure that was killed, where its
// guardian knows that nothing is left. The lease is longer than the test lasts.
func TestKilledTenureIsFreed(t *testing.T) {
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
			t.Parallel()
			eachStore(t, func(t *testing.T, s *scene) {
				t.Parallel()
				if tc.name == "contained" {
					s.needContain()
				}
				s.write("alone.sh", solitary)
				args := append(slices.Clone(tc.words), "--lease", "10m", "--heartbeat", "500ms", "--refresh", "200ms", "--grace", "1s")
				args = append(args, "job", "--", "sh", s.path("alone.sh"))
				first := s.start(args...)
				s.await("the command", func() bool { return s.read("begun") != "" })
				store := s.store()
				time.Sleep(700 * time.Millisecond) // for a heartbeat
				second := s.start(append(append([]string{"run", "--json"}, tc.words[1:]...), args[len(tc.words):]...)...)
				if tc.name != "slot" {
					s.await("a waiting successor", func() bool { return strings.Contains(second.stderr.String(), `"event":"waiting"`) })
				}
				guardian := first.guardian()
				line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", guardian))
				if err != nil || strings.Contains(string(line), s.url) {
					t.Errorf("the guardian's arguments, which anybody may read, have the store in them: %q, %v", line, err)
				}
				killed := time.Now()
				first.signal(syscall.SIGKILL)
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

// TestStoppedGuardianHoldsUpNoHeartbeat: a lease lives on while its guardian stands still.
func TestStoppedGuardianHoldsUpNoHeartbeat(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.start("run", "--lease", "4s", "job", "--", "sh", "-c", `echo >"$DIR/up"; while [ ! -e "$DIR/end" ]; do sleep 0.1; done`)
	s.await("the command", func() bool { return s.read("up") != "" })
	guardian := p.guardian()
	if err := syscall.Kill(guardian, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	store, beats := s.store(), map[string]bool{}
	s.await("heartbeats for two leases", func() bool {
		rec, err := store.Get(t.Context(), "job", driver.Strong)
		if err != nil || rec.State != driver.Held || rec.Token != 1 {
			t.Fatalf("%+v, %v", rec, err)
		}
		beats[rec.Beat] = true
		return len(beats) > 12
	})
	if err := syscall.Kill(guardian, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.write("end", "")
	if status := p.status(); status != 0 {
		t.Errorf("status %d", status)
	}
}

// TestOperatorBeforeTheGuardian: what an operator does while the guardian waits for the last
// requests of the dead counts, and stays.
func TestOperatorBeforeTheGuardian(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.write("alone.sh", solitary)
	p := s.start("run", "--lease", "30s", "--grace", "10s", "job", "--", "sh", s.path("alone.sh"))
	s.await("the command", func() bool { return s.read("begun") != "" })
	p.signal(syscall.SIGKILL)
	p.status()
	store := s.store()
	prev, err := store.Get(t.Context(), "job", driver.Strong)
	if err != nil {
		t.Fatal(err)
	}
	next := prev
	next.Version, next.State, next.End = "of-ops", driver.Released, driver.EndReleasedDead
	next.Asked = &driver.Request{ID: "q", Kind: driver.ReleaseDead, By: "ops", Reason: "it is dead", At: time.Now()}
	if _, err := store.Swap(t.Context(), prev, next); err != nil {
		t.Fatal(err) // the guardian was quicker than its ten seconds
	}
	s.write("quick", "")
	if status := s.start("run", "--wait", "0", "job", "--", "sh", s.path("alone.sh")).status(); status != 0 {
		t.Errorf("the lock that was freed: status %d", status)
	}
	s.await("the end of the guardian", func() bool { return len(s.left(markName+"="+s.mark)) == 0 })
	rec, err := store.Get(t.Context(), "job", driver.Strong)
	if err != nil || rec.Token != 2 || rec.End != driver.EndReleased || rec.Prev.End != driver.EndReleasedDead {
		t.Errorf("the record is %+v, %v", rec, err)
	}
}

// TestKilledAtAnyTime kills tenure at random moments of its acquire, its heartbeats and its
// release, again and again. Nobody works beside another, and each token is used once. How
// long the successor waits is told; where the guardian knows of the lease it is the grace.
func TestKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	eachStore(t, killedAtAnyTime)
}

func killedAtAnyTime(t *testing.T, s *scene) {
	t.Parallel()
	const grace = 300 * time.Millisecond
	s.write("alone.sh", solitary)
	rounds := 12
	switch {
	case testing.Short():
		rounds = 5
	case strings.HasPrefix(s.url, "sqlite:"):
		rounds = 30
	}
	var freed, other []time.Duration
	client := s.client()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		sure := round == 0 // the guardian knows of the lease
		begun := strings.Count(s.read("begun"), "\n")
		_ = os.Remove(s.path("quick"))
		if !sure && random.IntN(3) == 0 {
			s.write("quick", "") // its command ends at once, and it releases
		}
		flags := []string{"--lease", "6s", "--heartbeat", "100ms", "--refresh", "100ms", "--grace", grace.String()}
		p := s.start(append(append([]string{"run"}, flags...), "job", "--", "sh", s.path("alone.sh"))...)
		if sure || random.IntN(2) == 0 {
			s.await("the command", func() bool { return strings.Count(s.read("begun"), "\n") > begun })
		}
		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		p.signal(syscall.SIGKILL)
		killed := time.Now()
		p.status()
		s.write("quick", "")
		before := strings.Count(s.read("begun"), "\n")
		next := s.start(append(append([]string{"run"}, flags...), "job", "--", "sh", s.path("alone.sh"))...)
		s.await("the successor's command", func() bool { return strings.Count(s.read("begun"), "\n") > before })
		took := time.Since(killed)
		if status := next.status(); status != 0 {
			t.Errorf("the successor ended with status %d", status)
		}
		list, err := client.History(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 1 && list[1].End == tenure.EndCrashed && list[1].Until.After(killed) {
			freed = append(freed, took)
			if took < grace {
				t.Errorf("free %v after the death of token %d", took, list[1].Token)
			}
		} else {
			other = append(other, took)
		}
	}
	if f := s.read("failures"); f != "" {
		t.Error(f)
	}
	used := strings.Fields(s.read("begun"))
	if slices.Sort(used); len(slices.Compact(slices.Clone(used))) != len(used) {
		t.Errorf("tokens used twice: %v", used)
	}
	slices.Sort(freed)
	slices.Sort(other)
	if len(freed) == 0 {
		t.Fatal("no guardian has freed a lock")
	}
	t.Logf("from SIGKILL to the successor's command: freed by the guardian, grace %v: median %v, worst of %d %v; all others: %v",
		grace, freed[len(freed)/2].Round(time.Millisecond), len(freed), freed[len(freed)-1].Round(time.Millisecond), other)
}

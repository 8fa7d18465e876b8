// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

const (
	// contentionEnv names the variable with the time for which processes contend and are
	// killed: "10m" for a long run.
	contentionEnv  = "TENURE_TEST_CHAOS"
	contentionTime = "30s"
	// A slow machine has fewer holds in that time, and goes on until there is enough to judge,
	// for no longer than this.
	mostContention = 4 * time.Minute

	contentionLease = 1500 * time.Millisecond
	shortHold       = 40 * time.Millisecond
	// A hold that needs heartbeats. A process that holds for so long then leaves the lock to the
	// others for as long.
	longHold = contentionLease * 4 / 3
)

// member is a place among the contenders, and its process.
type member struct {
	name    string
	owner   string // of this process: the name with a number
	runs    int
	hold    time.Duration
	process *peers.Process
	call    *peers.Call // its work
}

func (m *member) ours() bool { return strings.HasPrefix(m.name, "tenure") }

// contention is one table on which members contend.
type contention struct {
	*fixture
	log     string
	end     time.Time
	members []*member
	deaths  map[string]death // by the owner
}

// death is when a process was killed, and how long it meant to hold at most.
type death struct {
	at    int64
	holds time.Duration
}

// TestContention: processes of Tenure and of another client contend for one lock, and are killed
// and started again all the while. What all of them say about when they held it must not overlap.
func TestContention(t *testing.T) {
	duration, err := time.ParseDuration(cmp.Or(os.Getenv(contentionEnv), contentionTime))
	if err != nil {
		t.Fatalf("%s: %v", contentionEnv, err)
	}
	eachPeer(t, func(s *fixture) {
		c := &contention{fixture: s, log: filepath.Join(s.TempDir(), "holds"), deaths: map[string]death{}}
		for _, name := range []string{"them-a", "them-b", "tenure-a", "tenure-b", "tenure-c"} {
			c.members = append(c.members, &member{name: name})
		}
		last := time.Now().Add(mostContention)
		c.end = time.Now().Add(duration)
		for _, m := range c.members {
			c.begin(m)
		}
		for c.contend(); len(c.lacks()) > 0 && time.Now().Before(last) && !s.Failed(); c.contend() {
			c.end = time.Now().Add(duration)
			for _, m := range c.members {
				c.work(m)
			}
		}
		for _, lack := range c.lacks() {
			s.Error(lack)
		}
	})
}

// begin starts the process of a member, and has it work.
func (c *contention) begin(m *member) {
	m.runs++
	m.owner, m.hold = fmt.Sprintf("%s-%d", m.name, m.runs), shortHold
	// One of each side, now and then: more would leave too few holds.
	if strings.HasSuffix(m.name, "-b") && (m.runs%2 == 0) == m.ours() {
		m.hold = longHold
	}
	m.process = c.start(m.name)
	open := command{actor: m.owner, options: map[string]string{"lease": contentionLease.String()}}
	if _, err := m.process.Do(c.Context(), c.opening(open)); err != nil {
		c.Fatal(err)
	}
	c.work(m)
}

// work has a member work for the time that is left.
func (c *contention) work(m *member) {
	pause := 30 * time.Millisecond
	if m.hold == longHold {
		pause = longHold
	}
	m.call = m.process.Begin(wire.Request{
		Command: wire.Work, Name: "x", Log: c.log, DeleteOnRelease: aws.Bool(rand.N(4) == 0),
		DurationMs: time.Until(c.end).Milliseconds(), HoldMs: m.hold.Milliseconds(), PauseMs: pause.Milliseconds(),
		WaitMs: peers.Milliseconds(patience), RefreshMs: peers.Milliseconds(refresh / 2),
	})
}

// contend kills members and starts them again until the end, and judges what all have held by then.
func (c *contention) contend() {
	for kills := 0; time.Now().Before(c.end); kills++ {
		wait.Rest(c.Context(), time.Second+rand.N(time.Second))
		m := c.victim(kills)
		// Before the signal: what the process did after it is not known to be gone.
		c.deaths[m.owner] = death{proc.Monotonic(), m.hold}
		m.process.Kill()
		wait.Rest(c.Context(), rand.N(300*time.Millisecond))
		c.begin(m)
	}
	for _, m := range c.members {
		a, err := m.call.Wait(c.Context())
		if err != nil {
			c.Fatalf("%s: %v", m.owner, err)
		}
		if a.Counts.Errors > 0 {
			// A paused process may find its grant run out. Anything that goes on shows as a
			// member that never held the lock.
			if c.Logf("%s: %+v", m.owner, *a.Counts); !m.ours() {
				c.Fail()
			}
		}
	}
	for _, finding := range judge(c.holds()) {
		c.Error(finding)
	}
}

// victim chooses whom to kill: any process, the holder if it is of one side, or if it is of the
// other.
func (c *contention) victim(kills int) *member {
	last := time.Now().Add(time.Second)
	for kills%2 == 1 && time.Now().Before(last) {
		wait.Rest(c.Context(), time.Millisecond)
		r := c.row("x")
		for _, m := range c.members {
			// Long holds are to come to their end, but by chance.
			holds := m.owner == r.text("ownerName") && r.text("isReleased") == ""
			if holds && m.ours() == (kills%4 == 1) && m.hold == shortHold {
				return m
			}
		}
	}
	return c.members[rand.N(len(c.members))]
}

// holds returns what all have written of when they held the lock.
func (c *contention) holds() []trial.Hold {
	file, err := os.Open(c.log)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	all, err := readHolds(file, c.deaths)
	if err != nil {
		c.Fatal(err)
	}
	return all
}

// readHolds reads a log, in the order of the beginnings. A hold without an end is one of a process
// that was killed in it; it has ended when the process was killed, or when the time was over that
// it meant to hold.
func readHolds(log io.Reader, deaths map[string]death) ([]trial.Hold, error) {
	var all []trial.Hold
	open := map[string]int{} // by the owner, where its open hold is in all
	for lines := bufio.NewScanner(log); lines.Scan(); {
		l, err := wire.ParseLog(lines.Text())
		if err != nil {
			return nil, err
		}
		i, found := open[l.Owner]
		switch {
		case l.What == wire.LogBegin && !found:
			open[l.Owner] = len(all)
			all = append(all, trial.Hold{Owner: l.Owner, Begin: l.At, Token: l.Token})
		case l.What == wire.LogEnd && found && l.At >= all[i].Begin:
			all[i].Last = l.At
			delete(open, l.Owner)
		default:
			return nil, fmt.Errorf("line %q is not in its place", lines.Text())
		}
	}
	for owner, i := range open {
		d, dead := deaths[owner]
		if !dead {
			return nil, fmt.Errorf("%s lives, and has not said when its last hold ended", owner)
		}
		all[i].Killed = true
		all[i].Last = max(all[i].Begin, min(d.at, all[i].Begin+d.holds.Nanoseconds()))
	}
	slices.SortStableFunc(all, func(a, b trial.Hold) int { return cmp.Compare(a.Begin, b.Begin) })
	return all, nil
}

// judge holds tokens to rise, as far as there are some, and judges holds by their order, which
// takes the place of the tokens that the other client has not.
func judge(all []trial.Hold) (found []string) {
	var last trial.Hold
	inOrder := trial.Log{Holds: slices.Clone(all)}
	for i, h := range all {
		inOrder.Holds[i].Token = uint64(i + 1)
		if h.Token > 0 {
			if h.Token <= last.Token {
				found = append(found, fmt.Sprintf("token %d of %s after %d of %s", h.Token, h.Owner, last.Token, last.Owner))
			}
			last = h
		}
	}
	for _, f := range inOrder.Judge() {
		found = append(found, f.Text)
	}
	return found
}

// lacks returns what the holds so far must still show to be worth a judgement.
func (c *contention) lacks() (lacks []string) {
	count, all := map[string]int{}, c.holds()
	for i, h := range all {
		name := h.Owner[:strings.LastIndexByte(h.Owner, '-')]
		side, _, _ := strings.Cut(name, "-")
		count[name]++
		count[side]++
		if h.Killed {
			count["killed in a hold"]++
			count["killed in a hold, "+side]++
		}
		if time.Duration(h.Last-h.Begin) > contentionLease {
			count["longer than a lease, "+side]++
		}
		if i > 0 && (h.Token > 0) != (all[i-1].Token > 0) {
			count["changes of side"]++
		}
	}
	count["killed"] = len(c.deaths)
	c.Logf("%d holds: %v", len(all), count)
	least := map[string]int{"them": 9, "tenure": 9, "killed": 3, "killed in a hold": 1, "changes of side": 3}
	for _, m := range c.members {
		least[m.name] = 1
	}
	for what, n := range least {
		if count[what] < n {
			lacks = append(lacks, fmt.Sprintf("%s: %d; want %d at least", what, count[what], n))
		}
	}
	return lacks
}

// TestHoldsAreJudged: what is wrong in a log is seen.
func TestHoldsAreJudged(t *testing.T) {
	deaths := map[string]death{"dead": {100, 50}, "late": {1000, 50}}
	for log, want := range map[string]string{
		"begin a 1 1\nend a 5\nbegin b 5\nend b 9\nbegin a 10 2\nend a 11": "",
		"begin b 5\nbegin a 1 1\nend a 5\nend b 9":                         "", // written late
		"begin a 1\nbegin b 4\nend a 5\nend b 9":                           "passed 1ns after b",
		"begin a 1\nend a 9\nbegin b 2\nend b 3\nbegin c 8\nend c 9":       "passed 7ns after b|passed 1ns after c",
		"begin a 1 7\nend a 2\nbegin b 3\nend b 4\nbegin c 5 7\nend c 6":   "token 7 of c after 7 of a",
		"begin a 1 7\nend a 2\nbegin c 5 6\nend c 6":                       "token 6 of c after 7 of a",
		"begin dead 90\nbegin a 100\nend a 101":                            "",
		"begin dead 90\nbegin a 99\nend a 101":                             "passed 1ns after a",
		"begin late 90\nbegin a 140\nend a 141":                            "",
		"begin late 90\nbegin a 139\nend a 141":                            "passed 1ns after a",
		"begin a 1":                                                        "a lives",
		"begin a 1\nbegin a 2":                                             "not in its place",
		"end a 1":                                                          "not in its place",
		"begin a":                                                          "line",
	} {
		all, err := readHolds(strings.NewReader(log), deaths)
		found := judge(all)
		if err != nil {
			found = append(found, err.Error())
		}
		wants := slices.DeleteFunc(strings.Split(want, "|"), func(w string) bool { return w == "" })
		if !slices.EqualFunc(found, wants, strings.Contains) {
			t.Errorf("%q: found %q, want %q", log, found, wants)
		}
	}
}

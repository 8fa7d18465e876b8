// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// chaosTime names the variable of the environment with the time for which
// processes contend and are killed: "10m" for a long run.
const chaosTime = "TENURE_TEST_CHAOS"

const (
	defaultChaosTime = 30 * time.Second
	// A slow machine has fewer holds in that time, and goes on until there is enough
	// to judge, for no longer than this.
	mostChaosTime = 4 * time.Minute
	chaosLease    = 1500 * time.Millisecond
	chaosPause    = 30 * time.Millisecond

	shortHold = 40 * time.Millisecond
	// A hold that only heartbeats cover. Who holds for so long lets the others
	// have the lock for as long.
	longHold = chaosLease * 4 / 3

	ourMembers, theirMembers = 3, 2
)

// member is a place among those who contend, and the process that fills it.
type member struct {
	name        string
	owner       string // of this process: the name with a number
	runs        int
	hold, pause time.Duration

	ours     bool         // it is Tenure
	starting chan started // of theirs, while it is being started
	process  *peers.Process
	call     *peers.Call // its work, nil if it came too late for any
}

// started is what came of a start, which takes its time: a Java process must
// not hold up the others' ends.
type started struct {
	process *peers.Process
	err     error
}

// chaos is one table on which members contend.
type chaos struct {
	*scene
	log     string
	end     time.Time
	members []*member
	deaths  map[string]death
	choices int // of a victim
}

// Processes of Tenure and of another client contend for one lock, and are
// killed and started again all the while. What all of them say about when they
// held it must not overlap.
func TestContention(t *testing.T) {
	duration := defaultChaosTime
	if text := os.Getenv(chaosTime); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", chaosTime, err)
		}
		duration = d
	}
	eachPeer(t, func(t *testing.T, s *scene) {
		c := &chaos{scene: s, log: filepath.Join(t.TempDir(), "holds"), deaths: map[string]death{}}
		for i := range theirMembers {
			c.members = append(c.members, &member{name: fmt.Sprintf("%s-%c", s.kind, 'a'+i)})
		}
		for i := range ourMembers {
			c.members = append(c.members, &member{name: fmt.Sprintf("tenure-%c", 'a'+i), ours: true})
		}
		begun := time.Now()
		c.end = begun.Add(duration)
		for _, m := range c.members {
			c.begin(t, m)
		}
		c.contend(t)
		for time.Since(begun) < mostChaosTime && len(c.lacks(t)) > 0 {
			c.end = time.Now().Add(defaultChaosTime)
			for _, m := range c.members {
				if m.process != nil {
					m.call = c.work(m)
				}
			}
			c.contend(t)
		}
		for _, lack := range c.lacks(t) {
			t.Error(lack)
		}
	})
}

// contend kills members and starts them again until the end, and judges what all
// have held by then.
func (c *chaos) contend(t *testing.T) {
	t.Helper()
	for c.join(t); time.Now().Before(c.end); c.join(t) {
		wait.Rest(t.Context(), time.Second+rand.N(time.Second))
		if m := c.victim(t); m != nil {
			c.kill(m)
			wait.Rest(t.Context(), rand.N(300*time.Millisecond))
			c.begin(t, m)
		}
	}
	c.finish(t)
	for _, problem := range wrong(c.holds(t)) {
		t.Error(problem)
	}
}

// begin starts the process of a member.
func (c *chaos) begin(t *testing.T, m *member) {
	t.Helper()
	m.runs++
	m.owner = fmt.Sprintf("%s-%d", m.name, m.runs)
	m.hold, m.pause = shortHold, chaosPause
	// One of each side, now and then: more would leave too few holds.
	if strings.HasSuffix(m.name, "-b") && m.runs%2 == 0 == m.ours {
		m.hold, m.pause = longHold, longHold
	}
	if m.ours {
		m.process = c.openOurs(t, m.owner, chaosLease)
		m.call = c.work(m)
		return
	}
	starting := make(chan started, 1)
	m.starting, m.process, m.call = starting, nil, nil
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		ps, err := c.program.Start(ctx)
		starting <- started{ps, err}
		close(starting)
	}()
	t.Cleanup(func() {
		// It is here if nobody has joined it.
		if s := <-starting; s.process != nil {
			s.process.Kill()
		}
	})
}

// join sets processes to work that have been started since the last time.
func (c *chaos) join(t *testing.T) {
	t.Helper()
	for _, m := range c.members {
		select {
		case s := <-m.starting:
			if s.err != nil {
				t.Fatal(s.err)
			}
			m.starting, m.process = nil, s.process
			t.Cleanup(s.process.Kill)
			must(t, m.process, c.table.Open(m.owner, chaosLease, chaosLease/5))
			m.call = c.work(m)
		default: // it works, or starts yet, or is of ours
		}
	}
}

// work has a member work for the time that is left, if any is.
func (c *chaos) work(m *member) *peers.Call {
	left := time.Until(c.end)
	if left <= 0 {
		return nil
	}
	return m.process.Begin(wire.Request{
		Command: wire.Work, Name: lockName, Log: c.log, DeleteOnRelease: aws.Bool(rand.N(4) == 0),
		DurationMs: left.Milliseconds(), HoldMs: m.hold.Milliseconds(), PauseMs: m.pause.Milliseconds(),
		WaitMs: peers.Milliseconds(patience), RefreshMs: peers.Milliseconds(refresh / 2),
	})
}

// victim chooses whom to kill: now anybody, now whoever of one side holds the
// lock, now of the other. It returns nil if that one is being started.
func (c *chaos) victim(t *testing.T) *member {
	t.Helper()
	c.choices++
	if c.choices%2 == 0 {
		ours := c.choices%4 == 0
		for end := time.Now().Add(time.Second); time.Now().Before(end); wait.Rest(t.Context(), time.Millisecond) {
			r := c.Row(t, lockName)
			for _, m := range c.members {
				// Long holds are to come to their end, but by chance.
				if m.ours == ours && m.hold == shortHold && m.starting == nil && m.owner == r.Text("ownerName") && r.Text("isReleased") == "" {
					return m
				}
			}
		}
	}
	if m := c.members[rand.N(len(c.members))]; m.starting == nil {
		return m
	}
	return nil
}

func (c *chaos) kill(m *member) {
	// Before the signal: what the process did after it is not known to be gone.
	d := death{At: proc.Monotonic(), Holds: m.hold}
	m.process.Kill()
	c.deaths[m.owner] = d
}

// finish waits until all have let go of the lock.
func (c *chaos) finish(t *testing.T) {
	t.Helper()
	for _, m := range c.members {
		if m.call == nil {
			continue
		}
		a, err := result(t, m.call)
		if err != nil {
			t.Fatalf("%s: %v", m.owner, err)
		}
		switch {
		case a.Counts.Errors == 0:
		case m.ours:
			// A paused process may find its grant run out. Anything that goes on shows
			// as a member that never held the lock.
			t.Logf("%s: %+v", m.owner, *a.Counts)
		default:
			t.Errorf("%s: %+v", m.owner, *a.Counts)
		}
	}
}

// holds returns what all have written of when they held the lock.
func (c *chaos) holds(t *testing.T) []hold {
	t.Helper()
	file, err := os.Open(c.log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	all, err := readHolds(file, c.deaths)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// lacks returns what the holds so far must still show to be worth a judgement.
func (c *chaos) lacks(t *testing.T) []string {
	t.Helper()
	all := c.holds(t)
	held := map[string]int{}
	sides, killed, long := map[bool]int{}, map[bool]int{}, map[bool]int{} // whether ours
	changes := 0
	for i, h := range all {
		ours := h.Token > 0
		held[h.Owner[:strings.LastIndexByte(h.Owner, '-')]]++
		sides[ours]++
		if h.Killed {
			killed[ours]++
		}
		if time.Duration(h.End-h.Begin) > chaosLease {
			long[ours]++
		}
		if i > 0 && ours != (all[i-1].Token > 0) {
			changes++
		}
	}
	t.Logf("%d holds, %v; %d changes of side; %d processes killed, in a hold: %d of Tenure's, %d of %s; longer than a lease: %d of Tenure's, %d of %s",
		len(all), held, changes, len(c.deaths), killed[true], killed[false], c.kind, long[true], long[false], c.kind)

	var lacks []string
	lack := func(format string, args ...any) { lacks = append(lacks, fmt.Sprintf(format, args...)) }
	const few = 3
	for _, m := range c.members {
		if held[m.name] == 0 {
			lack("%s never held the lock", m.name)
		}
	}
	for name, n := range map[string]int{"Tenure": sides[true], string(c.kind): sides[false]} {
		if n < 3*few {
			lack("%s held the lock %d times; want %d at least", name, n, 3*few)
		}
	}
	if len(c.deaths) < few {
		lack("%d processes were killed; want %d at least", len(c.deaths), few)
	}
	if killed[true]+killed[false] == 0 {
		lack("no process was killed while it held the lock")
	}
	if changes < few {
		lack("the lock changed sides %d times; want %d at least", changes, few)
	}
	return lacks
}

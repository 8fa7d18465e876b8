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

	"github.com/tenurelock/tenure/interop/peer"
	"github.com/tenurelock/tenure/interop/peer/wire"
)

// chaosTime names the variable of the environment with the time for which
// processes contend and are killed: "10m" for a long run.
const chaosTime = "TENURE_TEST_CHAOS"

const (
	defaultChaosTime = 30 * time.Second
	chaosLease       = 1500 * time.Millisecond
	chaosPause       = 30 * time.Millisecond

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

	ours     *child
	starting chan started // of theirs, while it is being started
	theirs   *peer.Process
	call     *peer.Call // its work, nil if it came too late for any
}

// started is what came of a start, which takes its time: a Java process must
// not hold up the others' ends.
type started struct {
	process *peer.Process
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
			c.members = append(c.members, &member{name: fmt.Sprintf("tenure-%c", 'a'+i)})
		}
		c.end = time.Now().Add(duration)
		for _, m := range c.members {
			c.begin(t, m)
		}
		for c.join(t); time.Now().Before(c.end); c.join(t) {
			pause(t.Context(), time.Second+rand.N(time.Second))
			if m := c.victim(t); m != nil {
				c.kill(m)
				pause(t.Context(), rand.N(300*time.Millisecond))
				c.begin(t, m)
			}
		}
		c.finish(t)
		c.check(t)
	})
}

// begin starts the process of a member.
func (c *chaos) begin(t *testing.T, m *member) {
	t.Helper()
	m.runs++
	m.owner = fmt.Sprintf("%s-%d", m.name, m.runs)
	m.hold, m.pause = shortHold, chaosPause
	ours := strings.HasPrefix(m.name, "tenure")
	// One of each side, now and then: more would leave too few holds.
	if strings.HasSuffix(m.name, "-b") && m.runs%2 == 0 == ours {
		m.hold, m.pause = longHold, longHold
	}
	if ours {
		left := max(0, time.Until(c.end))
		m.ours = c.start(t, order{Owner: m.owner, Lease: chaosLease, Log: c.log, Duration: left, Hold: m.hold, Pause: m.pause})
		return
	}
	starting := make(chan started, 1)
	m.starting, m.theirs, m.call = starting, nil, nil
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
			m.starting, m.theirs = nil, s.process
			t.Cleanup(s.process.Kill)
			must(t, m.theirs, c.openRequest(m.owner, chaosLease, chaosLease/5))
			if left := time.Until(c.end); left > 0 {
				m.call = m.theirs.Begin(wire.Request{
					Command: wire.Work, Name: lockName, Log: c.log, DeleteOnRelease: aws.Bool(rand.N(4) == 0),
					DurationMs: left.Milliseconds(), HoldMs: m.hold.Milliseconds(), PauseMs: m.pause.Milliseconds(),
					WaitMs: milliseconds(patience), RefreshMs: milliseconds(refresh / 2),
				})
			}
		default: // it works, or starts yet, or is of ours
		}
	}
}

// victim chooses whom to kill: now anybody, now whoever of one side holds the
// lock, now of the other. It returns nil if that one is being started.
func (c *chaos) victim(t *testing.T) *member {
	t.Helper()
	c.choices++
	if c.choices%2 == 0 {
		ours := c.choices%4 == 0
		for end := time.Now().Add(time.Second); time.Now().Before(end); pause(t.Context(), time.Millisecond) {
			r := c.row(t, lockName)
			for _, m := range c.members {
				// Long holds are to come to their end, but by chance.
				if (m.ours != nil) == ours && m.hold == shortHold && m.starting == nil && m.owner == r.text("ownerName") && r.text("isReleased") == "" {
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
	d := death{at: wire.Monotonic(), holds: m.hold}
	if m.ours != nil {
		m.ours.kill()
	} else {
		m.theirs.Kill()
	}
	c.deaths[m.owner] = d
}

// finish waits until all have let go of the lock.
func (c *chaos) finish(t *testing.T) {
	t.Helper()
	for _, m := range c.members {
		if m.ours != nil {
			m.ours.next(t, "done")
			continue
		}
		if m.call == nil {
			continue
		}
		a, err := wait(t, m.call)
		if err != nil {
			t.Fatalf("%s: %v", m.owner, err)
		}
		if a.Counts.Errors > 0 {
			t.Errorf("%s: %+v", m.owner, *a.Counts)
		}
	}
}

func (c *chaos) check(t *testing.T) {
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
	for _, problem := range wrong(all) {
		t.Error(problem)
	}

	// And it must have been worth looking at.
	holds := map[string]int{}
	sides, killed, long := map[bool]int{}, map[bool]int{}, map[bool]int{} // whether ours
	changes := 0
	for i, h := range all {
		ours := h.token > 0
		holds[h.owner[:strings.LastIndexByte(h.owner, '-')]]++
		sides[ours]++
		if h.killed {
			killed[ours]++
		}
		if time.Duration(h.end-h.begin) > chaosLease {
			long[ours]++
		}
		if i > 0 && ours != (all[i-1].token > 0) {
			changes++
		}
	}
	t.Logf("%d holds, %v; %d changes of side; %d processes killed, in a hold: %d of Tenure's, %d of %s; longer than a lease: %d of Tenure's, %d of %s",
		len(all), holds, changes, len(c.deaths), killed[true], killed[false], c.kind, long[true], long[false], c.kind)
	const few = 3
	for _, m := range c.members {
		if holds[m.name] == 0 {
			t.Errorf("%s never held the lock", m.name)
		}
	}
	for name, n := range map[string]int{"Tenure": sides[true], string(c.kind): sides[false]} {
		if n < 3*few {
			t.Errorf("%s held the lock %d times; want %d at least", name, n, 3*few)
		}
	}
	if len(c.deaths) < few {
		t.Errorf("%d processes were killed; want %d at least", len(c.deaths), few)
	}
	if killed[true]+killed[false] == 0 {
		t.Error("no process was killed while it held the lock")
	}
	if changes < few {
		t.Errorf("the lock changed sides %d times; want %d at least", changes, few)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestSessions: schedules whose locks are held under sessions, half of them, with
// and without requests, and with nothing that fails.
func TestSessions(t *testing.T) {
	enginetest.MakeVerify(t)
	var sum Tally
	for seed := range uint64(900) {
		shape := func(c *Config) {
			c.Sessions, c.Faults, c.Requests = true, seed%3 > 0, seed%3 < 2
			c.Doubled = seed%3 == 1 // ghosts are writes that come late
		}
		tally, err := RunSeed(seed, shape, nil)
		if err != nil {
			told := &Trace{}
			_, err = RunSeed(seed, shape, told)
			t.Fatalf("seed %d: %v", seed, err)
		}
		sum.Sessions += tally.Sessions
		sum.Closed += tally.Closed
		sum.Ghosts += tally.Ghosts
		sum.Swept += tally.Swept
		sum.Carried += tally.Carried
		sum.Delivered += tally.Delivered
	}
	t.Logf("%d sessions, %d closed by others, %d deleted; %d ghosts; %d requests, %d delivered",
		sum.Sessions, sum.Closed, sum.Swept, sum.Ghosts, sum.Carried, sum.Delivered)
	for what, n := range map[string]int{
		"session": sum.Sessions, "close": sum.Closed, "ghost": sum.Ghosts, "deletion": sum.Swept, "request": sum.Carried, "delivery": sum.Delivered,
	} {
		if n < 1 {
			t.Errorf("the schedules have no %s any more", what)
		}
	}
}

// unheard shapes schedules in which an acquire under a session does not hear for
// long that it has the lock, while others ask the session whether somebody does.
func unheard(c *Config) {
	c.Sessions, c.Unheard, c.Faults, c.Locks, c.Length = true, true, false, 1, 12*c.Timing.Lease
	c.Deletions = false
	c.Timing.RequestTimeout = c.Timing.Lease / 4 // what a look shows is old when it comes
}

// TestUnheard: such an acquire has the lock in the end, or nobody has it for it.
func TestUnheard(t *testing.T) {
	enginetest.MakeVerify(t)
	for seed := range uint64(300) {
		shape := func(c *Config) {
			unheard(c)
			c.Faults = seed%3 == 0
		}
		if _, err := RunSeed(seed, shape, nil); err != nil {
			_, err = RunSeed(seed, shape, &Trace{})
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestTrying: where all only try, what a living session holds without knowing is found
// by an acquire under it.
func TestTrying(t *testing.T) {
	enginetest.MakeVerify(t)
	disowned := 0
	for seed := range uint64(300) {
		shape := func(c *Config) { c.Sessions, c.Trying, c.Doubled = true, true, true }
		tally, err := RunSeed(seed, shape, nil)
		if err != nil {
			_, err = RunSeed(seed, shape, &Trace{})
			t.Fatalf("seed %d: %v", seed, err)
		}
		disowned += tally.Disowned
	}
	if t.Logf("%d ghosts", disowned); disowned < 10 {
		t.Errorf("the schedules have hardly a ghost any more: %d", disowned)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// handClock is a clock that is moved by hand.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Holder() time.Duration { return time.Duration(c.now.Load()) }

func newDeadline(c *handClock, parent *leaseDeadline, deadline time.Duration) *leaseDeadline {
	r := &leaseDeadline{timers: &timers{now: c.Holder, wake: make(chan struct{}, 1)}, Parent: parent}
	r.Begin(deadline)
	return r
}

// TestDeadline goes through the life of a deadline step by step.
func TestDeadline(t *testing.T) {
	c := &handClock{}
	c.now.Store(1)
	r := newDeadline(c, nil, 10)
	expect := func(what string, r *leaseDeadline, why ending, left time.Duration) {
		t.Helper()
		if got := r.Check(); got != why || r.Ended() != why {
			t.Errorf("%s: ended as %d and %d, want %d", what, got, r.Ended(), why)
		}
		if got := r.Remaining(); got != left {
			t.Errorf("%s: %d remain, want %d", what, got, left)
		}
	}
	expect("begun", r, notEnded, 9)
	r.Extend(5)
	expect("extended backwards", r, notEnded, 9)
	r.Extend(20)
	expect("extended", r, notEnded, 19)
	c.now.Store(19)
	if again, expired := r.Reach(19); expired || again != 20 {
		t.Errorf("reached at 19: %d, %v", again, expired)
	}
	expect("a moment before", r, notEnded, 1)
	c.now.Store(20)
	if r.Ended() != notEnded {
		t.Error("ended before anybody has found out")
	}
	expect("at the deadline", r, endedExpired, 0)
	if len(r.timers.wake) != 1 {
		t.Error("the timer was not told")
	}
	r.Extend(100)
	r.End(endedReleased)
	c.now.Store(5)
	expect("extended and released when it has expired, and the clock set back", r, endedExpired, 0)

	r = newDeadline(c, nil, 30)
	r.End(endedReleased)
	r.End(endedSuperseded)
	r.Extend(100)
	expect("released", r, endedReleased, 0)
	if again, expired := r.Reach(50); again != 0 || expired {
		t.Errorf("reached when it was released: %d, %v", again, expired)
	}

	r = newDeadline(c, nil, 30)
	c.now.Store(30)
	r.End(endedReleased)
	expect("released too late", r, endedExpired, 0)

	if (&leaseDeadline{timers: r.timers}).Check() == notEnded {
		t.Error("good before it has begun")
	}
}

// TestDeadlineUnderAParent: the deadline is good while its parent is, and ends as the
// parent does, unless it has ended before.
func TestDeadlineUnderAParent(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(c *handClock, session, lock *leaseDeadline)
		want ending
	}{
		{"both good", func(*handClock, *leaseDeadline, *leaseDeadline) {}, notEnded},
		{"extended", func(c *handClock, s, _ *leaseDeadline) { s.Extend(30); c.now.Store(25) }, notEnded},
		{"own extension counts for nothing", func(c *handClock, _, l *leaseDeadline) { l.Extend(30); c.now.Store(25) }, endedExpired},
		{"expired", func(c *handClock, _, _ *leaseDeadline) { c.now.Store(20) }, endedExpired},
		{"closed", func(_ *handClock, s, _ *leaseDeadline) { s.End(endedReleased) }, endedReleased},
		{"released before it is closed", func(_ *handClock, s, l *leaseDeadline) { l.End(endedStalled); s.End(endedReleased) }, endedStalled},
		{"released when the session has expired", func(c *handClock, _, l *leaseDeadline) { c.now.Store(20); l.End(endedReleased) }, endedExpired},
		{"seen closed, and then stalled", func(_ *handClock, s, l *leaseDeadline) { s.End(endedReleased); l.Check(); l.End(endedStalled) }, endedReleased},
		{"superseded", func(c *handClock, s, l *leaseDeadline) { s.End(endedSuperseded); l.Check(); c.now.Store(90) }, endedSuperseded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &handClock{}
			c.now.Store(1)
			session := newDeadline(c, nil, 20)
			lock := newDeadline(c, session, 0)
			tt.do(c, session, lock)
			if got := lock.Check(); got != tt.want {
				t.Errorf("ended as %d, want %d", got, tt.want)
			}
			if left := lock.Remaining(); (left > 0) != (tt.want == notEnded) {
				t.Errorf("%d remain", left)
			}
			session.Extend(200)
			if got := lock.Check(); tt.want != notEnded && got != tt.want {
				t.Errorf("good again, or ended otherwise: %d, was %d", got, tt.want)
			}
		})
	}
}

// TestDeadlineIsFinal: whatever runs concurrently, once a caller has read an ending,
// all callers read the same one; and no caller finds the deadline good after the latest
// instant that was ever set.
func TestDeadlineIsFinal(t *testing.T) {
	for range 300 {
		c := &handClock{}
		c.now.Store(1)
		session := newDeadline(c, nil, 50)
		lock := newDeadline(c, session, 0)
		var latest atomic.Int64 // deadline that was ever to be set
		latest.Store(50)
		var all sync.WaitGroup
		loop := func(do func()) {
			all.Go(func() {
				for range 100 {
					do()
				}
			})
		}
		loop(func() { c.now.Add(rand.Int64N(3)) })
		loop(func() {
			d := c.now.Load() + 20
			for {
				was := latest.Load()
				if was >= d || latest.CompareAndSwap(was, d) {
					break
				}
			}
			session.Extend(time.Duration(d))
		})
		loop(func() { session.Reach(time.Duration(c.now.Load())) })
		if rand.IntN(2) == 0 {
			loop(func() {
				if rand.IntN(100) == 0 {
					lock.End(endedSuperseded)
				}
			})
		}
		for _, r := range []*leaseDeadline{session, lock, lock} {
			var first ending
			loop(func() {
				before := c.now.Load()
				switch why := r.Check(); {
				case first != notEnded && why != first:
					t.Errorf("ended as %d, and then %d", first, why)
				case why == notEnded && before >= latest.Load():
					t.Errorf("good at %d, the deadline was %d", before, latest.Load())
				default:
					first = why
				}
			})
		}
		all.Wait()
	}
}

func BenchmarkRightCheck(b *testing.B) {
	c := &handClock{}
	session := newDeadline(c, nil, time.Hour)
	lock := newDeadline(c, session, 0)
	for b.Loop() {
		_ = lock.Check()
	}
}

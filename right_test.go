// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// handClock is a clock that is moved by hand.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Holder() time.Duration    { return time.Duration(c.now.Load()) }
func (c *handClock) Contender() time.Duration { return c.Holder() }

func newRight(c Clock, parent *right, deadline time.Duration) *right {
	r := &right{clock: c, parent: parent, late: func() {}}
	r.begin(deadline)
	return r
}

// TestRight goes through the life of a right step by step.
func TestRight(t *testing.T) {
	c := &handClock{}
	c.now.Store(1)
	late := 0
	r := newRight(c, nil, 10)
	r.late = func() { late++ }
	expect := func(what string, r *right, why ending, left time.Duration) {
		t.Helper()
		if got := r.check(); got != why || r.ended() != why {
			t.Errorf("%s: ended as %d and %d, want %d", what, got, r.ended(), why)
		}
		if got := r.remaining(); got != left {
			t.Errorf("%s: %d remain, want %d", what, got, left)
		}
	}
	expect("begun", r, notEnded, 9)
	r.extend(5)
	expect("extended backwards", r, notEnded, 9)
	r.extend(20)
	expect("extended", r, notEnded, 19)
	c.now.Store(19)
	if again, expired := r.reach(19); expired || again != 20 {
		t.Errorf("reached at 19: %d, %v", again, expired)
	}
	expect("a moment before", r, notEnded, 1)
	c.now.Store(20)
	if r.ended() != notEnded {
		t.Error("ended before anybody has found out")
	}
	expect("at the deadline", r, endedExpired, 0)
	if late != 1 {
		t.Errorf("the timer was told %d times", late)
	}
	r.extend(100)
	r.end(endedReleased)
	c.now.Store(5)
	expect("extended and released when it has expired, and the clock set back", r, endedExpired, 0)

	r = newRight(c, nil, 30)
	r.end(endedReleased)
	r.end(endedSuperseded)
	r.extend(100)
	expect("released", r, endedReleased, 0)
	if again, expired := r.reach(50); again != 0 || expired {
		t.Errorf("reached when it was released: %d, %v", again, expired)
	}

	r = newRight(c, nil, 30)
	c.now.Store(30)
	r.end(endedReleased)
	expect("released too late", r, endedExpired, 0)

	if (&right{clock: c, late: func() {}}).check() == notEnded {
		t.Error("good before it has begun")
	}
}

// TestRightUnderAParent: it is good while the parent's is, and ends as that does,
// unless it has ended before.
func TestRightUnderAParent(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(c *handClock, session, lock *right)
		want ending
	}{
		{"both good", func(*handClock, *right, *right) {}, notEnded},
		{"extended", func(c *handClock, s, _ *right) { s.extend(30); c.now.Store(25) }, notEnded},
		{"own extension counts for nothing", func(c *handClock, _, l *right) { l.extend(30); c.now.Store(25) }, endedExpired},
		{"expired", func(c *handClock, _, _ *right) { c.now.Store(20) }, endedExpired},
		{"closed", func(_ *handClock, s, _ *right) { s.end(endedReleased) }, endedReleased},
		{"released before it is closed", func(_ *handClock, s, l *right) { l.end(endedStalled); s.end(endedReleased) }, endedStalled},
		{"released when the session has expired", func(c *handClock, _, l *right) { c.now.Store(20); l.end(endedReleased) }, endedExpired},
		{"seen closed, and then stalled", func(_ *handClock, s, l *right) { s.end(endedReleased); l.check(); l.end(endedStalled) }, endedReleased},
		{"superseded", func(c *handClock, s, l *right) { s.end(endedSuperseded); l.check(); c.now.Store(90) }, endedSuperseded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &handClock{}
			c.now.Store(1)
			session := newRight(c, nil, 20)
			lock := newRight(c, session, 0)
			tt.do(c, session, lock)
			if got := lock.check(); got != tt.want {
				t.Errorf("ended as %d, want %d", got, tt.want)
			}
			if left := lock.remaining(); (left > 0) != (tt.want == notEnded) {
				t.Errorf("%d remain", left)
			}
			session.extend(200)
			if got := lock.check(); tt.want != notEnded && got != tt.want {
				t.Errorf("good again, or ended otherwise: %d, was %d", got, tt.want)
			}
		})
	}
}

// TestRightIsFinal: whatever runs at the same time, who was told that the right has
// ended is told nothing else afterwards, and nor is anybody; and nobody finds it good
// at an instant at which no deadline that was ever set had not passed.
func TestRightIsFinal(t *testing.T) {
	for range 300 {
		c := &handClock{}
		c.now.Store(1)
		session := newRight(c, nil, 50)
		lock := newRight(c, session, 0)
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
			session.extend(time.Duration(d))
		})
		loop(func() { session.reach(time.Duration(c.now.Load())) })
		if rand.IntN(2) == 0 {
			loop(func() {
				if rand.IntN(100) == 0 {
					lock.end(endedSuperseded)
				}
			})
		}
		for _, r := range []*right{session, lock, lock} {
			var first ending
			loop(func() {
				before := c.now.Load()
				switch why := r.check(); {
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
	session := newRight(c, nil, time.Hour)
	lock := newRight(c, session, 0)
	for b.Loop() {
		_ = lock.check()
	}
}

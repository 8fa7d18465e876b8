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
	t := &timers{now: c.Holder, wake: make(chan struct{}, 1)}
	r := &leaseDeadline{clocks: &leaseClocks{timers: t, quick: c.Holder, slowdown: 1}, Parent: parent}
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
	if len(r.clocks.wake) != 1 {
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

	if (&leaseDeadline{clocks: r.clocks}).Check() == notEnded {
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

// slewedClocks are the clocks of a machine whose quick clock runs at another rate than the
// holder's.
type slewedClocks struct {
	real, quick handClock
	readings    int           // of the holder's clock
	stops       time.Duration // how long the goroutine stops after the next reading of either
}

func (c *slewedClocks) pass(real, quick time.Duration) {
	c.real.now.Add(int64(real))
	c.quick.now.Add(int64(quick))
}

func (c *slewedClocks) read(clock *handClock) time.Duration {
	now, stop := clock.Holder(), c.stops
	c.stops = 0
	c.pass(stop, stop)
	return now
}

func (c *slewedClocks) readReal() time.Duration  { c.readings++; return c.read(&c.real) }
func (c *slewedClocks) readQuick() time.Duration { return c.read(&c.quick) }

func (c *slewedClocks) deadline(parent *leaseDeadline, deadline time.Duration) *leaseDeadline {
	clocks := &leaseClocks{timers: &timers{now: c.readReal, wake: make(chan struct{}, 1)}, quick: c.readQuick, slowdown: 3}
	d := &leaseDeadline{clocks: clocks, Parent: parent}
	d.Begin(deadline)
	return d
}

// TestDeadlineOnASlewedClock: whatever the rate of the quick clock, a caller may act until the
// deadline on the holder's clock, and no longer, and that clock is rarely read.
func TestDeadlineOnASlewedClock(t *testing.T) {
	const step, lease = 100 * time.Microsecond, 10 * time.Second
	for _, percent := range []time.Duration{34, 40, 90, 92, 100, 108, 110, 160} {
		for _, under := range []bool{false, true} {
			c := &slewedClocks{}
			c.pass(time.Second, time.Hour) // with origins of their own
			at := c.real.Holder() + lease
			record := c.deadline(nil, at)
			d := record
			if under {
				d = c.deadline(record, 0)
			}
			for n := range 3 * int(lease/step) {
				if n == int(lease/step)/2 {
					at += lease
					record.Extend(at)
				}
				before := c.real.Holder()
				if why := d.Check(); (why == notEnded) != (before < at) {
					t.Fatalf("quick clock at %d %%, under a session %v: ended as %d, %v before the deadline", percent, under, why, at-before)
				}
				c.pass(step, step*percent/100)
			}
			if c.readings > 100 {
				t.Errorf("quick clock at %d %%: the holder's clock was read %d times", percent, c.readings)
			}
		}
	}
}

// TestDeadlineAndAStopWithinAReading: a goroutine that stops between its readings of the two clocks
// must not prolong the right to act.
func TestDeadlineAndAStopWithinAReading(t *testing.T) {
	for name, read := range map[string]func(d *leaseDeadline){
		"Begin":  func(d *leaseDeadline) { d.Begin(10 * time.Second) },
		"Extend": func(d *leaseDeadline) { d.Extend(10 * time.Second) },
		"Check":  func(d *leaseDeadline) { d.vouch(d.until.Load()) },
	} {
		c := &slewedClocks{}
		c.pass(time.Second, time.Second)
		d := c.deadline(nil, 9*time.Second)
		if name == "Check" {
			d.Extend(10 * time.Second)
		}
		c.stops = 8 * time.Second
		read(d)
		c.pass(time.Second, time.Second*34/100)
		if d.Check() == notEnded {
			t.Errorf("%s: good when the deadline has passed", name)
		}
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

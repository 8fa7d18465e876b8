// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Defaults and bounds of a [Timing].
const (
	DefaultLease = 15 * time.Second
	// DefaultDrift bounds the rate error of a clock that a time service may slew: chrony slews
	// by up to 8.3 % by default, and the monotonic and boot clocks follow.
	DefaultDrift = 0.09
	// RawDrift bounds the rate error of a clock that no time service slews. It covers the
	// oscillator, which is off by some 100 millionths, and its calibration by the kernel.
	RawDrift = 0.01
	// MaxDrift is the largest bound that makes sense; above it hardly any of
	// a lease is left for its holder.
	MaxDrift = 0.5
	// MinLease is the shortest lease that stores with millisecond records keep with some
	// precision.
	MinLease = 10 * time.Millisecond
	// MinPeriod is the shortest heartbeat and refresh period: a wrong unit, such as 3000 for
	// 3 s, would flood the store.
	MinPeriod = time.Millisecond
	// MaxLease keeps sums of a few leases far below the largest time.Duration.
	MaxLease = 365 * 24 * time.Hour
)

// Timing holds every duration of the protocol.
type Timing struct {
	Lease          time.Duration // L: how long an unchanged beat keeps contenders away
	Heartbeat      time.Duration // H: how often a holder renews
	Refresh        time.Duration // R: how often a contender polls
	Grace          time.Duration // G: kept before the expiry for stopping work
	RequestTimeout time.Duration // how long one call may take
	StopTimeout    time.Duration // how long work may drain under heartbeats
	Progress       time.Duration // how long work may show no progress; 0: for ever
	Manual         bool          // heartbeats only when the caller asks for them
	Drift          float64       // ρ
	Waits          time.Duration // no takeover sooner: see driver.Guarded; 0 for a store that loses nothing
}

// WithDefaults fills every zero field. One number is enough: the others follow
// from the lease.
func (t Timing) WithDefaults() Timing {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&t.Lease, DefaultLease)
	set(&t.Heartbeat, t.Lease/5)
	set(&t.Refresh, min(time.Second, t.Lease/5))
	set(&t.Grace, t.Lease/8)
	set(&t.RequestTimeout, t.Lease/10)
	set(&t.StopTimeout, t.Lease)
	if t.Drift == 0 {
		t.Drift = DefaultDrift
	}
	return t
}

// Validate returns an error that states each broken inequality with its
// numbers. Fields must have been filled by WithDefaults.
func (t Timing) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	switch {
	case t.Lease < MinLease || t.Lease > MaxLease:
		bad("lease duration %v must be from %v to %v", t.Lease, MinLease, MaxLease)
	case t.Lease%time.Millisecond != 0:
		bad("lease duration %v must be a whole number of milliseconds, because stores keep milliseconds", t.Lease)
	}
	positive := func(name string, d time.Duration) {
		if d <= 0 || d > MaxLease {
			bad("%s %v must be positive and at most %v", name, d, MaxLease)
		}
	}
	period := func(name string, d time.Duration) {
		if positive(name, d); d > 0 && d < MinPeriod {
			bad("%s %v must be at least %v, because each period costs a request to the store: check the unit",
				name, d, MinPeriod)
		}
	}
	period("heartbeat period", t.Heartbeat)
	period("refresh period", t.Refresh)
	positive("grace", t.Grace)
	positive("request timeout", t.RequestTimeout)
	positive("stop timeout", t.StopTimeout)
	if t.Progress < 0 || t.Progress > MaxLease {
		bad("progress timeout %v must be from 0 to %v", t.Progress, MaxLease)
	}
	if !(t.Drift > 0 && t.Drift <= MaxDrift) {
		bad("clock drift bound %v must be above 0 and at most %v", t.Drift, MaxDrift)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	// A holder must be able to lose one heartbeat and still renew in time: by the request timeout,
	// which bounds heartbeats too where the store is slow to write (driver.SlowWriter).
	if need := t.Heartbeat + 2*t.RequestTimeout + t.Grace; need > t.Window() {
		bad("lease duration %v is shorter than its parts: heartbeat period %v + 2 x request timeout %v + "+
			"grace %v = %v must be at most %v, which is what clocks that drift by %v leave of the lease; lengthen the lease or shorten a part",
			t.Lease, t.Heartbeat, t.RequestTimeout, t.Grace, need, t.Window().Round(time.Millisecond), t.Drift)
	}
	return errors.Join(errs...)
}

// Window returns L·(1−ρ)/(1+ρ): how long after sending a write its sender may
// count on the lease, by its own clock.
func (t Timing) Window() time.Duration {
	return time.Duration(float64(t.Lease) * (1 - t.Drift) / (1 + t.Drift))
}

// Usable returns the window without the grace: the deadline comes that long after the
// confirmed write was sent.
func (t Timing) Usable() time.Duration { return t.Window() - t.Grace }

// leastHeartbeatTimeout is enough for a write on a new connection, and for a store's hiccup.
const leastHeartbeatTimeout = 500 * time.Millisecond

// HeartbeatTimeout returns how long one write that shows life may take. It is shorter than the
// default of RequestTimeout, so that an outage of the store costs less of the lease: a heartbeat
// that hangs when the store answers again delays the next one. A RequestTimeout other than
// the default bounds heartbeats too.
func (t Timing) HeartbeatTimeout() time.Duration {
	if t.RequestTimeout != t.Lease/10 {
		return t.RequestTimeout
	}
	return min(t.RequestTimeout, max((t.Lease/15).Truncate(time.Millisecond), leastHeartbeatTimeout))
}

// Reservation returns how long a lock is reserved for the owner or label that it is
// handed over to: long enough for two polls and two writes. It is a whole number of
// milliseconds, because stores keep milliseconds.
func (t Timing) Reservation() time.Duration {
	d := 2 * (min(t.Refresh, t.Lease/5) + t.RequestTimeout)
	return max(d.Truncate(time.Millisecond), time.Millisecond)
}

// Wait returns how long a contender must have seen the same beat in rec
// before the holder's lease has certainly expired. A holder that writes no beats
// keeps no margin for drift. So the contender keeps both, at 9 % or more: the holder's
// clock may be slewed even if its own is not. A holder whose record
// gives a smaller bound ρ' than this process's ρ acts for L·(1−ρ')/(1+ρ') by its clock.
// The contender waits for the longest time that this can take on clocks wrong by ρ,
// which is more than L. It never waits for less than L, nor for less than t.Waits.
func (t Timing) Wait(rec driver.Record) time.Duration {
	lease := min(max(rec.Lease, t.Waits), forever)
	kept, drift := rec.Drift, t.Drift
	switch {
	case rec.Beat == "":
		kept, drift = 0, max(drift, DefaultDrift)
	case !(kept > 0 && kept < drift): // absent, invalid, or sufficient
		return lease
	}
	return time.Duration(float64(lease) * (1 - kept) / (1 + kept) * (1 + drift) / (1 - drift))
}

// MinPollInterval returns the shortest time between two reads without a hint.
func (t Timing) MinPollInterval() time.Duration { return min(t.Refresh, t.Lease/20) }

// forever replaces every longer lease that a record may show, so that instants far in
// the future do not wrap around into the past.
const forever = 30 * MaxLease

// Env has the inputs of the machines that are not deterministic.
type Env struct {
	// Fresh returns a string whose first 13 letters are globally unique for ever.
	Fresh func() string
	// Random returns a number in [0, 1).
	Random func() float64
	// Lease reads the clock by which leases count, if that is not the contenders' clock. A
	// lease counts from the reading when its write is made, before that is sent. If Lease
	// is nil, one clock serves both.
	Lease func() time.Duration
	// Session returns the view of a session by its id; all machines get the same View. If
	// Session is nil, locks under sessions are never taken over.
	Session func(id string) *View
	// Recall returns the instant after the reply that first showed a record's sign of life,
	// never an earlier one, if a dropped view has noted it. Recall may then forget it: the
	// calling view keeps it. Recall may be nil.
	Recall func(rec driver.Record) (time.Duration, bool)
	// LifeSince returns the instant after the reply that first named a life of the engine, and false if
	// no reply has: see [Lives]. It may be nil where the engine loses nothing.
	LifeSince func(life string) (time.Duration, bool)
	// Differs is called for a holder with another drift bound than this process's, at
	// least once for each of its terms that a view notes, but not for one with
	// DefaultDrift if this process's is lower. It may be nil.
	Differs func(rec driver.Record)
	// Follow is how many locks follow their session in one step: 64 if zero.
	Follow int
}

// lease returns the instant on the clock by which leases count; now is the instant
// on the machine's clock.
func (e Env) lease(now time.Duration) time.Duration {
	if e.Lease == nil {
		return now
	}
	return e.Lease()
}

// part returns a random string for a part of a beat: half as long as what Fresh
// returns.
func (e Env) part() string {
	s := e.Fresh()
	return s[:min(len(s), partLen)]
}

// partLen is the length of each part of a beat. 13 letters of base 32 are 65 bits.
const partLen = 13

// beatOf returns a new beat of the lease with that ID: see [Grant]. Every beat has the form
// ID-n. Each acquire makes its own ID, so that a beat proves whose lease a record shows; n is new
// in every beat.
func (e Env) beatOf(id string) string { return id + "-" + e.part() }

// between returns a random duration in [lo, hi).
func (e Env) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(e.Random()*float64(hi-lo))
}

// retry returns how long to wait after the nth failure in a row, counted from 0.
// A throttled call is repeated later than a call with another failure: at first after
// an eighth of the heartbeat period. left is the time that remains; the less it is, the
// shorter the pauses.
func (t Timing) retry(e Env, n int, err error, left time.Duration) time.Duration {
	d := t.backoff(e, n)
	if !errors.Is(err, driver.ErrThrottled) {
		return d
	}
	most := min(t.Heartbeat/8<<min(n, 10), t.Lease/10, left/4)
	return max(d, e.between(most/2, most))
}

// retryBeat is retry for what a holder writes. A heartbeat that hangs, and the pause after it, take at most
// two of its timeouts.
func (t Timing) retryBeat(e Env, n int, err error, left time.Duration) time.Duration {
	d := t.retry(e, n, err, left)
	if errors.Is(err, driver.ErrThrottled) {
		return d
	}
	return min(d, t.HeartbeatTimeout())
}

// backoff returns how long to wait after the nth failure in a row, counted
// from 0: about a thousandth of the lease at first, a tenth at most.
func (t Timing) backoff(e Env, n int) time.Duration {
	d := t.Lease / 1000
	for ; n > 0 && d < t.Lease/10; n-- {
		d *= 2
	}
	d = min(d, t.Lease/10)
	return e.between(d/2, d)
}

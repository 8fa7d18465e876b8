// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

// slewedMachine has a raw clock, and others that a time service slews: they show the time of a
// bubble.
type slewedMachine struct {
	began time.Time
	rate  float64 // of the other clocks, as a share of the raw clock's
}

func (m *slewedMachine) Now() clock.Instant {
	d := time.Since(m.began)
	return clock.Instant{Wall: d, Mono: d}
}

func (m *slewedMachine) Read() clock.Reading {
	now := m.Now()
	return clock.Reading{Instant: now, Boot: now.Mono, HasBoot: true}
}

func (m *slewedMachine) Raw() (time.Duration, bool) { return m.raw(), true }

func (m *slewedMachine) raw() time.Duration {
	return time.Duration(float64(time.Since(m.began)) / m.rate)
}

// clock returns the clock of a client on the machine.
func (m *slewedMachine) clock() *clock.Raw {
	raw, _ := clock.From(m, clock.Options{}).Raw()
	return raw
}

// A holder that is cut off acts until its deadline by the raw clock, and no longer, however fast
// or slow its machine's other clocks run; and its waiter begins a lease by that clock later.
func TestLeaseByTheRawClock(t *testing.T) {
	for _, rate := range []float64{0.4, 0.917, 1, 1.083, 1.6} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lease = 15 * time.Second
				m := &slewedMachine{began: time.Now(), rate: rate}
				cut := faultstore.New(memstore.New(), nil)
				open := func() *tenure.Client {
					return testutil.Must(tenure.New(cut.Driver(), &tenure.Options{LeaseDuration: lease, Clock: m.clock()}))(t)
				}
				holder, waiter := open(), open()
				defer cut.Close()
				defer holder.Close(t.Context())
				defer waiter.Close(t.Context())
				held := testutil.Must(holder.Acquire(t.Context(), "x", nil))(t)
				next := testutil.Go(func() error {
					_, err := waiter.Acquire(t.Context(), "x", nil)
					return err
				})
				time.Sleep(100 * time.Millisecond)
				heal := cut.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Fault: faultstore.BlackHole()})
				deadline := m.raw() + held.Remaining()
				for m.raw() < deadline-time.Millisecond {
					testutil.Want(t, held.Check(), nil)
					time.Sleep(time.Millisecond / 2)
				}
				time.Sleep(2 * time.Millisecond)
				testutil.Want(t, held.Check(), tenure.ErrExpired)
				// Check has told the timer.
				synctest.Wait()
				testutil.Want(t, context.Cause(held.Context()), tenure.ErrExpired)
				testutil.Pending(t, "the waiter's acquire", next)
				testutil.Want(t, <-next, nil)
				heal()
				// The sleep before a poll is by the slewed clock.
				if took, poll := m.raw(), time.Duration(2/min(rate, 1)*float64(time.Second)); took < lease || took > lease+poll {
					t.Errorf("taken over %v after the grant, want %v and a poll", took, lease)
				}
			})
		})
	}
}

// sharedStore says whether other lock clients use it.
type sharedStore struct {
	*memstore.Store
	shared bool
}

func (s sharedStore) SharesLocks() bool { return s.shared }

// The default of MaxClockDrift is low only where all clocks that count are exact: this client's is
// raw, and no program counts by another without saying so in a record.
func TestClockDriftByTheClock(t *testing.T) {
	raw := (&slewedMachine{began: time.Now(), rate: 1}).clock()
	own := 0.09
	if _, ok := clock.Machine(clock.Options{}); ok {
		own = 0.01
	}
	for name, tt := range map[string]struct {
		store   driver.Store
		options tenure.Options
		want    float64
	}{
		"the machine's clock":         {memstore.New(), tenure.Options{}, own},
		"a raw clock":                 {memstore.New(), tenure.Options{Clock: raw}, 0.01},
		"a clock that is given":       {memstore.New(), tenure.Options{Clock: tenure.MonotonicClock()}, 0.09},
		"a raw clock that is wrapped": {memstore.New(), tenure.Options{Clock: twoClocks{}}, 0.09},
		"a store that is not shared":  {sharedStore{memstore.New(), false}, tenure.Options{Clock: raw}, 0.01},
		"a store that is shared":      {sharedStore{memstore.New(), true}, tenure.Options{Clock: raw}, 0.09},
		"a bound, and a shared store": {sharedStore{memstore.New(), true}, tenure.Options{Clock: raw, MaxClockDrift: 0.05}, 0.05},
		"a bound that is set":         {memstore.New(), tenure.Options{MaxClockDrift: 0.001}, 0.001},
	} {
		c := testutil.Must(tenure.New(tt.store, &tt.options))(t)
		if got := c.Options().MaxClockDrift; got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		testutil.Want(t, c.Close(t.Context()), nil)
	}
}

// bucketLike is a store whose writes may take long.
type bucketLike struct{ driver.Store }

func (bucketLike) SlowWrites() {}

// A heartbeat that hangs is repeated after a fifteenth of the lease, any other call after a
// tenth; in a bucket, and with a RequestTimeout, all calls are alike.
func TestHeartbeatsTimeOutSooner(t *testing.T) {
	for name, tt := range map[string]struct {
		slow            bool
		timeout         time.Duration
		claims, renewed time.Duration
	}{
		"by default": {false, 0, 1500 * time.Millisecond, time.Second},
		"a bucket":   {true, 0, 1500 * time.Millisecond, 1500 * time.Millisecond},
		"a timeout":  {false, 800 * time.Millisecond, 800 * time.Millisecond, 800 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faults := faultstore.New(memstore.New(), nil)
				defer faults.Close()
				store := faults.Driver()
				if tt.slow {
					store = bucketLike{store}
				}
				c := testutil.Must(tenure.New(store, &tenure.Options{RequestTimeout: tt.timeout, Clock: tenure.MonotonicClock()}))(t)
				defer c.Close(t.Context())
				hangs := func(op faultstore.Op) func() {
					return faults.Inject(faultstore.Rule{Ops: []faultstore.Op{op}, Count: 2, Fault: faultstore.BlackHole()})
				}
				defer hangs(faultstore.OpClaim)()
				testutil.Must(c.Acquire(t.Context(), "x", nil))(t)
				defer hangs(faultstore.OpHeartbeat)()
				time.Sleep(8 * time.Second)
				for op, want := range map[faultstore.Op]time.Duration{faultstore.OpClaim: tt.claims, faultstore.OpHeartbeat: tt.renewed} {
					var begun []time.Time
					for _, call := range faults.Log() {
						if call.Op == op {
							begun = append(begun, call.Begin)
						}
					}
					if took := begun[1].Sub(begun[0]); took < want || took > want+100*time.Millisecond {
						t.Errorf("%s: repeated after %v, want %v", op, took, want)
					}
				}
			})
		})
	}
}

// The sums that README, Options and the guides give for a lease of 15 s.
func TestUsablePartOfALease(t *testing.T) {
	for drift, want := range map[float64]struct{ window, usable, outage time.Duration }{
		0.01: {14703 * time.Millisecond, 12828 * time.Millisecond, 7828 * time.Millisecond},
		0.09: {12523 * time.Millisecond, 10648 * time.Millisecond, 5648 * time.Millisecond},
	} {
		timing := protocol.Timing{Drift: drift}.WithDefaults()
		got := timing.Usable() - timing.Heartbeat - 2*timing.HeartbeatTimeout()
		for what, is := range map[string][2]time.Duration{
			"window": {timing.Window(), want.window}, "usable": {timing.Usable(), want.usable}, "outage": {got, want.outage},
		} {
			if is[0].Round(time.Millisecond) != is[1] {
				t.Errorf("drift %v: %s %v, want %v", drift, what, is[0], is[1])
			}
		}
	}
}

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
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/clock"
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
				if took := m.raw(); took < lease || took > lease+2*time.Second {
					t.Errorf("taken over %v after the grant, want %v and a poll", took, lease)
				}
			})
		})
	}
}

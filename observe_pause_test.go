// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// readings counts how often a clock is read.
type readings struct {
	tenure.Clock
	n      atomic.Int64
	enough func() // called at the thousandth
}

func (c *readings) Contender() time.Duration {
	if c.n.Add(1) == 1000 {
		c.enough()
	}
	return c.Clock.Contender()
}

// An observer that cannot know yet whether the session of a lock is alive
// waits for the look at it, and does not ask itself again and again meanwhile.
func TestObserverAwaitsTheLookAtASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.machine("a")
		s, err := a.OpenSession(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), requestTimeout)
		defer stop()
		clock := &readings{Clock: tenure.MonotonicClock(), enough: stop}
		b := w.machine("b", func(o *tenure.Options) { o.Clock = clock })
		b.faults.Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Key == driver.SessionPrefix+s.ID() },
			Fault: faultstore.Slow(0, requestTimeout/2),
		})
		tried := started(func() error {
			time.Sleep(requestTimeout / 4)
			_, err := b.TryAcquire(ctx, "x", nil) // it sees the lock, and the observer is told
			return err
		})
		for leader, err := range b.Election("x", nil).Observe(ctx) {
			if err == nil && leader.Token != l.Token() {
				t.Errorf("observed %+v", leader)
			}
		}
		if n := clock.n.Load(); n > 100 {
			t.Errorf("the clock was read %d times", n)
		}
		want(t, <-tried, tenure.ErrHeld)
		want(t, l.Release(t.Context()), nil)
		want(t, s.Close(t.Context()), nil)
	})
}

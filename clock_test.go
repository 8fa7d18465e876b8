// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
)

// twoClocks are as after a step of the wall clock, which counts for a holder alone.
type twoClocks struct{}

func (twoClocks) Holder() time.Duration    { return time.Hour }
func (twoClocks) Contender() time.Duration { return time.Minute }

// Elapsed is what has passed for certain.
func TestElapsedIsTheContendersClock(t *testing.T) {
	c := mustNew(t, memstore.New(), &tenure.Options{Clock: twoClocks{}})
	if got := c.Elapsed(); got != time.Minute {
		t.Errorf("%v", got)
	}
	_ = c.Close(t.Context())
	if got := c.Elapsed(); got != time.Minute {
		t.Errorf("after Close: %v", got)
	}
}

func drift(rho float64) func(*tenure.Options) {
	return func(o *tenure.Options) { o.MaxClockDrift = rho }
}

// A holder that counts with another bound of the drift of clocks is told of, once,
// by whatever waits, observes or asks, whether its lock is its own lease or a session's.
func TestDriftsThatDiffer(t *testing.T) {
	forBoth(t, func(t *testing.T, w *world, session bool) {
		a, same := w.machine("a", drift(0.01)), w.machine("same", drift(0.01))
		locks := names(3)
		s := a.mustOpen(nil)
		for _, name := range locks {
			if session {
				a.mustTake(s, name)
			} else {
				a.mustAcquire(name, nil)
			}
		}
		waiter, observer, asker := w.machine("waiter"), w.machine("observer", drift(0.001)), w.machine("asker")
		ctx, stop := context.WithTimeout(t.Context(), 2*lease)
		defer stop()
		go observer.observes(ctx, locks[0])
		for _, name := range locks {
			_, err := asker.Status(ctx, name)
			want(t, err, nil)
			for _, m := range []*machine{waiter, same} {
				go func() {
					if _, err := m.Acquire(ctx, name, nil); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}()
			}
		}
		<-ctx.Done()
		synctest.Wait()
		for m, bound := range map[*machine]string{waiter: "0.09", observer: "0.001", asker: "0.09"} {
			got := m.events.of(tenure.EventDrift)
			if len(got) != 1 || got[0].Owner != "a" || !strings.Contains(got[0].Err.Error(), "0.01,") || !strings.HasSuffix(got[0].Err.Error(), bound) {
				t.Errorf("%s was told %+v", m.Options().Owner, got)
			}
		}
		for _, m := range []*machine{a, same} {
			if got := m.events.of(tenure.EventDrift); len(got) > 0 {
				t.Errorf("%s was told %+v", m.Options().Owner, got)
			}
		}
	})
}

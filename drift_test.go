// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tenurelock/tenure"
)

func drift(rho float64) func(*tenure.Options) {
	return func(o *tenure.Options) { o.MaxClockDrift = rho }
}

// A holder that counts with another bound of the drift of clocks is told of, once,
// by whatever waits, observes or asks, whether its lock is its own lease or a session's.
func TestDriftsThatDiffer(t *testing.T) {
	forBoth(t, func(t *testing.T, session bool) {
		w := newWorld(t)
		a, same := w.machine("a", drift(0.01)), w.machine("same", drift(0.01))
		locks := names(3)
		s, err := a.OpenSession(t.Context(), nil)
		want(t, err, nil)
		for _, name := range locks {
			if session {
				_, err = s.Acquire(t.Context(), name, nil)
				want(t, err, nil)
			} else {
				a.mustAcquire(name, nil)
			}
		}
		waiter, observer, asker := w.machine("waiter"), w.machine("observer", drift(0.001)), w.machine("asker")
		ctx, stop := context.WithTimeout(t.Context(), 2*lease)
		defer stop()
		go func() {
			for _, err := range observer.Election(locks[0], nil).Observe(ctx) {
				_ = err // it goes on
			}
		}()
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

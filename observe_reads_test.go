// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
)

// swept returns an observer that has seen a session alive whose process died, and
// whose record another client has swept since. Its lock stands in the store as if
// it were held.
func swept(t *testing.T) (w *world, c *machine) {
	t.Helper()
	w = newWorld(t)
	a, b, c := w.machine("a"), w.machine("b"), w.machine("c")
	s := a.mustOpen(nil)
	if _, err := s.Acquire(t.Context(), "x", nil); err != nil {
		t.Fatal(err)
	}
	if st, err := c.Status(t.Context(), "x"); err != nil || !st.Held {
		t.Fatalf("before: %+v, %v", st, err)
	}
	a.crash()
	if n, err := b.Sweep(t.Context()); n != 1 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	c.faults.ResetLog()
	return w, c
}

// A session that an observer knows was swept by somebody else. It learns so by a
// strong read, and does not ask without pause.
func TestObserverOfASweptSession(t *testing.T) {
	for name, observe := range map[string]func(*testing.T, context.Context, *machine){
		"observe": func(_ *testing.T, ctx context.Context, c *machine) {
			for _, err := range c.Election("x", nil).Observe(ctx) {
				_ = err // it goes on
			}
		},
		"step down": func(t *testing.T, ctx context.Context, c *machine) {
			want(t, c.StepDown(ctx, "x", "test"), tenure.ErrNotHeld)
			<-ctx.Done()
		},
		"transfer": func(t *testing.T, ctx context.Context, c *machine) {
			want(t, c.Transfer(ctx, "x", "d", "test"), tenure.ErrNotHeld)
			<-ctx.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c := swept(t)
				// A request takes a while; without one virtual time would stand still.
				c.fault(faultstore.OpGet, 0, 0, faultstore.Slow(0, time.Millisecond))
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
				defer stop()
				observe(t, ctx, c)
				if n := c.faults.Count(faultstore.OpGet); n > 30 {
					t.Errorf("%d reads in 10 s", n)
				}
			})
		})
	}
}

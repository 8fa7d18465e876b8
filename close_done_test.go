// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// service does what the README's service does, with a session and three locks whose
// work ends with their contexts; closing comes when ctx is done.
func service(t *testing.T, m *machine, ctx context.Context, drain time.Duration) *tenure.Session {
	t.Helper()
	s, err := m.OpenSession(ctx, nil)
	want(t, err, nil)
	for _, name := range []string{"x", "y", "z"} {
		l, err := s.Acquire(ctx, name, nil)
		want(t, err, nil)
		go func() {
			<-l.Context().Done()
			time.Sleep(drain)
			_ = l.Release(ctx)
		}()
	}
	return s
}

// A deferred Close under the context of a signal frees all locks before it returns.
func TestCloseUnderAContextThatIsDone(t *testing.T) {
	for name, closes := range map[string]func(context.Context, *machine, *tenure.Session) error{
		"client":  func(ctx context.Context, m *machine, _ *tenure.Session) error { return m.Close(ctx) },
		"session": func(ctx context.Context, _ *machine, s *tenure.Session) error { return s.Close(ctx) },
		"both": func(ctx context.Context, m *machine, s *tenure.Session) error {
			return errors.Join(s.Close(ctx), m.Close(ctx))
		},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			ctx, stop := context.WithCancelCause(t.Context())
			s := service(t, a, ctx, 2*time.Second)
			time.Sleep(lease)
			next := started(func() error { _, err := b.Acquire(t.Context(), "y", nil); return err })
			time.Sleep(lease)
			pending(t, "the next holder", next)
			stop(errors.New("terminated"))
			want(t, within(t, 2*time.Second, 2*time.Second, func() error { return closes(ctx, a, s) }), nil)
			want(t, within(t, 0, refresh+refresh/4, func() error { return <-next }), nil)
		})
	}
}

// Work that does not return holds such a Close up for StopTimeout, and no longer.
func TestCloseUnderADoneContextEnds(t *testing.T) {
	for name, closes := range map[string]func(context.Context, *machine, *tenure.Session) error{
		"client":  func(ctx context.Context, m *machine, _ *tenure.Session) error { return m.Close(ctx) },
		"session": func(ctx context.Context, _ *machine, s *tenure.Session) error { return s.Close(ctx) },
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.machine("a", func(o *tenure.Options) { o.StopTimeout = 5 * time.Second })
			ctx, stop := context.WithCancel(t.Context())
			s := service(t, a, ctx, time.Hour)
			stop()
			if err := within(t, 5*time.Second, 5*time.Second, func() error { return closes(ctx, a, s) }); err == nil {
				t.Error("no error, and locks are left behind")
			}
			time.Sleep(2 * time.Hour) // for the work
		})
	}
}

// An OnEvent that never returns holds it up for the stop timeout and a lease, even under a
// context that never ends.
func TestCloseUnderAnEventThatNeverReturns(t *testing.T) {
	inWorldRun(t, "client", func(t *testing.T, w *world) {
		never := make(chan struct{})
		a := w.machine("a", func(o *tenure.Options) {
			o.StopTimeout = 5 * time.Second
			o.OnEvent = func(tenure.Event) { <-never }
		})
		l, err := a.Acquire(t.Context(), "x", nil)
		want(t, err, nil)
		want(t, l.Release(t.Context()), nil)
		closes := func() error { return a.Close(context.WithoutCancel(t.Context())) }
		if err := within(t, 5*time.Second+lease, 5*time.Second+lease, closes); err == nil || !strings.Contains(err.Error(), "OnEvent") {
			t.Errorf("%v", err)
		}
		close(never)
	})
}

// A store that answers nothing, and takes no notice of contexts, holds it up for the
// stop timeout and a lease.
func TestCloseUnderADoneContextWithoutAnswer(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{"hangs": faultstore.BlackHole(), "deaf": {Effect: faultstore.RequestLost, Hang: true, Deaf: time.Hour}} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.machine("a")
			ctx, stop := context.WithCancel(t.Context())
			_ = service(t, a, ctx, 0)
			alone := a.mustAcquire("alone", nil)
			context.AfterFunc(alone.Context(), func() { _ = alone.Release(ctx) })
			defer a.faults.Inject(faultstore.Rule{Fault: f})()
			stop()
			if err := within(t, lease, stopTimeout+lease, func() error { return a.Close(ctx) }); err == nil {
				t.Error("no error, and locks are left behind")
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// Where nothing is left to release there is nothing to complain of.
func TestCloseWithNothingLeft(t *testing.T) {
	for name, before := range map[string]func(context.Context, *machine){
		"nothing":  func(context.Context, *machine) {},
		"released": func(ctx context.Context, m *machine) { m.mustRelease(m.mustAcquire("x", nil)) },
		"waiting": func(ctx context.Context, m *machine) {
			go func() { _, _ = m.Acquire(ctx, "held", nil) }()
			time.Sleep(lease)
		},
		"observing": func(ctx context.Context, m *machine) {
			go func() {
				for _, err := range m.Election("held", nil).Observe(ctx) {
					_ = err
				}
			}()
			time.Sleep(lease)
		},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			w.machine("b").mustAcquire("held", nil)
			a := w.machine("a")
			ctx, stop := context.WithCancel(t.Context())
			before(ctx, a)
			stop()
			want(t, within(t, 0, 0, func() error { return a.Close(ctx) }), nil)
		})
	}
}

// A context of a lease, which the closing itself ends, ends no waiting.
func TestCloseUnderAContextOfALease(t *testing.T) {
	for name, under := range map[string]bool{"client": false, "session": true} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.machine("a")
			s := service(t, a, t.Context(), 2*time.Second)
			l, err := s.Acquire(t.Context(), "own", nil)
			want(t, err, nil)
			released := started(func() error { <-l.Context().Done(); return l.Release(t.Context()) })
			want(t, within(t, 2*time.Second, 2*time.Second, func() error {
				if under {
					return s.Close(l.Context())
				}
				return a.Close(l.Context())
			}), nil)
			want(t, <-released, nil)
			if rec := w.record(driver.SessionKey(s.ID())); rec.State != driver.Closed {
				t.Errorf("the session is %s", rec.State)
			}
		})
	}
}

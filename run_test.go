// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

var errWork = errors.New("work failed")

func TestRunHoldsTheLockAroundTheWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		for _, result := range []error{nil, errWork} {
			err := m.Run(ctx, "x", nil, func(ctx context.Context, l *tenure.Lease) error {
				want(t, l.Check(), nil)
				want(t, ctx.Err(), nil)
				if rec := w.record("x"); rec.State != driver.Held || rec.Token != l.Token() {
					t.Errorf("record %+v", rec)
				}
				if ctx.Value(key{}) != "value" {
					t.Error("the context of the work lacks the caller's values")
				}
				if from, ok := tenure.FromContext(ctx); !ok || from != l {
					t.Error("FromContext does not return the lease")
				}
				return result
			})
			if err != result { //nolint:errorlint // what work returns, as it is
				t.Errorf("got %v, want %v", err, result)
			}
			if rec := w.record("x"); rec.State != driver.Released {
				t.Errorf("record %+v", rec)
			}
		}
	})
}

func TestRunWithoutTheLockRunsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.machine("a").mustAcquire("x", nil)
		b := w.machine("b")
		ctx, stop := context.WithTimeout(t.Context(), lease)
		defer stop()
		err := within(t, lease, lease, func() error {
			return b.Run(ctx, "x", nil, func(context.Context, *tenure.Lease) error { panic("work without a lease") })
		})
		want(t, err, context.DeadlineExceeded)
	})
}

func TestTryRunRunsOrSkips(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		unwanted := func(context.Context, *tenure.Lease) error { panic("work without a lease") }
		err := a.TryRun(t.Context(), "x", nil, func(ctx context.Context, l *tenure.Lease) error {
			want(t, l.Check(), nil)
			err := within(t, 0, lease/5, func() error { return b.TryRun(ctx, "x", nil, unwanted) })
			want(t, err, tenure.ErrHeld)
			var held *tenure.HeldError
			if !errors.As(err, &held) || held.Token != l.Token() {
				t.Errorf("error %v does not say who holds the lock", err)
			}
			return errWork
		})
		if err != errWork { //nolint:errorlint // what work returns, as it is
			t.Errorf("got %v, want %v", err, errWork)
		}
		if rec := w.record("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestRunSaysThatTheLeaseWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		err := m.Run(t.Context(), "x", nil, func(ctx context.Context, l *tenure.Lease) error {
			m.crash()
			<-ctx.Done()
			want(t, context.Cause(ctx), tenure.ErrExpired)
			want(t, l.Check(), tenure.ErrLost)
			m.faults.SetBlackHole(false)
			return errWork
		})
		want(t, err, tenure.ErrLost)
		want(t, err, tenure.ErrExpired)
		want(t, err, errWork)
		if got := err.Error(); got != "run \"x\": lease expired\nwork failed" {
			t.Errorf("error %q", got)
		}
	})
}

// The release after a loss spares others the rest of the lease.
func TestRunReleasesAfterALossAsWell(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		_ = m.Run(t.Context(), "x", nil, func(ctx context.Context, _ *tenure.Lease) error {
			m.crash()
			<-ctx.Done()
			m.faults.SetBlackHole(false)
			return nil
		})
		if rec := w.record("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
	})
}

// When the caller's context ends, the work is told so, and covered until it
// has returned.
func TestRunCoversWorkThatDrains(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		ctx, stop := context.WithCancelCause(t.Context())
		const drain = stopTimeout - time.Second
		var done time.Time
		run := started(func() error {
			return a.Run(ctx, "x", nil, func(ctx context.Context, l *tenure.Lease) error {
				<-ctx.Done()
				want(t, context.Cause(ctx), errWork)
				<-l.Context().Done()
				want(t, context.Cause(l.Context()), errWork)
				for range drain / time.Second {
					time.Sleep(time.Second)
					want(t, l.Check(), nil)
				}
				want(t, l.SetData(context.WithoutCancel(ctx), []byte("last checkpoint")), nil)
				done = time.Now()
				return nil
			})
		})
		next := make(chan time.Time)
		time.Sleep(time.Second)
		go func() {
			l := b.mustAcquire("x", nil)
			next <- time.Now()
			if p, _ := l.Previous(); p.End != "released" || string(p.Data) != "last checkpoint" {
				t.Errorf("previous %+v", p)
			}
		}()
		time.Sleep(3 * lease)
		stop(errWork)
		if at := <-next; at.Before(done) || at.Sub(done) > 0 {
			t.Errorf("the next holder began %v after the work ended", at.Sub(done))
		}
		want(t, <-run, nil)
		if got := a.events.kinds(); got != "acquired stopping released" {
			t.Errorf("events: %s", got)
		}
	})
}

// Work that outlasts StopTimeout: heartbeats end, Check fails, nothing is
// released before the work returns, and nobody begins beside it until the
// record has run out.
func TestWorkThatOutlastsStopTimeout(t *testing.T) {
	for name, drain := range map[string]time.Duration{"a little": stopTimeout + 3*time.Second, "long": 4 * lease} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			ctx, stop := context.WithCancel(t.Context())
			var told, done time.Time
			run := started(func() error {
				return a.Run(ctx, "x", nil, func(ctx context.Context, l *tenure.Lease) error {
					<-ctx.Done()
					told = time.Now()
					time.Sleep(stopTimeout - 1)
					want(t, l.Check(), nil)
					time.Sleep(2 * time.Nanosecond)
					want(t, l.Check(), tenure.ErrStopTimeout)
					want(t, l.Renew(context.WithoutCancel(ctx)), tenure.ErrStopTimeout)
					time.Sleep(drain - time.Since(told))
					want(t, l.Check(), tenure.ErrStopTimeout)
					done = time.Now()
					return nil
				})
			})
			time.Sleep(time.Second)
			next := make(chan time.Time)
			go func() { b.mustAcquire("x", nil); next <- time.Now() }()
			time.Sleep(lease)
			stop()
			want(t, <-run, tenure.ErrStopTimeout)
			at := <-next
			if least := stopTimeout + lease - heartbeat; at.Before(done) && at.Sub(told) < least {
				t.Errorf("the next holder began %v after the stop, want %v at least", at.Sub(told), least)
			}
			if got := a.events.kinds(); got[:len("acquired stopping stop_timeout")] != "acquired stopping stop_timeout" {
				t.Errorf("events: %s", got)
			}
		})
	}
}

func TestPanicOfWorkReleasesAndGoesOn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		func() {
			defer func() {
				if r := recover(); r != "boom" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = m.Run(t.Context(), "x", nil, func(context.Context, *tenure.Lease) error { panic("boom") })
		}()
		if rec := w.record("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
		want(t, m.Close(t.Context()), nil)
	})
}

func TestGoexitOfWorkReleases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = m.Election("x", nil).Run(t.Context(), func(context.Context, *tenure.Lease) error {
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		if rec := w.record("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
		want(t, m.Close(t.Context()), nil)
	})
}

// Work that releases its lease itself has done what Run would have done.
func TestWorkMayRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		want(t, m.Run(t.Context(), "x", nil, func(ctx context.Context, l *tenure.Lease) error {
			want(t, l.Release(ctx), nil)
			<-ctx.Done()
			want(t, context.Cause(ctx), tenure.ErrReleased)
			want(t, l.Check(), tenure.ErrReleased)
			return nil
		}), nil)
	})
}

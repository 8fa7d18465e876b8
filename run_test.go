// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
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
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
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
		// A release after a loss spares others the rest of the lease.
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

// runners are the ways in which work is run under a lock.
var runners = map[string]func(context.Context, *machine, func(context.Context, *tenure.Lease) error) error{
	"run": func(ctx context.Context, m *machine, work func(context.Context, *tenure.Lease) error) error {
		return m.Run(ctx, "x", nil, work)
	},
	"election": func(ctx context.Context, m *machine, work func(context.Context, *tenure.Lease) error) error {
		return m.Election("x", nil).Run(ctx, work)
	},
}

// TestWorkThatFailsByItselfEndsAsFailed: and none that was asked to stop does.
func TestWorkThatFailsByItselfEndsAsFailed(t *testing.T) {
	for name, tt := range map[string]struct {
		work   func(ctx context.Context, stop func(), a, b *machine, l *tenure.Lease) error
		end    driver.EndReason
		reason string
	}{
		"returns an error": {
			func(context.Context, func(), *machine, *machine, *tenure.Lease) error { return errWork },
			driver.EndFailed, "work failed",
		},
		"panics": {
			func(context.Context, func(), *machine, *machine, *tenure.Lease) error { panic("the work itself") },
			driver.EndFailed, "the work panicked, or ended its goroutine",
		},
		"ends its goroutine": {
			func(context.Context, func(), *machine, *machine, *tenure.Lease) error { runtime.Goexit(); return nil },
			driver.EndFailed, "the work panicked, or ended its goroutine",
		},
		"returns nil": {
			func(context.Context, func(), *machine, *machine, *tenure.Lease) error { return nil },
			driver.EndReleased, "",
		},
		"was told to stop by its context": {
			func(_ context.Context, stop func(), _, _ *machine, _ *tenure.Lease) error { stop(); return errWork },
			driver.EndReleased, "",
		},
		"panics when it was told to stop": {
			func(_ context.Context, stop func(), _, _ *machine, _ *tenure.Lease) error {
				stop()
				panic("the work itself")
			},
			driver.EndReleased, "",
		},
		"its client is closed": {
			func(ctx context.Context, _ func(), a, _ *machine, _ *tenure.Lease) error {
				go func() { _ = a.Close(context.WithoutCancel(ctx)) }()
				<-ctx.Done()
				return errWork
			},
			driver.EndReleased, "",
		},
		"asked to step down": {
			func(ctx context.Context, _ func(), _, b *machine, _ *tenure.Lease) error {
				go func() { _ = b.StepDown(context.WithoutCancel(ctx), "x", "maintenance") }()
				<-ctx.Done()
				return errWork
			},
			driver.EndSteppedDown, "maintenance",
		},
		"lost": {
			func(ctx context.Context, _ func(), a, _ *machine, _ *tenure.Lease) error {
				a.crash()
				<-ctx.Done()
				a.faults.SetBlackHole(false)
				return errWork
			},
			driver.EndExpired, "",
		},
	} {
		for by, run := range runners {
			inWorldRun(t, by+", "+name, func(t *testing.T, w *world) {
				var log bytes.Buffer
				r := &recorder{}
				a, b := w.machine("a", func(o *tenure.Options) {
					o.OnEvent, o.Logger = r.add, slog.New(slog.NewTextHandler(&log, nil))
				}), w.machine("b")
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					_ = run(ctx, a, func(ctx context.Context, l *tenure.Lease) error {
						if l.Token() > 1 {
							return nil // campaigned again
						}
						time.Sleep(time.Second)
						return tt.work(ctx, stop, a, b, l)
					})
				}()
				<-ended
				rec := w.record("x")
				end, asked := rec.End, rec.Asked
				if rec.Token > 1 {
					end, asked = rec.Prev.End, rec.Prev.Asked
				}
				reason := ""
				if asked != nil {
					reason = asked.Reason
				}
				if end != tt.end || reason != tt.reason {
					t.Errorf("it ended as %q for %q, want %q for %q", end, reason, tt.end, tt.reason)
				}
				_ = a.Close(t.Context()) // the work may have closed it; its events are told then
				released := r.of(tenure.EventReleased)
				if len(released) == 0 {
					return // its lease ran out before
				}
				e, failed := released[0], tt.end == driver.EndFailed
				if told := e.End == tenure.EndFailed && e.Err != nil && e.Err.Error() == tt.reason; told != failed || !failed && e.Err != nil {
					t.Errorf("the event tells of end %q: %v", e.End, e.Err)
				}
				warned := strings.Contains(log.String(), `level=WARN msg="tenure: released"`) && strings.Contains(log.String(), "end=failed error=")
				if warned != failed {
					t.Errorf("logged:\n%s", log.String())
				}
			})
		}
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

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
			t.Run(by+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
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
			})
		}
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

var errSick = errors.New("queue too long")

// TestHealthEndsTheTenureAsFailed: after so many failures in a row, and not before.
func TestHealthEndsTheTenureAsFailed(t *testing.T) {
	for name, tt := range map[string]struct {
		checks  []error // one by one; the last one again and again
		hangs   bool
		want    time.Duration // 0: never
		returns error
	}{
		"healthy":                {checks: []error{nil}},
		"sick from the start":    {checks: []error{errSick}, want: 3 * time.Second},
		"sick, well, sick":       {checks: []error{errSick, errSick, nil, errSick}, want: 6 * time.Second},
		"sick now and then":      {checks: []error{errSick, nil, errSick, errSick, nil}},
		"hangs":                  {hangs: true, want: 4 * time.Second}, // each until the next is due
		"and its work fails too": {checks: []error{errSick}, want: 3 * time.Second, returns: errWork},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m := w.machine("a")
			n := 0
			o := &tenure.ElectionOptions{
				HealthPeriod: time.Second,
				Health: func(ctx context.Context, l *tenure.Lease) error {
					want(t, l.Check(), nil)
					if tt.hangs {
						<-ctx.Done()
						return ctx.Err()
					}
					n++
					return tt.checks[min(n, len(tt.checks))-1]
				},
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			begun := time.Now()
			err := m.Election("x", o).Run(ctx, func(ctx context.Context, l *tenure.Lease) error {
				<-ctx.Done()
				if tt.want > 0 {
					want(t, context.Cause(ctx), tenure.ErrUnhealthy)
					want(t, l.Check(), nil)
				}
				if tt.returns != nil {
					return tt.returns
				}
				return ctx.Err()
			})
			rec := w.record("x")
			if tt.want == 0 {
				want(t, err, nil)
				if rec.End != driver.EndReleased || time.Since(begun) != time.Minute {
					t.Errorf("it ended as %q after %v", rec.End, time.Since(begun))
				}
				return
			}
			want(t, err, tenure.ErrUnhealthy)
			if tt.returns != nil {
				want(t, err, tt.returns)
			} else if errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if rec.End != driver.EndFailed || rec.Asked == nil || time.Since(begun) != tt.want {
				t.Errorf("it ended as %q after %v, want %v", rec.End, time.Since(begun), tt.want)
			}
		})
	}
}

// TestHealthThatIgnoresItsContext: it is never asked twice at once, and does not end the
// tenure; Run waits for it.
func TestHealthThatIgnoresItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		asked := 0
		o := &tenure.ElectionOptions{HealthPeriod: time.Second, HealthFailures: 1, Health: func(context.Context, *tenure.Lease) error {
			asked++
			time.Sleep(40 * time.Second)
			return nil
		}}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		begun := time.Now()
		want(t, m.Election("x", o).Run(ctx, func(ctx context.Context, l *tenure.Lease) error {
			<-ctx.Done()
			want(t, l.Check(), nil)
			return ctx.Err()
		}), nil)
		if took := time.Since(begun); asked != 1 || took != 41*time.Second {
			t.Errorf("asked %d times; Run returned after %v", asked, took)
		}
	})
}

// TestHealthThatPanics: a panic of the check is not recovered. It ends the program, which
// is a program of its own here.
func TestHealthThatPanics(t *testing.T) {
	if os.Getenv("TENURE_TEST_HEALTH_PANICS") != "" {
		client, err := tenure.New(memstore.New(), &tenure.Options{Owner: "a"})
		if err != nil {
			t.Fatal(err)
		}
		o := &tenure.ElectionOptions{HealthPeriod: time.Millisecond, Health: func(context.Context, *tenure.Lease) error { panic("the check itself") }}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_ = client.Election("x", o).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
			<-ctx.Done()
			return nil
		})
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), program, "-test.run=^TestHealthThatPanics$")
	child.Env = append(os.Environ(), "TENURE_TEST_HEALTH_PANICS=1")
	out, err := child.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "panic: the check itself") {
		t.Errorf("the program ended with %v:\n%s", err, out)
	}
}

func TestHealthIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		for _, o := range []tenure.ElectionOptions{{HealthPeriod: -1}, {HealthFailures: -1}} {
			if err := m.Election("x", &o).Run(t.Context(), noWork); err == nil {
				t.Errorf("%+v is taken", o)
			}
		}
	})
}

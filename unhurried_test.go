// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
)

// unhurriedly returns a lock that b waits for without a hurry, and how often b reads it in a
// heartbeat period once looks rest.
func unhurriedly(t *testing.T, w *world, o *tenure.AcquireOptions) (a, b *machine, l *tenure.Lease, got <-chan error, reads float64) {
	t.Helper()
	rests := func(o *tenure.Options) { o.RefreshPeriod = refresh / 2 }
	a, b = w.machine("a"), w.machine("b", rests)
	l = a.mustAcquire("x", nil)
	got = started(func() error { _, err := b.Acquire(t.Context(), "x", o); return err })
	time.Sleep(2 * lease)
	b.faults.ResetLog()
	time.Sleep(10 * heartbeat)
	return a, b, l, got, float64(b.faults.Count(faultstore.OpGet)) / 10
}

// An acquire that is in no hurry reads twice in a heartbeat period, and finds a release
// within one, and a crash as soon as others.
func TestUnhurried(t *testing.T) {
	unhurried := &tenure.AcquireOptions{Unhurried: true}
	for i := range 8 {
		synctestUnwatched(t, func(t *testing.T, w *world) {
			_, _, l, got, reads := unhurriedly(t, w, unhurried)
			if reads > 2.3 {
				t.Errorf("%.1f reads in a heartbeat period", reads)
			}
			time.Sleep(time.Duration(i) * heartbeat / 8)
			a := time.Now()
			want(t, l.Release(t.Context()), nil)
			want(t, <-got, nil)
			if took := time.Since(a); took > heartbeat {
				t.Errorf("%d: a release is found after %v", i, took)
			}
		})
		synctestUnwatched(t, func(t *testing.T, w *world) {
			a, _, _, got, _ := unhurriedly(t, w, unhurried)
			time.Sleep(time.Duration(i) * heartbeat / 8)
			a.crash()
			crashed := time.Now()
			want(t, <-got, nil)
			if took := time.Since(crashed); took > lease+refresh/2+refresh/8 || took < lease-heartbeat-refresh {
				t.Errorf("%d: a crash is found after %v", i, took)
			}
		})
	}
}

// Polls go on as usual while another acquire of the process waits without the option, or
// something observes the lock; and when it has just changed hands.
func TestUnhurriedBesideOthers(t *testing.T) {
	pace := func(t *testing.T, w *world, begin func(ctx context.Context, b *machine)) float64 {
		a, b := w.machine("a"), w.machine("b", func(o *tenure.Options) { o.RefreshPeriod = refresh / 2 })
		a.mustAcquire("x", nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		got := started(func() error { _, err := b.Acquire(ctx, "x", &tenure.AcquireOptions{Unhurried: true}); return err })
		time.Sleep(2 * lease)
		begin(ctx, b)
		time.Sleep(heartbeat)
		b.faults.ResetLog()
		time.Sleep(10 * heartbeat)
		n := float64(b.faults.Count(faultstore.OpGet)) / 10
		stop()
		want(t, <-got, context.Canceled)
		return n
	}
	for other, begin := range map[string]func(context.Context, *machine){
		"another acquire": func(ctx context.Context, b *machine) {
			started(func() error { _, err := b.Acquire(ctx, "x", nil); return err })
		},
		"an observer": func(ctx context.Context, b *machine) {
			go func() {
				for _, err := range b.Election("x", nil).Observe(ctx) {
					if err != nil {
						return
					}
				}
			}()
		},
	} {
		synctestUnwatched(t, func(t *testing.T, w *world) {
			if reads := pace(t, w, begin); reads < 5 {
				t.Errorf("%.1f reads in a heartbeat period beside %s", reads, other)
			}
		})
	}
	for i := range 8 {
		synctestUnwatched(t, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b", func(o *tenure.Options) { o.RefreshPeriod = refresh / 2 })
			l := a.mustAcquire("x", nil)
			got := started(func() error {
				_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{Unhurried: true})
				return err
			})
			time.Sleep(4*refresh + time.Duration(i)*refresh/16)
			released := time.Now()
			a.mustRelease(l)
			want(t, <-got, nil)
			if took := time.Since(released); took > refresh {
				t.Errorf("the release of a lock that has just been taken is found after %v", took)
			}
		})
	}
}

// synctestUnwatched runs a test in a bubble, on a store without a watch.
func synctestUnwatched(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	inBelled(t, func(t *testing.T, w *world, _ *wires) { test(t, w) })
}

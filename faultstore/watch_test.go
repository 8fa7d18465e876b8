// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// deafmute hides the Watch of the store in it.
type deafmute struct{ driver.Store }

func TestHintFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.Close()
		rec := f.rec
		hints := make(chan time.Time, 10)
		stop, err := f.Driver().(driver.Watcher).Watch(t.Context(), "k", func() { hints <- time.Now() })
		if err != nil {
			t.Fatal(err)
		}
		touch := func(version string) {
			t.Helper()
			next := release(rec, version)
			if rec, err = f.inner.Swap(t.Context(), rec, next); err != nil {
				t.Fatal(err)
			}
		}
		f.Inject(
			faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHint}, Count: 1, Fault: faultstore.LoseRequest()},
			faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHint}, Count: 1, Fault: faultstore.Slow(time.Minute, 0)},
		)
		touch("lost")
		touch("slow")
		begin := time.Now()
		touch("plain")
		if got := (<-hints).Sub(begin); got != 0 {
			t.Errorf("plain hint after %v", got)
		}
		if got := (<-hints).Sub(begin); got != time.Minute {
			t.Errorf("slow hint after %v", got)
		}
		f.SetBlackHole(true)
		touch("swallowed")
		f.SetBlackHole(false)
		stop()
		touch("stopped")
		if len(hints) != 0 {
			t.Errorf("%d hints too many", len(hints))
		}
	})
}

// The setting up of a watch hangs, and takes its time, as any call does.
func TestWatchFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.Close()
		watch := func() (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begun := time.Now()
			_, err := f.Driver().(driver.Watcher).Watch(ctx, "k", func() {})
			return time.Since(begun), err
		}
		for name, tc := range map[string]struct {
			fault faultstore.Fault
			err   error
			takes time.Duration
		}{
			"none":     {faultstore.Fault{}, nil, 0},
			"error":    {faultstore.LoseRequest(), faultstore.ErrInjected, 0},
			"slow":     {faultstore.Slow(time.Second, 0), nil, time.Second},
			"too slow": {faultstore.Slow(time.Minute, 0), context.DeadlineExceeded, 10 * time.Second},
			"hangs":    {faultstore.BlackHole(), context.DeadlineExceeded, 10 * time.Second},
		} {
			remove := f.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpWatch}, Fault: tc.fault})
			if took, err := watch(); !errors.Is(err, tc.err) || took != tc.takes {
				t.Errorf("%s: %v after %v, want %v after %v", name, err, took, tc.err, tc.takes)
			}
			remove()
		}
	})
}

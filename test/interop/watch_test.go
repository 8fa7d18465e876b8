// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/bed/wait"
)

// change is a state of a lock's item, and when it came about, on the clock of
// [proc.Monotonic]: after the last read that did not show it was sent, and
// before the first that did was answered.
type change struct {
	owner, version string
	released       bool
	after, before  int64
}

// watch reads an item all the time, past both clients, and keeps how it changed.
type watch struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	changes []change
}

func (s *scene) watch(t *testing.T, name string) *watch {
	t.Helper()
	const period = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &watch{cancel: cancel, ended: make(chan struct{})}
	db := connect(t, s.URL)
	go func() {
		defer close(w.ended)
		last := proc.Monotonic()
		for ; ctx.Err() == nil; wait.Rest(ctx, period) {
			sent := proc.Monotonic()
			out, err := db.GetItem(ctx, s.Get(name))
			if err != nil {
				continue // or it has ended; a gap only widens the bounds
			}
			r := item(out.Item)
			w.saw(change{
				owner: r.Text("ownerName"), version: r.Text("recordVersionNumber"), released: r.Text("isReleased") != "",
				after: last, before: proc.Monotonic(),
			})
			last = sent
		}
	}()
	t.Cleanup(w.stop)
	return w
}

func (w *watch) stop() {
	w.cancel()
	<-w.ended
}

func (w *watch) saw(c change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.changes); n > 0 {
		was := w.changes[n-1]
		if c.owner == was.owner && c.version == was.version && c.released == was.released {
			return
		}
	}
	w.changes = append(w.changes, c)
}

// until waits for the first change that makes an owner of another one, and
// returns the last sign of life before it, and it.
func (w *watch) until(t *testing.T, owner string) (last, taken change) {
	t.Helper()
	came := wait.Within(t.Context(), patience, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := 1; i < len(w.changes); i++ {
			if last, taken = w.changes[i-1], w.changes[i]; taken.owner == owner && last.owner != owner {
				return true
			}
		}
		return false
	})
	if !came {
		t.Fatalf("%q does not come within %v: %+v", owner, patience, w.changes)
	}
	return last, taken
}

// beats waits until the holder has shown life n times more.
func (w *watch) beats(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.changes)
	}
	want := count() + n
	if !wait.Within(t.Context(), patience, func() bool { return count() >= want }) {
		t.Fatalf("%d heartbeats do not come within %v", n, patience)
	}
}

// cut returns the change that ended the tenure of an owner, and the one that
// began that of another, whatever lies between.
func (w *watch) cut(t *testing.T, from, to string) (ended, taken change) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 1; i < len(w.changes); i++ {
		switch c := w.changes[i]; {
		case ended.owner == "" && c.owner != from && w.changes[i-1].owner == from:
			ended = c
		case c.owner == to && ended.owner != "":
			return ended, c
		}
	}
	t.Fatalf("%q is not followed by another one and then by %q: %+v", from, to, w.changes)
	return ended, taken
}

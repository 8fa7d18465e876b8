// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func testWatch(t *testing.T, e *env) {
	_, watches := e.clients[0].Store.(driver.Watcher)
	if watches != e.h.Watches {
		t.Fatalf("the harness declares Watches %t, but whether the store is a driver.Watcher is %t", e.h.Watches, watches)
	}
	if !watches {
		t.Skip("the store does not watch")
	}
	a, b := e.clients[0], e.clients[1]

	// A waiter may take it now, or knows that it is reserved for another. The holder need
	// not wait for its next heartbeat. All waiters for a lock under a session may go on.
	wakes := map[string][]step{
		"Release":  {{op: opSwap, next: (*env).released}},
		"Delete":   {{op: opDelete, next: (*env).beat}},
		"Reserved": {{op: opSwap, next: handOver}},
		"Request":  {{op: opSwap, next: (*env).confirmed}, {op: opSwap, next: (*env).confirmed}},
	}
	if e.h.Raises {
		wakes["Raise"] = []step{{op: opRaise, next: raisedOf}}
	}
	if !e.h.NoSessions {
		wakes["Closed"] = []step{{op: opSwap, next: (*env).confirmed}, {op: opSwap, next: (*env).closed}}
	}
	for name, steps := range wakes {
		t.Run(name, func(t *testing.T) {
			e.byEach(t, func(t *testing.T, by *client) {
				next := e.held(e.key())
				if name == "Closed" {
					next = e.opened()
				}
				m := &model{key: next.Key, rec: e.claim(t, a, next), found: true}
				for _, step := range steps {
					w := e.watch(t, a, m.key)
					e.send(t, m, by, name, write{op: step.op, prev: m.rec, next: step.next(e, m.rec)})
					w.want(t, e)
				}
			})
		})
	}

	// A watch may be set before its key exists, and outlives the hints that it gave.
	t.Run("AgainAndAgain", func(t *testing.T) {
		key := e.key()
		w := e.watch(t, a, key)
		for range 10 {
			rec := e.claim(t, b, e.held(key))
			w.drain()
			e.swap(t, b, rec, e.released(rec))
			w.want(t, e)
		}
	})

	t.Run("TwoWatches", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		watches := []*watch{e.watch(t, a, rec.Key), e.watch(t, a, rec.Key), e.watch(t, b, rec.Key)}
		e.swap(t, e.clients[2], rec, e.released(rec))
		for _, w := range watches {
			w.want(t, e)
		}
	})

	t.Run("Keys", func(t *testing.T) {
		var watches []*watch
		for _, key := range []string{"w/a b", "w'\"\\%", "w\n", "w-世界", "w*", "W", "w"} {
			watches = append(watches, e.watch(t, a, key))
		}
		for _, w := range slices.Backward(watches) {
			rec := e.claim(t, b, e.held(w.key))
			e.swap(t, b, rec, e.released(rec))
			w.want(t, e)
		}
	})

	t.Run("Stop", e.watchStop)
	t.Run("AtOnce", e.watchAtOnce)
	t.Run("Context", e.watchContext)
}

// watchAtOnce releases when Watch has returned: the release overtakes the watch's set-up,
// unless Watch waited for it. Many stores set up notifications with the first watch of a
// handle, so a third of the handles have done nothing else so far.
func (e *env) watchAtOnce(t *testing.T) {
	for i := range 60 {
		rec := e.claim(t, e.clients[1], e.held(e.key()))
		next := e.released(rec)
		c, cold := e.clients[0], i%3 == 0
		if cold {
			c = e.open(t)
		}
		w := e.watch(t, c, rec.Key)
		e.swap(t, e.clients[1], rec, next)
		w.want(t, e)
		w.stop()
		if cold {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// watchContext checks that a context is for the setting up of a watch, and for no more.
func (e *env) watchContext(t *testing.T) {
	t.Run("DoneBefore", func(t *testing.T) {
		rec := e.claim(t, e.clients[1], e.held(e.key()))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w, err := e.tryWatch(ctx, t, e.clients[0], rec.Key)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: error %v does not match %v", err, ctx.Err())
		}
		other := e.watch(t, e.clients[0], rec.Key)
		e.swap(t, e.clients[1], rec, e.released(rec))
		other.want(t, e)
		if n := w.count.Load(); n > 0 {
			t.Errorf("%d hints of a watch that failed", n)
		}
	})

	t.Run("Outlived", func(t *testing.T) {
		rec := e.claim(t, e.clients[1], e.held(e.key()))
		ctx, cancel := context.WithCancel(t.Context())
		w := e.watchUnder(ctx, t, e.clients[0], rec.Key)
		cancel()
		for range 10 { // what its end leads to may take a moment
			rec = e.swap(t, e.clients[1], rec, e.released(rec))
			w.want(t, e)
			<-time.After(10 * time.Millisecond)
			w.drain()
			rec = e.claim(t, e.clients[1], e.held(rec.Key))
		}
	})

	// At each place where the store checks it: the watch is set, or it failed.
	t.Run("DoneDuring", func(t *testing.T) {
		for i := range looks {
			rec := e.claim(t, e.clients[1], e.held(e.key()))
			inner, cancel := context.WithCancel(t.Context())
			w, err := e.tryWatch(&countdown{Context: inner, cancel: cancel, left: i}, t, e.clients[0], rec.Key)
			cancel()
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("Watch: error %v does not match %v", err, context.Canceled)
				}
				continue
			}
			e.swap(t, e.clients[1], rec, e.released(rec))
			w.want(t, e)
			w.stop()
		}
	})
}

// watchStop checks that a stopped watch falls silent, and others do not. Hints
// that were on their way may still come: so the count is taken only when a
// later hint has come to another watch.
func (e *env) watchStop(t *testing.T) {
	a, b := e.clients[0], e.clients[1]
	key := e.key()
	stopped, other := e.watch(t, a, key), e.watch(t, a, key)
	cycle := func() {
		t.Helper()
		other.drain()
		rec := e.claim(t, b, e.held(key))
		e.swap(t, b, rec, e.released(rec))
		other.want(t, e)
	}
	cycle()
	stopped.stop()
	stopped.stop() // a second stop does nothing
	cycle()
	before := stopped.count.Load()
	for range 10 {
		cycle()
	}
	if after := stopped.count.Load(); after != before {
		t.Errorf("%d hints to a watch that was stopped", after-before)
	}
}

// watch is a watch of the suite.
type watch struct {
	key   string
	stop  func()
	count atomic.Int64
	hints chan struct{}
}

func (e *env) watch(t *testing.T, c *client, key string) *watch {
	t.Helper()
	return e.watchUnder(t.Context(), t, c, key)
}

func (e *env) watchUnder(ctx context.Context, t *testing.T, c *client, key string) *watch {
	t.Helper()
	w, err := e.tryWatch(ctx, t, c, key)
	if err != nil {
		t.Fatalf("Watch(%q): %v", key, err)
	}
	return w
}

func (e *env) tryWatch(ctx context.Context, t *testing.T, c *client, key string) (*watch, error) {
	t.Helper()
	w := &watch{key: key, hints: make(chan struct{}, 1)}
	stop, err := c.Store.(driver.Watcher).Watch(ctx, key, func() {
		w.count.Add(1)
		select {
		case w.hints <- struct{}{}:
		default:
		}
	})
	if err == nil {
		w.stop = stop
		t.Cleanup(stop)
	}
	return w, err
}

func (w *watch) want(t *testing.T, e *env) {
	t.Helper()
	patience := e.h.Patience
	if e.missed.Load() {
		patience = min(patience, 2*time.Second)
	}
	select {
	case <-w.hints:
	case <-time.After(patience):
		e.missed.Store(true)
		t.Fatalf("no hint for %q within %v", w.key, patience)
	}
}

// drain drops a pending hint.
func (w *watch) drain() {
	select {
	case <-w.hints:
	default:
	}
}

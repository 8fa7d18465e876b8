// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func testWatch(t *testing.T, e *env) {
	_, watches := e.clients[0].Store.(driver.Watcher)
	if watches != e.h.Watches {
		t.Fatalf("the harness declares Watches %t, but that the store is a driver.Watcher is %t", e.h.Watches, watches)
	}
	if !watches {
		t.Skip("the store does not watch")
	}
	a, b := e.clients[0], e.clients[1]

	t.Run("Release", func(t *testing.T) {
		for name, by := range map[string]*client{"SameHandle": a, "OtherHandle": b} {
			t.Run(name, func(t *testing.T) {
				rec := e.claim(t, a, e.held(e.key()))
				w := e.watch(t, a, rec.Key)
				e.swap(t, by, rec, e.released(rec))
				w.want(t, e)
			})
		}
	})

	t.Run("Delete", func(t *testing.T) {
		for name, by := range map[string]*client{"SameHandle": a, "OtherHandle": b} {
			t.Run(name, func(t *testing.T) {
				rec := e.claim(t, a, e.held(e.key()))
				w := e.watch(t, a, rec.Key)
				if err := by.Delete(t.Context(), rec); err != nil {
					t.Fatal(err)
				}
				w.want(t, e)
			})
		}
	})

	// Whoever waits may take it now, or knows that it is not for them.
	t.Run("Reserved", func(t *testing.T) {
		for name, by := range map[string]*client{"SameHandle": a, "OtherHandle": b} {
			t.Run(name, func(t *testing.T) {
				rec := e.claim(t, a, e.held(e.key()))
				w := e.watch(t, a, rec.Key)
				e.swap(t, by, rec, e.reserved(rec, "successor"))
				w.want(t, e)
			})
		}
	})

	// The holder need not wait for its next heartbeat.
	t.Run("Request", func(t *testing.T) {
		for name, by := range map[string]*client{"SameHandle": a, "OtherHandle": b} {
			t.Run(name, func(t *testing.T) {
				rec := e.claim(t, a, e.held(e.key()))
				w := e.watch(t, a, rec.Key)
				rec = e.swap(t, by, rec, e.asked(rec))
				w.want(t, e)
				e.watchSecondRequest(t, by, rec)
			})
		}
	})

	// All who wait for a lock under it may go on.
	t.Run("Closed", func(t *testing.T) {
		if e.h.NoSessions {
			t.Skip("the harness declares no sessions")
		}
		for name, by := range map[string]*client{"SameHandle": a, "OtherHandle": b} {
			t.Run(name, func(t *testing.T) {
				rec := e.claim(t, a, e.opened())
				w := e.watch(t, a, rec.Key)
				rec = e.swap(t, by, rec, e.confirmed(rec))
				w.want(t, e)
				e.swap(t, by, rec, e.closed(rec))
				w.want(t, e)
			})
		}
	})

	t.Run("BeforeTheKeyIsThere", func(t *testing.T) {
		key := e.key()
		w := e.watch(t, a, key)
		rec := e.claim(t, b, e.held(key))
		e.swap(t, b, rec, e.released(rec))
		w.want(t, e)
	})

	// A watch outlives the hints that it gave.
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

	t.Run("TwoKeys", func(t *testing.T) {
		one, two := e.claim(t, a, e.held(e.key())), e.claim(t, a, e.held(e.key()))
		ofOne, ofTwo := e.watch(t, a, one.Key), e.watch(t, a, two.Key)
		e.swap(t, b, two, e.released(two))
		ofTwo.want(t, e)
		e.swap(t, b, one, e.released(one))
		ofOne.want(t, e)
	})

	t.Run("OddKeys", func(t *testing.T) {
		for _, key := range []string{"w/a b", "w'\"\\%", "w\n", "w-世界", "w*", "W", "w"} {
			w := e.watch(t, a, key)
			rec := e.claim(t, b, e.held(key))
			e.swap(t, b, rec, e.released(rec))
			w.want(t, e)
		}
	})

	t.Run("Stop", e.watchStop)

	// The release may overtake whatever Watch set up, unless Watch waited for
	// it.
	t.Run("ReleaseAtOnce", func(t *testing.T) {
		for range 30 {
			rec := e.claim(t, a, e.held(e.key()))
			next := e.released(rec)
			w := e.watch(t, a, rec.Key)
			e.swap(t, b, rec, next)
			w.want(t, e)
			w.stop()
		}
	})
}

// watchSecondRequest lays a request beside one that is there.
func (e *env) watchSecondRequest(t *testing.T, by *client, rec driver.Record) {
	t.Helper()
	w := e.watch(t, e.clients[0], rec.Key)
	next := e.asked(rec)
	next.Requests = append(rec.Clone().Requests, next.Requests...)
	e.swap(t, by, rec, next)
	w.want(t, e)
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
	w := &watch{key: key, hints: make(chan struct{}, 1)}
	stop, err := c.Store.(driver.Watcher).Watch(t.Context(), key, func() {
		w.count.Add(1)
		select {
		case w.hints <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatalf("Watch(%q): %v", key, err)
	}
	w.stop = stop
	t.Cleanup(stop)
	return w
}

func (w *watch) want(t *testing.T, e *env) {
	t.Helper()
	select {
	case <-w.hints:
	case <-time.After(e.h.Patience):
		t.Fatalf("no hint for %q within %v", w.key, e.h.Patience)
	}
}

// drain forgets a hint that has come.
func (w *watch) drain() {
	select {
	case <-w.hints:
	default:
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// hangFor is how long the contexts of calls last that the engine does not answer.
const hangFor = 200 * time.Millisecond

// testHang makes calls that the engine does not answer. Each returns soon after its
// context is done: the layer above has a bounded number of calls under way, and one
// that does not return keeps its place from heartbeats.
func testHang(t *testing.T, e *env) {
	if e.h.Hang == nil {
		t.Skip("the harness cannot make its engine hang")
	}
	for _, name := range []string{"Get", "EventualGet", "GetBatch", "List", "Claim", "Swap", "Delete", "Watch"} {
		t.Run(name, func(t *testing.T) { e.hangs(t, name) })
	}
	t.Run("Close", e.hangsAtClose)
}

// hung is a call that the engine does not answer.
type hung struct {
	name string
	call func(ctx context.Context) error
	next driver.Record // what it writes
}

func (e *env) hung(t *testing.T, c *client, name string) *hung {
	t.Helper()
	rec := e.claim(t, e.clients[1], e.held(e.key()))
	h := &hung{name: name, next: e.beat(rec)}
	switch name {
	case "Get", "EventualGet":
		how := map[bool]driver.Consistency{true: driver.Eventual}[name == "EventualGet"]
		h.call = func(ctx context.Context) error { _, err := c.Store.Get(ctx, rec.Key, how); return err }
	case "GetBatch":
		batch, ok := c.Store.(driver.BatchGetter)
		if !ok {
			t.Skip("the store does not read in batches")
		}
		h.call = func(ctx context.Context) error {
			_, err := batch.GetBatch(ctx, []string{rec.Key}, driver.Strong)
			return err
		}
	case "List":
		h.call = func(ctx context.Context) error { _, err := c.Store.List(ctx, rec.Key, ""); return err }
	case "Claim":
		h.next = e.held(e.key())
		h.call = func(ctx context.Context) error { _, _, err := c.Store.Claim(ctx, h.next); return err }
	case "Swap":
		h.call = func(ctx context.Context) error { _, err := c.Store.Swap(ctx, rec, h.next); return err }
	case "Delete":
		h.next = rec
		h.call = func(ctx context.Context) error { return c.Store.Delete(ctx, rec) }
	case "Watch":
		watcher, ok := c.Store.(driver.Watcher)
		if !ok {
			t.Skip("the store does not watch")
		}
		h.call = func(ctx context.Context) error {
			stop, err := watcher.Watch(ctx, rec.Key, func() {})
			if err == nil {
				t.Cleanup(stop)
			}
			return err
		}
	}
	return h
}

// hangs makes one call while the engine hangs.
func (e *env) hangs(t *testing.T, name string) {
	h := e.hung(t, e.open(t), name) // by a handle that has not been used
	resume := e.hang(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangFor)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- h.call(ctx) }()
	var err error
	select {
	case err = <-answer:
		wantHung(t, ctx, name, err)
	case <-time.After(hangFor + e.h.Patience):
		t.Errorf("%s has not returned %v after its context was done", name, e.h.Patience)
		resume()
		err = <-answer
	}
	resume()
	e.wantTrue(t, h, err)
}

// hang makes the engine hang until resume is called, or the test ends.
func (e *env) hang(t *testing.T) (resume func()) {
	t.Helper()
	resume = sync.OnceFunc(e.h.Hang(t))
	t.Cleanup(resume)
	return resume
}

// wantHung fails the test if what a call returned cannot be, from an engine that does
// not answer. A Watch may have nothing to ask it, and an eventual read a copy.
func wantHung(t *testing.T, ctx context.Context, name string, err error) {
	t.Helper()
	var conflict *driver.ConflictError
	switch {
	case err == nil && (name == "Watch" || name == "EventualGet" || name == "List"):
	case err == nil, errors.As(err, &conflict), errors.Is(err, driver.ErrNotFound):
		t.Errorf("%s returned %v, and the engine hangs", name, err)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		t.Errorf("%s: error %v does not match %v", name, err, ctx.Err())
	}
}

// wantTrue fails the test if a write said that it was not applied, and was.
func (e *env) wantTrue(t *testing.T, h *hung, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrNotApplied) {
		return
	}
	got, err := e.clients[1].Get(t.Context(), h.next.Key, driver.Strong)
	applied := err == nil && got.Version == h.next.Version
	if h.name == "Delete" {
		applied = errors.Is(err, driver.ErrNotFound)
	}
	if applied {
		t.Errorf("%s said that it was not applied, and it was", h.name)
	}
}

// hangsAtClose closes a handle with calls under way that the engine does not answer.
// Close may wait for them, and their contexts end.
func (e *env) hangsAtClose(t *testing.T) {
	c := e.open(t)
	var calls []*hung
	for _, name := range []string{"Get", "Claim", "Swap", "Delete"} {
		calls = append(calls, e.hung(t, c, name))
	}
	resume := e.hang(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangFor)
	defer cancel()
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	for i, h := range calls {
		wg.Go(func() { errs[i] = h.call(ctx) })
	}
	closed := make(chan struct{})
	var err error
	go func() {
		defer close(closed)
		err = c.Store.Close()
		wg.Wait()
	}()
	select {
	case <-closed:
	case <-time.After(hangFor + e.h.Patience):
		t.Errorf("Close, or a call under way, has not returned %v after all contexts were done", e.h.Patience)
	}
	resume()
	<-closed
	if err != nil {
		t.Errorf("Close: %v", err)
	}
	for i, h := range calls {
		var conflict *driver.ConflictError
		if !t.Failed() && (errs[i] == nil || errors.As(errs[i], &conflict)) {
			t.Errorf("%s returned %v, and the engine hangs", h.name, errs[i])
		}
		e.wantTrue(t, h, errs[i])
	}
}

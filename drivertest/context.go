// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func testContext(t *testing.T, e *env) {
	t.Run("DoneBefore", func(t *testing.T) {
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
		defer cancel()
		for _, ctx := range []context.Context{cancelled, late} {
			t.Run(ctx.Err().Error(), func(t *testing.T) { e.doneBefore(t, ctx) })
		}
	})
	t.Run("DoneDuring", e.doneDuring)
}

func (e *env) doneBefore(t *testing.T, ctx context.Context) {
	store := e.clients[0].Store
	rec := e.claim(t, e.clients[0], e.held(e.key()))
	want := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ctx.Err()) {
			t.Errorf("%s: error %v does not match %v", what, err, ctx.Err())
		}
	}
	_, err := store.Get(ctx, rec.Key, driver.Strong)
	want("Get", err)
	_, err = store.List(ctx, rec.Key, "")
	want("List", err)

	claim := e.held(e.key())
	_, _, err = store.Claim(ctx, claim)
	want("Claim", err)
	if errors.Is(err, driver.ErrNotApplied) {
		e.wantAbsent(t, claim.Key)
	}
	_, err = store.Swap(ctx, rec, e.beat(rec))
	want("Swap", err)
	if errors.Is(err, driver.ErrNotApplied) {
		e.wantStored(t, rec)
	}
	err = store.Delete(ctx, rec)
	want("Delete", err)
	if errors.Is(err, driver.ErrNotApplied) {
		if _, err := e.clients[1].Get(t.Context(), rec.Key, driver.Strong); err != nil {
			t.Errorf("Delete said that it was not applied; now Get says %v", err)
		}
	}
}

// doneDuring ends contexts while heartbeats are under way, and checks that
// what the store says of the outcome is true.
func (e *env) doneDuring(t *testing.T) {
	store := e.clients[0].Store
	random := rand.New(rand.NewPCG(3, 4))
	rec := e.claim(t, e.clients[0], e.held(e.key()))
	unknown := map[string]driver.Record{} // attempts that may still arrive
	refused := map[string]bool{}          // versions that must never be seen
	longest := 100 * time.Microsecond     // that a Swap took so far, within reason
	for i := range max(e.h.Ops/10, 40) {
		next := e.beat(rec)
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		stop := func() bool { return true }
		if i%2 == 0 {
			// Somewhere in the middle, in an engine that takes its time ...
			stop = time.AfterFunc(time.Duration(random.Int64N(int64(longest))), cancel).Stop
		} else {
			// ... and at each place where the store looks at its context.
			ctx = &countdown{Context: ctx, cancel: cancel, left: i / 2 % looks}
		}
		now, err := store.Swap(ctx, rec, next)
		stop()
		cancel()
		took := time.Since(begin)
		if took > e.h.Patience {
			t.Fatalf("a Swap whose context was done returned after %v", took)
		}
		longest = max(longest, min(took, time.Second))
		var conflict *driver.ConflictError
		switch {
		case err == nil:
			e.wantEqual(t, "record after Swap", now, next)
			rec = now
			continue
		case errors.As(err, &conflict):
			// Only an attempt of its own can have been in the way.
		case errors.Is(err, driver.ErrNotApplied):
			refused[next.Version] = true
		default:
			unknown[next.Version] = next
		}
		seen := e.get(t, e.clients[1], rec.Key)
		if refused[seen.Version] {
			t.Fatalf("a Swap said that it was not applied (%v), and %s is stored", err, brief(seen))
		}
		if attempt, ok := unknown[seen.Version]; !ok && seen.Version != rec.Version {
			t.Fatalf("after %v, %s is stored, which is neither the last record nor an attempt", err, brief(seen))
		} else if ok {
			e.wantEqual(t, "record of an attempt that was applied", seen, attempt)
		}
		rec = seen
	}
	t.Logf("%d outcomes unknown, %d not applied", len(unknown), len(refused))
}

// looks is how many looks at its context doneDuring lets a store have at most.
const looks = 20

// countdown is a context that is done once it was looked at a number of times.
type countdown struct {
	context.Context
	cancel context.CancelFunc

	mu   sync.Mutex
	left int
}

func (c *countdown) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left < 0 {
		c.cancel()
	}
}

func (c *countdown) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *countdown) Err() error {
	c.look()
	return c.Context.Err()
}

func testClose(t *testing.T, e *env) {
	t.Run("CallsAfter", e.useAfterClose)
	t.Run("CallsMeanwhile", e.closeMeanwhile)
}

// useAfterClose makes calls by a handle that is closed.
func (e *env) useAfterClose(t *testing.T) {
	ctx := t.Context()
	rec := e.claim(t, e.clients[0], e.held(e.key()))
	store := e.open(t).Store
	e.wantEqual(t, "record through a further handle", e.get(t, store, rec.Key), rec)
	if err := store.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}

	want := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s after Close: error %v, want ErrClosed", what, err)
		}
	}
	_, err := store.Get(ctx, rec.Key, driver.Strong)
	want("Get", err)
	claim := e.held(e.key())
	_, _, err = store.Claim(ctx, claim)
	want("Claim", err)
	_, err = store.Swap(ctx, rec, e.beat(rec))
	want("Swap", err)
	want("Delete", store.Delete(ctx, rec))
	_, err = store.List(ctx, "", "")
	want("List", err)
	if w, ok := store.(driver.Watcher); ok {
		_, err := w.Watch(ctx, rec.Key, func() {})
		want("Watch", err)
	}

	// Neither the records nor other handles were harmed.
	e.wantAbsent(t, claim.Key)
	e.wantStored(t, rec)
	next := e.beat(rec)
	e.swap(t, e.clients[0], rec, next)
	reopened := e.open(t)
	e.wantEqual(t, "record through a handle opened after Close", e.get(t, reopened, rec.Key), next)
}

// closeMeanwhile closes handles that are at work. Each call returns, and what it says of
// its outcome is true.
func (e *env) closeMeanwhile(t *testing.T) {
	const workers, rounds = 4, 10
	for round := range rounds {
		c := e.open(t)
		var wg sync.WaitGroup
		for range workers {
			rec := e.claim(t, c, e.held(e.key()))
			wg.Go(func() { e.beatUntilClosed(t, c.Store, rec) })
		}
		<-time.After(time.Duration(round) * 500 * time.Microsecond)
		done := make(chan error, 1)
		go func() {
			err := c.Close()
			wg.Wait()
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Close: %v", err)
			}
		case <-time.After(e.h.Patience):
			t.Fatalf("Close, or a call under way, has not returned after %v", e.h.Patience)
		}
	}
}

// beatUntilClosed renews until the handle is closed, and reads by another one what came
// of the last try.
func (e *env) beatUntilClosed(t *testing.T, c driver.Store, rec driver.Record) {
	for {
		next := e.beat(rec)
		now, err := c.Swap(t.Context(), rec, next)
		var conflict *driver.ConflictError
		switch {
		case err == nil:
			rec = now
			continue
		case errors.As(err, &conflict):
			t.Errorf("Swap at Close: %v", err)
			return
		case isBusy(err):
			continue
		}
		is, readErr := e.clients[1].Get(t.Context(), rec.Key, driver.Strong)
		switch {
		case readErr != nil:
			t.Errorf("Get: %v", readErr)
		case is.Version == next.Version && errors.Is(err, driver.ErrNotApplied):
			t.Errorf("Swap said that it was not applied (%v), and it was", err)
		case is.Version != next.Version && is.Version != rec.Version:
			t.Errorf("%s is stored, which is neither the last record nor an attempt", brief(is))
		}
		return
	}
}

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

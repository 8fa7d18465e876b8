// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// method is a call of one method of a store.
type method struct {
	name  string
	call  func(ctx context.Context) error
	wrote func() bool // asked through another handle; nil if it writes nothing
}

// methods are calls of a store's methods, each on a record of its own.
func (e *env) methods(t *testing.T, store driver.Store) []method {
	t.Helper()
	by := e.clients[1]
	get := func(key string) (driver.Record, error) { return by.Get(t.Context(), key, driver.Strong) }
	stores := func(next driver.Record) func() bool {
		return func() bool {
			rec, err := get(next.Key)
			return err == nil && rec.Version == next.Version
		}
	}
	rec, claim, gone := e.claim(t, by, e.held(e.key())), e.held(e.key()), e.claim(t, by, e.held(e.key()))
	next := e.beat(rec)
	all := []method{
		{name: "Get", call: func(ctx context.Context) error {
			_, err := store.Get(ctx, gone.Key, driver.Strong)
			return err
		}},
		{name: "EventualGet", call: func(ctx context.Context) error {
			_, err := store.Get(ctx, gone.Key, driver.Eventual)
			return err
		}},
		{name: "List", call: func(ctx context.Context) error {
			_, err := store.List(ctx, rec.Key, "")
			return err
		}},
		{name: "Claim", wrote: stores(claim), call: func(ctx context.Context) error {
			_, _, err := store.Claim(ctx, claim)
			return err
		}},
		{name: "Swap", wrote: stores(next), call: func(ctx context.Context) error {
			_, err := store.Swap(ctx, rec, next)
			return err
		}},
		{
			name: "Delete",
			call: func(ctx context.Context) error { return store.Delete(ctx, gone) },
			wrote: func() bool {
				_, err := get(gone.Key)
				return errors.Is(err, driver.ErrNotFound)
			},
		},
	}
	if batch, ok := store.(driver.BatchGetter); ok {
		all = append(all, method{name: "GetBatch", call: func(ctx context.Context) error {
			_, err := batch.GetBatch(ctx, []string{gone.Key}, driver.Strong)
			return err
		}})
	}
	if raiser, ok := store.(driver.Raiser); ok {
		rec := e.claim(t, by, e.held(e.key()))
		next := e.raised(rec, 1000)
		all = append(all, method{name: "Raise", wrote: stores(next), call: func(ctx context.Context) error {
			_, err := raiser.Raise(ctx, rec, next)
			return err
		}})
	}
	if watcher, ok := store.(driver.Watcher); ok {
		all = append(all, method{name: "Watch", call: func(ctx context.Context) error {
			stop, err := watcher.Watch(ctx, rec.Key, func() {})
			if err == nil {
				t.Cleanup(stop)
			}
			return err
		}})
	}
	return all
}

// wantTrue fails the test if a write said that it was not applied, and was.
func (m method) wantTrue(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, driver.ErrNotApplied) && m.wrote != nil && m.wrote() {
		t.Errorf("%s said that it was not applied, but it was", m.name)
	}
}

func testContext(t *testing.T, e *env) {
	t.Run("DoneBefore", func(t *testing.T) {
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
		defer cancel()
		for _, ctx := range []context.Context{cancelled, late} {
			t.Run(ctx.Err().Error(), func(t *testing.T) {
				for _, m := range e.methods(t, e.clients[0].Store) {
					if m.name == "EventualGet" {
						continue // which a copy may answer
					}
					err := m.call(ctx)
					if !errors.Is(err, ctx.Err()) {
						t.Errorf("%s: error %v does not match %v", m.name, err, ctx.Err())
					}
					m.wantTrue(t, err)
				}
			})
		}
	})
	t.Run("DoneDuring", e.doneDuring)
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
			// ... and at each place where the store checks its context.
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
			// It can conflict only with an attempt of its own.
		case errors.Is(err, driver.ErrNotApplied):
			refused[next.Version] = true
		default:
			unknown[next.Version] = next
		}
		seen := e.get(t, e.clients[1], rec.Key)
		if refused[seen.Version] {
			t.Fatalf("a Swap said that it was not applied (%v), but %s is stored", err, brief(seen))
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

// looks is how many checks of its context doneDuring allows a store at most.
const looks = 20

// countdown is a context that is done after a number of checks.
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

// useAfterClose makes calls through a closed handle.
func (e *env) useAfterClose(t *testing.T) {
	rec := e.claim(t, e.clients[0], e.held(e.key()))
	store := e.open(t).Store
	e.wantEqual(t, "record through a further handle", e.get(t, store, rec.Key), rec)
	for range 2 {
		if err := store.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	for _, m := range e.methods(t, store) {
		if err := m.call(t.Context()); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s after Close: error %v, want ErrClosed", m.name, err)
		}
		if m.wrote != nil && m.wrote() {
			t.Errorf("%s after Close was applied", m.name)
		}
	}
	// Other handles were not harmed.
	next := e.beat(rec)
	e.swap(t, e.clients[0], rec, next)
	e.wantEqual(t, "record through a handle opened after Close", e.get(t, e.open(t), rec.Key), next)
}

// closeMeanwhile closes handles that are at work. Each call returns, and reports its
// outcome correctly.
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

// beatUntilClosed renews until the handle is closed, and reads the result of the last
// try through another one.
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
			t.Errorf("Swap said that it was not applied (%v), but it was", err)
		case is.Version != next.Version && is.Version != rec.Version:
			t.Errorf("%s is stored, which is neither the last record nor an attempt", brief(is))
		}
		return
	}
}

// hangFor is how long the contexts of calls last that the engine does not answer.
const hangFor = 200 * time.Millisecond

// testHang makes calls that the engine does not answer. Each returns soon after its
// context is done: the layer above has a bounded number of calls under way, and a
// call that does not return takes the place of heartbeats.
func testHang(t *testing.T, e *env) {
	if e.h.Hang == nil {
		t.Skip("the harness cannot make its engine hang")
	}
	for _, name := range []string{"Get", "EventualGet", "GetBatch", "List", "Claim", "Swap", "Delete", "Watch"} {
		t.Run(name, func(t *testing.T) { e.hangs(t, name) })
	}
	t.Run("Close", e.hangsAtClose)
}

// hangs makes one call while the engine hangs, by a handle that has not been used.
func (e *env) hangs(t *testing.T, name string) {
	methods := e.methods(t, e.open(t).Store)
	i := slices.IndexFunc(methods, func(m method) bool { return m.name == name })
	if i < 0 {
		t.Skip("the store does not have it")
	}
	m := methods[i]
	resume := e.hang(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangFor)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- m.call(ctx) }()
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
	m.wantTrue(t, err)
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
		t.Errorf("%s returned %v, but the engine hangs", name, err)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		t.Errorf("%s: error %v does not match %v", name, err, ctx.Err())
	}
}

// hangsAtClose closes a handle with calls under way that the engine does not answer.
// Close may wait for them, and their contexts end.
func (e *env) hangsAtClose(t *testing.T) {
	store := e.open(t).Store
	calls := slices.DeleteFunc(e.methods(t, store), func(m method) bool {
		return !slices.Contains([]string{"Get", "Claim", "Swap", "Delete"}, m.name)
	})
	resume := e.hang(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangFor)
	defer cancel()
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	for i, m := range calls {
		wg.Go(func() { errs[i] = m.call(ctx) })
	}
	closed := make(chan struct{})
	var err error
	go func() {
		defer close(closed)
		err = store.Close()
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
	for i, m := range calls {
		if !t.Failed() {
			wantHung(t, t.Context(), m.name, errs[i])
		}
		m.wantTrue(t, errs[i])
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

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

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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/memstore"
)

// countedStore counts reads. It has no watch.
type countedStore struct {
	driver.Store
	reads atomic.Int64
}

func (s *countedStore) Get(ctx context.Context, key string, how driver.Consistency) (driver.Record, error) {
	s.reads.Add(1)
	return s.Store.Get(ctx, key, how)
}

// queued returns a lease, and a channel for the lease of the next acquire, which waits
// for it.
func queued(t *testing.T, c *Client) (held *LeaseHolder, next <-chan *LeaseHolder) {
	t.Helper()
	o := AcquireOptions{Want: protocol.Want{Key: "job"}, Timing: &timing}
	held, err := c.Acquire(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan *LeaseHolder, 1)
	go func() {
		l, err := c.Acquire(t.Context(), o)
		if err != nil {
			t.Error(err)
		}
		waits <- l
	}()
	synctest.Wait()
	return held, waits
}

// The reply to a release shows the waiters of the process that the lock is free: none of
// them reads the record.
func TestNextInAProcessReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countedStore{Store: memstore.New()}
		c, _ := aheadClient(store)
		held, next := queued(t, c)
		begun := time.Now()
		if err := held.Release(t.Context(), nil, nil); err != nil {
			t.Error(err)
		}
		l := <-next
		if took, reads := time.Since(begun), store.reads.Load(); took > 0 || reads > 0 {
			t.Errorf("taken after %v and %d reads", took, reads)
		}
		l.Free()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The reply to the release of a former holder of the process may come late, after the lock
// has had another holder, and hide that holder's release. The waiters then read the record.
func TestLateReplyToAReleaseHidesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countedStore{Store: memstore.New()}
		c, _ := aheadClient(store)
		held, next := queued(t, c)
		k := held.c.trackers["job"]
		k.hinted.Store(true) // as if the hint were on its way
		held.Free()
		synctest.Wait()
		k.freed.Store(&remembered{driver.Record{Key: "job", Version: "former", Lease: timing.Lease, State: driver.Released}, 0})
		k.hinted.Store(false)
		k.hint()
		begun := time.Now()
		l := <-next
		if took := time.Since(begun); took > 0 {
			t.Errorf("taken after %v", took)
		}
		l.Free()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A client drops the trackers of the locks without a waiter, but for the last ones.
func TestManyTrackersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := aheadClient(memstore.New())
		first, next := queued(t, c)
		var all []*LeaseHolder
		for i := range maxIdle + 100 {
			l, err := c.Acquire(t.Context(), AcquireOptions{Want: protocol.Want{Key: fmt.Sprint("job-", i)}, Timing: &timing})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		synctest.Wait() // the last of them may still use its tracker
		c.mu.Lock()
		const one = 1 // which the next acquire would drop
		if n := c.idle.Len(); n != maxIdle+one || len(c.trackers) != n+1 || c.trackers["job"] == nil {
			t.Errorf("%d are remembered, %d of them idle", len(c.trackers), n)
		}
		c.mu.Unlock()
		first.Free()
		all = append(all, <-next)
		synctest.Wait()
		c.mu.Lock()
		if c.idle.Len() != len(c.trackers) {
			t.Errorf("%d are remembered, %d of them idle", len(c.trackers), c.idle.Len())
		}
		c.mu.Unlock()
		for _, l := range all {
			l.Free()
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestListsKeepOneMarkALock: a client that lists again and again remembers of each lock when its
// present sign of life was shown first, and not of each heartbeat before.
func TestListsKeepOneMarkALock(t *testing.T) {
	timing := protocol.Timing{}.WithDefaults()
	var now time.Duration
	r := newLivenessCache(func() time.Duration { return now }, timing.Lease)
	env := protocol.Env{Random: func() float64 { return 0 }}
	rec := driver.Record{Key: "x", Token: 1, Owner: "a", Lease: timing.Lease, State: driver.Held}
	for i := range 100 {
		now += time.Second
		rec.Version = fmt.Sprint("v", i/10)
		rec.Beat = rec.Version
		s := r.glance(timing, env, now, now, rec)
		if want := time.Duration(i/10*10+1) * time.Second; s.Since() != want {
			t.Fatalf("at %v: shown since %v, want %v", now, s.Since(), want)
		}
	}
	if len(r.marks) != 1 {
		t.Errorf("%d marks of one lock", len(r.marks))
	}
	rec.State = driver.Released
	if r.glance(timing, env, now, now, rec); len(r.marks) != 0 || len(r.listed) != 0 {
		t.Errorf("%d marks of a lock that is free, %d", len(r.marks), len(r.listed))
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// far is a store of which each call takes a while. It counts the calls under
// way.
type far struct {
	driver.Store
	away     time.Duration
	underWay atomic.Int64
	most     atomic.Int64
	calls    atomic.Int64
}

func (s *far) travel(ctx context.Context) (arrived func(), err error) {
	s.calls.Add(1)
	for n := s.underWay.Add(1); ; {
		if most := s.most.Load(); n <= most || s.most.CompareAndSwap(most, n) {
			break
		}
	}
	timer := time.NewTimer(s.away)
	defer timer.Stop()
	select {
	case <-timer.C:
		return func() { s.underWay.Add(-1) }, nil
	case <-ctx.Done():
		s.underWay.Add(-1)
		return nil, driver.NotApplied(ctx.Err())
	}
}

func (s *far) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	arrived, err := s.travel(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	defer arrived()
	return s.Store.Get(ctx, key, c)
}

func (s *far) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	arrived, err := s.travel(ctx)
	if err != nil {
		return driver.Record{}, driver.Record{}, err
	}
	defer arrived()
	return s.Store.Claim(ctx, next)
}

func (s *far) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	arrived, err := s.travel(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	defer arrived()
	return s.Store.Swap(ctx, prev, next)
}

// inParallel calls f with each of 0 to n-1, many at once.
func inParallel(n int, f func(i int)) {
	var all sync.WaitGroup
	next := make(chan int)
	for range 200 {
		all.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

func acquireAll(tb testing.TB, c *tenure.Client, n int) []*tenure.Lease {
	tb.Helper()
	leases, locks := make([]*tenure.Lease, n), names(n)
	inParallel(n, func(i int) {
		var err error
		if leases[i], err = c.Acquire(tb.Context(), locks[i], nil); err != nil {
			tb.Error(err)
		}
	})
	return leases
}

func releaseAll(tb testing.TB, leases []*tenure.Lease) {
	tb.Helper()
	inParallel(len(leases), func(i int) {
		if err := leases[i].Release(tb.Context()); err != nil {
			tb.Error(err)
		}
	})
}

// One client keeps 10,000 locks alive over a store of which each call takes
// 10 ms, with the default lease, and with a handful of goroutines.
func TestTenThousandLocksOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locks = 10_000
		store := &far{Store: memstore.New(), away: 10 * time.Millisecond}
		var lost atomic.Int64
		base := runtime.NumGoroutine()
		c, err := tenure.New(store, &tenure.Options{
			Clock: tenure.MonotonicClock(),
			OnEvent: func(e tenure.Event) {
				switch e.Kind {
				case tenure.EventLost, tenure.EventJeopardy:
					lost.Add(1)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.WithoutCancel(t.Context()))
		leases := acquireAll(t, c, locks)

		most := 0
		for range 17 { // a little more than two leases
			time.Sleep(lease / 8)
			for _, l := range leases {
				want(t, l.Check(), nil)
			}
			most = max(most, runtime.NumGoroutine()-base-int(store.underWay.Load()))
		}
		if n := lost.Load(); n != 0 {
			t.Errorf("%d leases lost or in jeopardy", n)
		}
		if most >= 50 {
			t.Errorf("%d goroutines beside the requests under way", most)
		}
		// The claim, and 17/8 leases of 5 heartbeats each.
		if n := store.calls.Load(); n < locks*10 || n > locks*12 {
			t.Errorf("%d requests", n)
		}
		t.Logf("%d requests, %d at once at most; %d goroutines besides", store.calls.Load(), store.most.Load(), most)
		releaseAll(t, leases)
	})
}

// Requests at once never exceed MaxInFlight.
func TestMaxInFlightBoundsTheRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &far{Store: memstore.New(), away: 10 * time.Millisecond}
		c := mustNew(t, store, &tenure.Options{Clock: tenure.MonotonicClock(), MaxInFlight: 7})
		defer c.Close(context.WithoutCancel(t.Context()))
		leases := acquireAll(t, c, 1000)
		time.Sleep(2 * lease)
		releaseAll(t, leases)
		if most := store.most.Load(); most != 7 {
			t.Errorf("%d requests at once, want 7", most)
		}
	})
}

// A request that finds no place is not sent, which is no unknown outcome, and the error
// says what to do.
func TestNoPlaceForARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faultstore.New(memstore.New(), nil)
		c := mustNew(t, store, &tenure.Options{Clock: tenure.MonotonicClock(), MaxInFlight: 1})
		defer c.Close(context.WithoutCancel(t.Context()))
		store.Inject(faultstore.Rule{Fault: deaf(10 * lease), Count: 1})
		go c.TryAcquire(t.Context(), "first", nil) //nolint:errcheck // nobody answers
		synctest.Wait()
		_, err := c.TryAcquire(t.Context(), "second", nil)
		want(t, err, driver.ErrNotApplied)
		if err == nil || !strings.Contains(err.Error(), "not sent: 1 requests to the store are under way (MaxInFlight)") {
			t.Errorf("%v", err)
		}
	})
}

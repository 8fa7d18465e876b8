// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// aheadClock is the ordinary clock, and the test can set the holder's side of it forward.
type aheadClock struct {
	Clock
	ahead atomic.Int64
}

func (c *aheadClock) Holder() time.Duration {
	return c.Clock.Holder() + time.Duration(c.ahead.Load())
}

// lateStore calls claimed between a claim and its answer, and counts the writes after it.
type lateStore struct {
	*memstore.Store
	claimed func()
	later   atomic.Int64
}

func (s *lateStore) Claim(ctx context.Context, rec driver.Record) (stored, prev driver.Record, err error) {
	stored, prev, err = s.Store.Claim(ctx, rec)
	s.claimed()
	return stored, prev, err
}

func (s *lateStore) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	s.later.Add(1)
	return s.Store.Swap(ctx, prev, next)
}

// The deadline of a lease or session may have passed when it begins, so that its timer runs at
// once. The machine is not stepped before the client knows the lease: the client would learn of
// its end first, and keep it for ever.
func TestLeaseBeginsBeforeItIsStepped(t *testing.T) {
	for name, begin := range map[string]func(c *Client) error{
		"lease":   func(c *Client) error { _, err := c.Acquire(t.Context(), "job", nil); return err },
		"session": func(c *Client) error { _, err := c.OpenSession(t.Context(), nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			clock := &aheadClock{Clock: MonotonicClock()}
			store := &lateStore{Store: memstore.New()}
			c, err := New(store, &Options{Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			granted := make(chan struct{})
			store.claimed = func() {
				clock.ahead.Store(int64(time.Hour))
				c.mu.Lock() // until it is unlocked, what begins cannot be made known
				close(granted)
			}
			ended := make(chan error, 1)
			go func() { ended <- begin(c) }()
			<-granted
			<-time.After(100 * time.Millisecond)
			if n := store.later.Load(); n != 0 {
				t.Errorf("%d writes of a %s that has not begun", n, name)
			}
			c.mu.Unlock()
			if err := <-ended; !errors.Is(err, ErrExpired) {
				t.Errorf("begun: %v", err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if len(c.kept) != 0 || len(c.own) != 0 {
				t.Errorf("kept are %d, %d of its locks", len(c.kept), len(c.own))
			}
		})
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/memstore"
)

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

var timing = protocol.Timing{Lease: 15 * time.Second}.WithDefaults()

// aheadClient returns a client, and by how much its holder's clock is set forward.
func aheadClient(store driver.Store) (c *Client, ahead *atomic.Int64) {
	ahead = new(atomic.Int64)
	begun := time.Now()
	now := func() time.Duration { return time.Since(begun) + time.Second }
	return New(store, Options{
		Owner: "me", Timing: timing, MaxInFlight: 8, Contender: now,
		Holder: func() time.Duration { return now() + time.Duration(ahead.Load()) },
		API: API{
			NewLease: func() *LeaseHolder { return new(LeaseHolder) },
			Held:     func(rec driver.Record, _ time.Duration, _ bool) error { return errors.New("held by " + rec.Owner) },
		},
	}), ahead
}

// A caller of Check was told that the lease has expired, by a reading of the clock that the
// machine has not seen. Then it has expired for the machine, too, and for Release.
func TestExpiredByCheckIsExpired(t *testing.T) {
	c, ahead := aheadClient(memstore.New())
	l, err := c.Acquire(t.Context(), AcquireOptions{Want: protocol.Want{Key: "job"}, Timing: &timing})
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock() // the machine waits
	ahead.Store(int64(time.Hour))
	if err := l.Check(); !errors.Is(err, ErrExpired) {
		t.Errorf("check: %v", err)
	}
	ahead.Store(0)
	l.mu.Unlock()
	if err := l.Release(t.Context(), nil, nil); !errors.Is(err, ErrExpired) {
		t.Errorf("release: %v", err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The deadline of a lease or session may have passed when it begins, so that its timer runs at
// once. The machine is not stepped before the client knows the lease: the client would learn of
// its end first, and keep it for ever.
func TestLeaseBeginsBeforeItIsStepped(t *testing.T) {
	for name, begin := range map[string]func(c *Client) error{
		"lease": func(c *Client) error {
			_, err := c.Acquire(t.Context(), AcquireOptions{Want: protocol.Want{Key: "job"}, Timing: &timing})
			return err
		},
		"session": func(c *Client) error {
			_, err := c.OpenSession(t.Context(), SessionOptions{Timing: timing})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := &lateStore{Store: memstore.New()}
			c, ahead := aheadClient(store)
			granted := make(chan struct{})
			store.claimed = func() {
				ahead.Store(int64(time.Hour))
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
			if len(c.held) != 0 || len(c.own) != 0 {
				t.Errorf("held are %d, %d of them locks", len(c.held), len(c.own))
			}
		})
	}
}

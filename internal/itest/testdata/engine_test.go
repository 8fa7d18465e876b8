// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/sqlitestore"
)

// scripts/nightly adds this file to the tests of package tenure, which cannot import these
// stores: their records are then on the store that TENURE_TEST_STORE names, sqlite or etcd.
//
// A call takes no time of the bubble in which it is made. It is carried out by a goroutine
// outside of all bubbles, and to wait for it does not block durably, so that the bubble's
// clock stands still meanwhile.
func init() {
	for range cap(workers) {
		w := worker{make(chan func()), make(chan struct{})}
		go func() {
			for f := range w.calls {
				f()
				w.done <- struct{}{}
			}
		}()
		workers <- w
	}
	engine = func(t *testing.T) (open func() driver.Store) {
		var handles func() (driver.Store, error)
		switch name := os.Getenv("TENURE_TEST_STORE"); name {
		case "sqlite":
			file := filepath.Join(t.TempDir(), "locks.db")
			handles = func() (driver.Store, error) { return sqlitestore.Open(file, nil) }
		case "etcd":
			prefix := rand.Text() + "/"
			handles = func() (driver.Store, error) { return etcdstore.New(client(), &etcdstore.Options{Prefix: prefix}) }
		default:
			t.Fatalf("TENURE_TEST_STORE is %q: set it to sqlite or etcd", name)
		}
		shared := &hints{watchers: map[string][]*func(){}}
		return func() driver.Store {
			s := &bubbled{hints: shared}
			outside(func() {
				var err error
				if s.store, err = handles(); err != nil {
					panic(err) //nolint:forbidigo // no test is here
				}
			})
			return s
		}
	}
}

var client = sync.OnceValue(func() *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv("TENURE_TEST_ETCD")}, DialTimeout: time.Minute})
	if err != nil {
		panic(err) //nolint:forbidigo // no test is here
	}
	return c
})

type worker struct {
	calls chan func()
	done  chan struct{}
}

var workers = make(chan worker, 64)

// outside runs f outside of the caller's bubble.
func outside(f func()) {
	w := <-workers
	w.calls <- f
	<-w.done
	workers <- w
}

// bubbled is a store for a bubble. No context leaves the bubble: it is checked before the
// call, and not again, as by memstore. A write that wakes, through one handle, wakes watchers
// by another, at once.
type bubbled struct {
	store driver.Store
	hints *hints
}

type hints struct {
	mu       sync.Mutex
	watchers map[string][]*func() // in the order of their calls
}

// call returns the error of f, which runs outside, and wakes watchers of the key.
func (s *bubbled) call(ctx context.Context, key string, f func() error) (err error) {
	if err := ctx.Err(); err != nil {
		return driver.NotApplied(err)
	}
	outside(func() { err = f() })
	if err == nil && key != "" {
		s.hints.mu.Lock()
		watchers := slices.Clone(s.hints.watchers[key])
		s.hints.mu.Unlock()
		for _, hint := range watchers {
			(*hint)() // it may call the store
		}
	}
	return err
}

func (s *bubbled) Get(ctx context.Context, key string, c driver.Consistency) (r driver.Record, err error) {
	err = s.call(ctx, "", func() error { r, err = s.store.Get(context.Background(), key, c); return err })
	return r, err
}

func (s *bubbled) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	err = s.call(ctx, "", func() error { now, prev, err = s.store.Claim(context.Background(), next); return err })
	return now, prev, err
}

func (s *bubbled) Swap(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	key := ""
	if driver.Wakes(prev, next) {
		key = next.Key
	}
	err = s.call(ctx, key, func() error { now, err = s.store.Swap(context.Background(), prev, next); return err })
	return now, err
}

func (s *bubbled) Delete(ctx context.Context, prev driver.Record) error {
	return s.call(ctx, prev.Key, func() error { return s.store.Delete(context.Background(), prev) })
}

func (s *bubbled) List(ctx context.Context, prefix, cursor string) (page driver.Page, err error) {
	err = s.call(ctx, "", func() error { page, err = s.store.List(context.Background(), prefix, cursor); return err })
	return page, err
}

func (s *bubbled) KeepsTokens() bool {
	k, ok := s.store.(driver.TokenRetainer)
	return ok && k.KeepsTokens()
}

func (s *bubbled) ListTokens(context.Context, string, string) (page driver.Page, err error) {
	return page, nil // no test raises tokens in a bubble
}

func (s *bubbled) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.hints.mu.Lock()
	defer s.hints.mu.Unlock()
	s.hints.watchers[key] = append(s.hints.watchers[key], &hint)
	return func() {
		s.hints.mu.Lock()
		defer s.hints.mu.Unlock()
		s.hints.watchers[key] = slices.DeleteFunc(s.hints.watchers[key], func(h *func()) bool { return h == &hint })
	}, nil
}

func (s *bubbled) Close() (err error) {
	outside(func() { err = s.store.Close() })
	return err
}

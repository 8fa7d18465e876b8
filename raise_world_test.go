// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// mid is an instant in the time of the wait at which nothing is looked at.
const mid = lease/2 + lease/40

// lossy is a world whose records can be restored from a backup, under clients that are
// connected and notice nothing, as behind a failover.
type lossy struct {
	*world
	mu  sync.Mutex
	now *memstore.Store
}

func newLossyWorld(t *testing.T) *lossy {
	t.Helper()
	l := &lossy{now: memstore.New()}
	l.now.PageSize = 3
	l.world = &world{t: t, records: &failover{l}, open: func() driver.Store { return &failover{l} }}
	return l
}

// inLossyWorld runs the test in a bubble, with a lossy world.
func inLossyWorld(t *testing.T, test func(t *testing.T, l *lossy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newLossyWorld(t)) })
}

// inLossyWorldRun runs a subtest in a bubble, with a lossy world.
func inLossyWorldRun(t *testing.T, name string, test func(t *testing.T, l *lossy)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inLossyWorld(t, test) })
}

func (l *lossy) current() *memstore.Store {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// backup returns the records as they are.
func (l *lossy) backup() *memstore.Store { return l.current().Copy() }

// restore puts a backup in their place.
func (l *lossy) restore(backup *memstore.Store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = backup.Copy()
}

// failover is a handle onto whatever the records are by now.
type failover struct{ l *lossy }

func (f *failover) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	return f.l.current().Get(ctx, key, c)
}

func (f *failover) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	return f.l.current().Claim(ctx, next)
}

func (f *failover) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return f.l.current().Swap(ctx, prev, next)
}

func (f *failover) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return f.l.current().Raise(ctx, prev, next)
}

func (f *failover) Delete(ctx context.Context, prev driver.Record) error {
	return f.l.current().Delete(ctx, prev)
}

func (f *failover) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	return f.l.current().List(ctx, prefix, cursor)
}

func (f *failover) Close() error { return nil }

// contains fails the test unless the error says so.
func contains(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got error %v, want one that says %q", err, text)
	}
}

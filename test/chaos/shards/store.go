// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shards

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/sqlitestore"
	"github.com/tenurelock/tenure/test/bed/dynamo"
	"github.com/tenurelock/tenure/test/bed/proc"
)

// open returns the store at sqlite:PATH or dynamodb:URL#TABLE, with its calls counted.
func open(url string, beat func(at, reads, writes int64)) (driver.Store, error) {
	n := &calls{beat: beat}
	scheme, rest, _ := strings.Cut(url, ":")
	if scheme == partSQLite {
		s, err := sqlitestore.Open(rest, nil)
		return countedSQLite{countedStore{s, n}, s}, err
	}
	endpoint, table, _ := strings.Cut(rest, "#")
	db, _ := dynamo.ConnectWide(endpoint)
	s, err := dynamostore.New(db, table, nil)
	return countedDynamo{countedStore{s, n}, s}, err
}

// calls are those of a store that a process made.
type calls struct {
	reads, writes atomic.Int64
	beat          func(at, reads, writes int64) // when the process's session is renewed
}

// countedStore counts calls, and notes when a session is written.
type countedStore struct {
	driver.Store
	n *calls
}

func (s countedStore) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	s.n.reads.Add(1)
	return s.Store.Get(ctx, key, c)
}

func (s countedStore) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	s.n.reads.Add(1)
	return s.Store.List(ctx, prefix, cursor)
}

func (s countedStore) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	s.n.writes.Add(1)
	return s.Store.Claim(ctx, next)
}

func (s countedStore) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	s.n.writes.Add(1)
	sent := proc.Monotonic()
	now, err := s.Store.Swap(ctx, prev, next)
	if err == nil && prev.Beat != next.Beat && next.State == driver.Alive &&
		strings.HasPrefix(next.Key, driver.SessionPrefix) {
		s.n.beat(sent, s.n.reads.Load(), s.n.writes.Load())
	}
	return now, err
}

func (s countedStore) Delete(ctx context.Context, prev driver.Record) error {
	s.n.writes.Add(1)
	return s.Store.Delete(ctx, prev)
}

// countedSQLite and countedDynamo have what their stores have beside that.
type countedSQLite struct {
	countedStore
	driver.Watcher
}

type countedDynamo struct {
	countedStore
	batch driver.BatchGetter
}

func (s countedDynamo) GetBatch(ctx context.Context, keys []string, c driver.Consistency) ([]driver.Lookup, error) {
	s.n.reads.Add(1)
	return s.batch.GetBatch(ctx, keys, c)
}

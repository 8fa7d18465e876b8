// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shards

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/sqlitestore"
)

// The stores that shards are measured on.
const (
	onSQLite = "SQLite"
	onDynamo = "DynamoDB"
)

// place says where a store is.
type place struct {
	Kind     string `json:"kind"`
	Path     string `json:"path,omitempty"`     // of SQLite
	Endpoint string `json:"endpoint,omitempty"` // of DynamoDB
	Table    string `json:"table,omitempty"`
}

// open returns the store, with its calls counted.
func (p place) open(beat func(int64)) (driver.Store, *calls, error) {
	n := &calls{beat: beat}
	switch p.Kind {
	case onSQLite:
		s, err := sqlitestore.Open(p.Path, nil)
		if err != nil {
			return nil, nil, err
		}
		return countedSQLite{countedStore{s, n}, s}, n, nil
	case onDynamo:
		db, _ := dynamo.ConnectWide(p.Endpoint)
		s, err := dynamostore.New(db, p.Table, nil)
		if err != nil {
			return nil, nil, err
		}
		return countedDynamo{countedStore{s, n}, s}, n, nil
	}
	return nil, nil, fmt.Errorf("no store %q", p.Kind)
}

// calls are those of a store that a process made.
type calls struct {
	reads, writes atomic.Int64
	beat          func(at int64) // when the process's session is renewed; may be nil
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
	if err == nil && s.n.beat != nil && prev.Beat != next.Beat && next.State == driver.Alive &&
		strings.HasPrefix(next.Key, driver.SessionPrefix) {
		s.n.beat(sent)
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/memstore"
)

// cluster is a database of three servers. All write through the leader. Each answers
// eventual reads from a copy: its own writes, and the writes of others up to its last
// read of the key.
type cluster struct {
	bug     string
	leader  *memstore.Store
	servers [3]*server
}

type server struct {
	bug  string
	mu   sync.Mutex
	copy map[string]copied
}

type copied struct {
	rec driver.Record
	err error
}

func newCluster(bug string) *cluster {
	c := &cluster{bug: bug, leader: memstore.New()}
	for i := range c.servers {
		c.servers[i] = &server{bug: bug, copy: map[string]copied{}}
	}
	return c
}

func (c *cluster) harness() drivertest.Harness {
	h := drivertest.Harness{
		Watches: true, Raises: true, EventualReads: true,
		TimePrecision: time.Nanosecond, LeasePrecision: time.Nanosecond, Ops: 400,
	}
	for _, s := range c.servers {
		h.Servers = append(h.Servers, func(*testing.T) driver.Store { return &member{Store: c.leader.Open(), server: s} })
	}
	return h
}

// member is a client of one server.
type member struct {
	*memstore.Store
	server *server
}

func (m *member) Get(ctx context.Context, key string, how driver.Consistency) (driver.Record, error) {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	rec, err := m.Store.Get(ctx, key, driver.Strong)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return rec, err
	}
	if how == driver.Strong && m.server.bug != "cluster with strong reads that lag" {
		return rec, err
	}
	return m.server.hear(key, copied{rec, err})
}

// hear updates the copy, and returns what the server knew. The server is locked.
func (s *server) hear(key string, is copied) (driver.Record, error) {
	knew, found := s.copy[key]
	s.copy[key] = is
	if !found {
		return driver.Record{}, driver.ErrNotFound
	}
	return knew.rec.Clone(), knew.err
}

func (m *member) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	now, prev, err = m.Store.Claim(ctx, next)
	return now, prev, m.server.wrote(next.Key, now.Clone(), err)
}

func (m *member) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	now, err := m.Store.Swap(ctx, prev, next)
	return now, m.server.wrote(next.Key, now.Clone(), err)
}

func (m *member) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	now, err := m.Store.Raise(ctx, prev, next)
	return now, m.server.wrote(next.Key, now.Clone(), err)
}

func (m *member) Delete(ctx context.Context, prev driver.Record) error {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	err := m.Store.Delete(ctx, prev)
	if err == nil {
		m.server.copy[prev.Key] = copied{err: driver.ErrNotFound}
	}
	return m.server.wrote(prev.Key, driver.Record{}, err)
}

// wrote notes what a write through this server has stored, and returns its error. The
// server is locked.
func (s *server) wrote(key string, now driver.Record, err error) error {
	if now.Key != "" {
		s.copy[key] = copied{rec: now}
	}
	var conflict *driver.ConflictError
	if errors.As(err, &conflict) && s.bug == "cluster with conflicts that lag" {
		rec, gone := s.hear(key, copied{conflict.Current, nil})
		return &driver.ConflictError{Key: key, Current: rec, Absent: gone != nil}
	}
	return err
}

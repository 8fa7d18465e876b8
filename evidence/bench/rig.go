// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// roles are what this program can be in place of the benchmark.
var roles = map[string]proc.Role{tenureName: serve.Tenure.Role, dynamolockName: serve.Dynamolock.Role}

// rig is what all steps share.
type rig struct {
	engine  string
	db      *dynamodb.Client // of the rig itself, past all gates
	clients []*peers.Program
	size    size
	say     func(format string, args ...any)
	largest int64 // item, in bytes

	mu     sync.Mutex
	report *report
}

// stage is a table of one client, with the processes that use it, whose requests
// are counted together.
type stage struct {
	*rig
	peers.Timing
	client *peers.Program
	name   string // of the client
	table  *dynamo.Table
	wire   *gate.HTTP
	large  bool // the units are those of each item's size
	tells  bool // the members have a bell, and tell of heartbeats

	members []*member // guarded by mu of the rig
}

func (r *rig) stage(ctx context.Context, c *peers.Program, t peers.Timing) (*stage, error) {
	s := &stage{rig: r, client: c, name: string(c.Kind), Timing: t}
	var err error
	if s.table, err = dynamo.NewTable(ctx, r.db, "tenure-bench"); err != nil {
		return nil, err
	}
	s.wire, err = gate.NewMetered(r.engine)
	return s, err
}

// close ends the processes, and checks what the rule for units takes for
// granted.
func (s *stage) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	s.mu.Lock()
	members := s.members
	s.mu.Unlock()
	for _, m := range members {
		m.Kill()
	}
	s.wire.Close()
	return errors.Join(s.checkItems(ctx), s.table.Drop(ctx))
}

func (s *stage) checkItems(ctx context.Context) error {
	sizes, err := s.table.Sizes(ctx)
	if err != nil {
		return err
	}
	for _, n := range sizes {
		s.mu.Lock()
		s.largest = max(s.largest, n)
		s.mu.Unlock()
		if n > gate.MaxItem && !s.large {
			return fmt.Errorf("%s wrote an item of %d bytes: the rule for units is for %d at most", s.name, n, gate.MaxItem)
		}
	}
	return nil
}

// member is a process with an open client.
type member struct {
	*peers.Member
	stage *stage
}

// member starts a process. Unless it is counted, its requests go past the gate.
func (s *stage) member(ctx context.Context, counted bool) (*member, error) {
	endpoint := s.engine
	if counted {
		endpoint = s.wire.Address()
	}
	o := s.Open(endpoint, s.table.Name)
	o.Bell, o.Tells = s.tells, s.tells
	return s.open(ctx, o)
}

// rung is member for a process that has a bell, or none.
func (s *stage) rung(ctx context.Context, bell bool) (*member, error) {
	o := s.Open(s.wire.Address(), s.table.Name)
	o.Bell = bell
	return s.open(ctx, o)
}

func (s *stage) open(ctx context.Context, request wire.Request) (*member, error) {
	p, err := s.client.Open(ctx, request)
	if err != nil {
		return nil, err
	}
	m := &member{p, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, m)
	s.report.Clients[s.name] = p.Version()
	return m, nil
}

// begin has m wait for a lock, and returns when it does.
func (m *member) begin(ctx context.Context, name string) (*peers.Call, error) {
	before := m.stage.wire.Count()
	granted := m.Begin(m.Asking(wire.Acquire, name))
	err := wait.Until(ctx, "a waiter sends a request", func() bool { return m.stage.wire.Count() > before })
	return granted, err
}

// refused tries a lock that is held.
func (m *member) refused(ctx context.Context, name string) error {
	_, err := m.Do(ctx, wire.Request{Command: wire.Acquire, Name: name, TryOnly: true})
	if refused := (*peers.Refused)(nil); errors.As(err, &refused) && refused.Kind == wire.Held {
		return nil
	}
	return errors.Join(errors.New("try of a held lock: it was not refused as held"), err)
}

func (m *member) heartbeat(ctx context.Context, name string) error {
	_, err := m.Do(ctx, wire.Request{Command: wire.Heartbeat, Name: name})
	return err
}

// holds counts the locks that the member's own handles say it still has.
func (m *member) holds(ctx context.Context, names []string) (n int, err error) {
	for _, name := range names {
		holds, err := m.Holds(ctx, name)
		if err != nil {
			return n, err
		}
		if holds {
			n++
		}
	}
	return n, nil
}

// eachClient runs a part of a step for all clients at once: they do not disturb
// each other, as they wait for most of the time.
func (r *rig) eachClient(ctx context.Context, t peers.Timing, f func(ctx context.Context, s *stage) error) error {
	return wait.AtOnce(ctx, len(r.clients), len(r.clients), func(ctx context.Context, i int) error { return r.staged(ctx, r.clients[i], t, f) })
}

func (r *rig) staged(ctx context.Context, c *peers.Program, t peers.Timing, f func(ctx context.Context, s *stage) error) error {
	s, err := r.stage(ctx, c, t)
	if err != nil {
		return err
	}
	err = f(ctx, s)
	if closed := s.close(ctx); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Kind, err)
	}
	return nil
}

func milliseconds(ns int64) float64 { return float64(ns) / 1e6 }

func acquireAll(ctx context.Context, m *member, names []string) error {
	return wait.AtOnce(ctx, len(names), 16, func(ctx context.Context, i int) error {
		_, err := m.Acquire(ctx, names[i])
		return err
	})
}

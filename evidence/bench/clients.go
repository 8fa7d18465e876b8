// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// The clients there are.
const (
	tenureName     = string(peers.Tenure)
	dynamolockName = string(peers.Dynamolock)
	javaName       = string(peers.Java)
)

var clientNames = []string{tenureName, dynamolockName, javaName}

// steps are those of the part of clients, in the order of the tables.
var steps = []struct {
	name string
	run  func(context.Context, *rig) error
}{
	{"single", single},
	{"variants", variants},
	{"takeover", takeover},
	{"hold", hold},
	{"waiters", waiters},
	{"month", months},
	{"handover", handover},
	{"failover", failover},
	{"throughput", throughput},
	{"session", sessions},
}

func stepNames() string {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	return strings.Join(names, ",")
}

// rig is what all steps share.
type rig struct {
	*part
	*options
	db      *dynamodb.Client // of the rig itself, past all gates
	clients []*peers.Program
}

// measureClients makes the steps, one after the other. The clients run as processes, each kind
// behind a gate of its own that counts its requests; from these follow units and prices.
func measureClients(ctx context.Context, o *options, p *part) (err error) {
	chosen := strings.Split(o.steps, ",")
	for _, name := range chosen {
		if !slices.Contains(strings.Split(stepNames(), ","), name) {
			return fmt.Errorf("there is no step %q; there are %s", name, stepNames())
		}
	}
	if o.engine == "" {
		return dynamo.NoEngine("bench")
	}
	r := &rig{part: p, options: o, db: dynamo.Connect(o.engine)}
	if p.Programs, err = machine.Engine(ctx, o.engine); err != nil {
		return err
	}
	p.Setting = gate.UnitRule
	for name := range strings.SplitSeq(o.clients, ",") {
		client, version, err := build(ctx, name)
		if err != nil {
			return err
		}
		r.clients = append(r.clients, client)
		p.Programs += "; " + titles[name] + " " + version
	}
	for _, s := range steps {
		if !slices.Contains(chosen, s.name) {
			continue
		}
		start := time.Now()
		if err := s.run(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		o.say("%s: %.1f s", s.name, time.Since(start).Seconds())
	}
	return nil
}

var titles = map[string]string{tenureName: "Tenure", dynamolockName: "dynamolock", javaName: "Java client"}

// build makes the program of a client, and asks it for its version.
func build(ctx context.Context, name string) (client *peers.Program, version string, err error) {
	switch name {
	case tenureName, dynamolockName:
		client = peers.Own(peers.Kind(name))
	case javaName:
		client, err = peers.BuildJava(ctx)
	default:
		err = fmt.Errorf("there is no client %q; there are %s", name, strings.Join(clientNames, ","))
	}
	if err != nil {
		return nil, "", err
	}
	p, err := client.Start(ctx)
	if err != nil {
		return nil, "", err
	}
	p.Kill()
	return client, p.Ready.Version + ", " + p.Ready.Runtime, nil
}

// stage is a table of one client, with the processes that use it, whose requests
// are counted together.
type stage struct {
	*rig
	peers.Timing
	client  *peers.Program
	name    string // of the client
	table   *dynamo.Table
	wire    *gate.HTTP
	large   bool            // the units are those of each item's size
	members []*peers.Member // guarded by mu
	ends    []func()
}

// use is what a step does with a stage.
type use func(ctx context.Context, s *stage) error

// onStage runs a part of a step with a client.
func (r *rig) onStage(ctx context.Context, c *peers.Program, t peers.Timing, f use) error {
	return r.onStages(ctx, []*peers.Program{c}, t, func(all []*stage) error { return f(ctx, all[0]) })
}

// eachClient runs a part of a step for all clients at once: they do not disturb
// each other, as they wait for most of the time.
func (r *rig) eachClient(ctx context.Context, t peers.Timing, f use) error {
	return wait.AtOnce(ctx, len(r.clients), len(r.clients), func(ctx context.Context, i int) error {
		return r.onStage(ctx, r.clients[i], t, f)
	})
}

// onStages runs a part of a step with clients that are to begin or take turns together.
func (r *rig) onStages(
	ctx context.Context, clients []*peers.Program, t peers.Timing, f func(all []*stage) error,
) (err error) {
	var all []*stage
	defer func() {
		for _, s := range all {
			if closed := s.close(ctx); closed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", s.name, closed))
			}
		}
	}()
	for _, c := range clients {
		s := &stage{rig: r, client: c, name: string(c.Kind), Timing: t}
		if s.table, err = dynamo.NewTable(ctx, r.db, "tenure-bench"); err != nil {
			return err
		}
		if s.wire, err = gate.NewMetered(r.engine); err != nil {
			return errors.Join(err, s.table.Drop(ctx))
		}
		all = append(all, s)
	}
	if err := f(all); err != nil {
		return fmt.Errorf("%s: %w", all[0].name, err)
	}
	return nil
}

// close ends the processes, and checks what the rule for units takes for granted.
func (s *stage) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	for _, end := range s.ends {
		end()
	}
	s.mu.Lock()
	members := s.members
	s.mu.Unlock()
	for _, m := range members {
		m.Kill()
	}
	s.wire.Close()
	sizes, err := s.table.Sizes(ctx)
	for _, n := range sizes {
		s.mu.Lock()
		s.Largest = max(s.Largest, n)
		s.mu.Unlock()
		if n > gate.MaxItem && !s.large {
			err = fmt.Errorf("an item has %d bytes: the rule for units is for %d at most", n, gate.MaxItem)
		}
	}
	return errors.Join(err, s.table.Drop(ctx))
}

// member starts a process with an open client, whose requests are counted.
func (s *stage) member(ctx context.Context) (*peers.Member, error) {
	return s.open(ctx, s.Open(s.wire.Address(), s.table.Name))
}

// uncounted is member past the gate.
func (s *stage) uncounted(ctx context.Context) (*peers.Member, error) {
	return s.open(ctx, s.Open(s.engine, s.table.Name))
}

func (s *stage) open(ctx context.Context, request wire.Request) (*peers.Member, error) {
	m, err := s.client.Open(ctx, request)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, m)
	return m, nil
}

// several starts so many members.
func (s *stage) several(ctx context.Context, n int) ([]*peers.Member, error) {
	all := make([]*peers.Member, n)
	err := wait.AtOnce(ctx, n, 2, func(ctx context.Context, i int) (err error) {
		all[i], err = s.member(ctx)
		return err
	})
	return all, err
}

// begin has m wait for a lock, and returns when it does.
func (s *stage) begin(ctx context.Context, m *peers.Member, name string) (*peers.Call, error) {
	before := s.wire.Count()
	granted := m.Begin(m.Asking(wire.Acquire, name))
	return granted, wait.Until(ctx, "a waiter sends a request", func() bool { return s.wire.Count() > before })
}

// countFor counts for a while.
func (s *stage) countFor(ctx context.Context, d time.Duration) (gate.Usage, error) {
	return s.wire.During(func() error { return wait.For(ctx, d) })
}

func acquireAll(ctx context.Context, m *peers.Member, names []string) error {
	return wait.AtOnce(ctx, len(names), 16, func(ctx context.Context, i int) error {
		_, err := m.Acquire(ctx, names[i])
		return err
	})
}

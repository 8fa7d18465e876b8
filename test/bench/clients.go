// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/test/harness/dynamo"
	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// The clients on DynamoDB, in the order of the tables.
const (
	tenureName     = string(peers.Tenure)
	dynamolockName = string(peers.Dynamolock)
	javaName       = string(peers.Java)
)

var clientNames = []string{tenureName, dynamolockName, javaName}

var titles = map[string]string{tenureName: "Tenure", dynamolockName: "dynamolock", javaName: "Java client"}

// step is a part of a run.
type step struct {
	name string
	run  func(context.Context, *harness)
}

// steps are all steps, in their order.
var steps = []step{
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

// measureClients runs the steps, one after the other. The clients run as processes, each kind
// behind its own gate, which counts requests; units and prices follow from these.
func measureClients(ctx context.Context, r *harness) {
	kind := must.Have(launcher.Find("dynoxide"))
	if r.engine = os.Getenv(kind.Variable); r.engine == "" {
		must.Do(fmt.Errorf("there is no engine: scripts/engines run %s -- go run ./test/bench bench starts one", kind.Name))
	}
	r.Programs = kind.Name + " " + kind.Version + ", in memory, on loopback"
	r.Setting, r.db = gate.UnitRule, dynamo.Connect(r.engine)
	for _, name := range clientNames {
		client := must.Have(peers.Make(ctx, peers.Kind(name)))
		one := must.Have(client.Start(ctx))
		one.Kill()
		r.clients = append(r.clients, client)
		r.Programs += "; " + titles[name] + " " + one.Ready.Version + ", " + one.Ready.Runtime
	}
	for _, s := range steps {
		if r.steps != "" && !slices.Contains(strings.Split(r.steps, ","), s.name) {
			continue
		}
		start := time.Now()
		if err := must.Try(func() { s.run(ctx, r) }); err != nil {
			must.Do(fmt.Errorf("%s: %w", s.name, err))
		}
		r.say("%s: %.1f s", s.name, time.Since(start).Seconds())
	}
	if len(r.Rows) == 0 {
		must.Do(fmt.Errorf("there is no step of %q", r.steps))
	}
}

// fixture is a table of one client, with the processes that use it, whose requests
// are counted together. Its methods are for [must.Try].
type fixture struct {
	*harness
	peers.Timing
	*peers.Scope
	client *peers.Program
	name   string // of the client
	table  *dynamo.Table
	wire   *gate.HTTP
}

// withFixture runs a part of a step with a client.
func (r *harness) withFixture(ctx context.Context, c *peers.Program, t peers.Timing, f func(s *fixture)) {
	r.withFixtures(ctx, []*peers.Program{c}, t, func(all []*fixture) { f(all[0]) })
}

// eachClient runs a part of a step with all clients at once.
func (r *harness) eachClient(ctx context.Context, t peers.Timing, f func(ctx context.Context, s *fixture)) {
	must.AtOnce(ctx, len(r.clients), len(r.clients), func(ctx context.Context, i int) {
		r.withFixture(ctx, r.clients[i], t, func(s *fixture) { f(ctx, s) })
	})
}

// withFixtures runs a part of a step with clients on a table each.
func (r *harness) withFixtures(ctx context.Context, clients []*peers.Program, t peers.Timing, f func(all []*fixture)) {
	scope := &peers.Scope{}
	scope.Run(func() {
		all := make([]*fixture, len(clients))
		for i, c := range clients {
			s := &fixture{harness: r, Timing: t, Scope: scope, client: c, name: string(c.Kind)}
			s.wire = gate.NewDynamoDB(r.engine, true)
			s.After(s.wire.Close)
			s.table = must.Have(dynamo.NewTable(ctx, r.db, "tenure-bench"))
			s.After(func() { _ = s.table.Drop(ctx) }) // the engine is in memory, and ended soon
			all[i] = s
		}
		f(all)
	})
}

// member starts a process of the fixture's client, whose requests are counted.
func (s *fixture) member(ctx context.Context) *peers.Member { return s.open(ctx, s.request()) }

// request is the request that opens a client whose requests are counted.
func (s *fixture) request() wire.Request { return s.Open(s.wire.Address(), s.table.Name) }

// open starts a process whose client is opened with a request.
func (s *fixture) open(ctx context.Context, request wire.Request) *peers.Member {
	m := s.client.Open(ctx, request)
	s.After(m.Kill)
	return m
}

// several starts members as several requests say.
func (s *fixture) several(ctx context.Context, requests ...wire.Request) []*peers.Member {
	all := make([]*peers.Member, len(requests))
	must.AtOnce(ctx, len(all), 2, func(ctx context.Context, i int) { all[i] = s.open(ctx, requests[i]) })
	return all
}

// begin makes a member wait for a lock, and returns when its first request is on
// the wire.
func (s *fixture) begin(ctx context.Context, m *peers.Member, name string) *peers.Call {
	before := s.wire.Count()
	granted := m.Begin(m.Asking(wire.Acquire, name))
	must.Do(wait.Until(ctx, "a waiter sends a request", func() bool { return s.wire.Count() > before }))
	return granted
}

// during counts the requests sent while f runs.
func (s *fixture) during(steps func()) gate.Usage {
	return must.Have(s.wire.During(func() error { return must.Try(steps) }))
}

// countFor counts the requests sent in a window.
func (s *fixture) countFor(ctx context.Context, window time.Duration) gate.Usage {
	return s.during(func() { must.Do(wait.For(ctx, window)) })
}

// acquireAll takes locks, some at once.
func acquireAll(ctx context.Context, m *peers.Member, names []string) {
	must.AtOnce(ctx, len(names), acquirers, func(ctx context.Context, i int) { m.Acquire(ctx, names[i]) })
}

// acquirers is how many locks a process takes at once.
const acquirers = 16

// lockNames returns names for so many locks.
func lockNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("lock-%d", i)
	}
	return names
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/page"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers/service"
)

// servedBy is the service of a fixture: its replicas, each with a gate before the store.
type servedBy struct {
	*service.Replicas
	stores []*gate.HTTP
}

// each calls a function for the gates before the store.
func (by *servedBy) each(do func(gate.Gate)) {
	for _, g := range by.stores {
		do(g)
	}
}

// onService is the place of a client of the service, whose replicas are on DynamoDB.
func onService(ctx context.Context, s *fixture) *place {
	p := onDynamoDB(ctx, s)
	s.service = &servedBy{}
	var urls []string
	for range s.replicas {
		g := gate.NewDynamoDB(p.direct, false)
		s.After(g.Close)
		s.service.stores = append(s.service.stores, g)
		urls = append(urls, p.url(g.Address()))
	}
	config := service.Config{Program: s.tenured, Dir: s.dir, Stores: urls, Lease: s.lease, Drain: s.lease / 4}
	s.service.Replicas = service.Start(ctx, &s.Scope, config)
	p.table, p.secret = "", s.service.Worker
	p.gate = func(string) gate.Gate { return service.NewFront(s.service.URLs(), gate.Fair, rand.Uint64()) }
	return p
}

// proxy is the gate before a client of the service.
func (m *member) proxy() *gate.HTTP { return m.gate.(*gate.HTTP) }

// clientRows are the rows of the clients of the service: all but two rows of the other
// libraries, and rows for the service itself. A client of the service holds each lock
// separately, which suits few locks; and it does not run commands.
func clientRows() []row {
	applicable := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.id == manyRow || r.id == childRow })
	return append(applicable, serviceRows...)
}

var serviceRows = []row{
	{named: named{"twice", "Calls carried out twice, and again later"}, try: carriedOutAgain},
	{named: named{"replay", "Calls of a former holder sent again"}, try: formerReplayed},
	{named: named{"bad-gateway", "502 for what was done"}, try: badGateways},
	// A start takes the time that it takes on a busy machine.
	{named: named{"restarts", "Replicas killed and started again"}, try: restarts, lease: 2 * usualLease},
	{
		named: named{"frozen", "Replica stopped and continued"},
		try: keptOrTold(func(_ context.Context, s *servedBy) { must.Do(s.Process(0).Hang()) },
			func(s *servedBy) { s.Process(0).Continue() }),
	},
	{
		named: named{"slow-store", "Slow store"},
		try: keptUnder(func(_ context.Context, p *pair) {
			p.service.each(func(g gate.Gate) { g.Slow(p.lease / 30) })
		}),
	},
	{
		named: named{"cut-store", "Replicas cut off from the store"},
		try: keptOrTold(func(_ context.Context, s *servedBy) { s.each(gate.Gate.BlackHole) },
			func(s *servedBy) { s.each(gate.Gate.Heal) }),
	},
	{named: named{"step-down", "Asked to step down"}, try: askedToStepDown},
	{named: named{"crash", "Crash of a holder"}, try: crashed},
}

// successorKeeps makes the holder hand over. Its cell is whether the other one still has the
// lock after a while, in which the holder's calls meet a fault.
func (p *pair) successorKeeps(ctx context.Context, meanwhile func(context.Context)) cell {
	p.handsOver(ctx, 0)
	during, stop := context.WithCancel(ctx)
	var doing sync.WaitGroup
	defer doing.Wait()
	defer stop()
	doing.Go(func() { meanwhile(during) })
	looked := 5 * p.lease / 2
	must.Do(wait.For(ctx, looked))
	if !p.waiter.Holds(ctx, p.name) {
		return judged(false, nil, "the successor lost the lock")
	}
	return judged(true, nil, "each kept it for the whole %s", lengthOf(looked))
}

// carriedOutAgain has calls of both clients be carried out again.
func carriedOutAgain(ctx context.Context, s *fixture) cell {
	p := s.pair(ctx, manner{})
	w := gate.Weather{Chance: map[gate.Fault]float64{gate.Double: 0.5, gate.Again: 0.5}, Again: 2 * s.lease}
	p.holder.proxy().Change(w)
	p.waiter.proxy().Change(w)
	if c := p.keeps(ctx); c.Verdict != passed {
		return c
	}
	return p.successorKeeps(ctx, func(context.Context) {})
}

// formerReplayed has an attacker send the calls of a former holder again.
func formerReplayed(ctx context.Context, s *fixture) cell {
	const seen = 20
	p := s.pair(ctx, manner{})
	must.Do(wait.For(ctx, s.lease))
	return p.successorKeeps(ctx, func(ctx context.Context) {
		p.holder.proxy().Attack(ctx, s.lease/20, seen, service.IsCall(service.HeartbeatPath, service.ReleasePath))
	})
}

// badGateways has every second call of the holder be answered in the place of the service.
func badGateways(ctx context.Context, s *fixture) cell {
	p := s.pair(ctx, manner{})
	n := 0
	p.holder.proxy().Strike(func(gate.Call) (gate.Fault, time.Duration) {
		if n++; n%2 == 1 {
			return gate.BadGateway, 0
		}
		return gate.None, 0
	})
	if c := p.keeps(ctx); c.Verdict != passed {
		return c
	}
	gap := p.handsOver(ctx, 0)
	return judged(gap >= 0, []float64{gap}, "kept; the successor began %s", sinceEnd(gap))
}

// restarts kills replicas, one at a time, and starts them again.
func restarts(ctx context.Context, s *fixture) cell {
	p := s.pair(ctx, manner{})
	n := 0
	for began := time.Now(); time.Since(began) < 3*s.lease; n++ {
		i := rand.IntN(s.replicas)
		s.service.Process(i).Kill()
		s.service.Restart(ctx, i)
		must.Do(wait.For(ctx, time.Duration((0.3+0.3*rand.Float64())*float64(s.lease))))
	}
	kept := p.belief().goesOn() && !p.granted.Answered()
	what := map[bool]string{true: "kept", false: "lost the lock"}[kept]
	return judged(kept, []float64{float64(n)}, "%s, over %s of a replica", what, page.Plural(n, "kill"))
}

// keptOrTold is a row of an outage of one and a half leases: a holder whose work goes on
// has kept the lock; a holder that stopped did so before the other one had it.
func keptOrTold(begin func(context.Context, *servedBy), end func(*servedBy)) tried {
	return func(ctx context.Context, s *fixture) cell {
		p := s.pair(ctx, manner{})
		begin(ctx, s.service)
		err := wait.For(ctx, 3*s.lease/2)
		end(s.service)
		must.Do(err)
		if p.belief().goesOn() && !p.granted.Answered() {
			return judged(true, nil, "kept")
		}
		return margins([]float64{p.margin(ctx)})
	}
}

// askedToStepDown is an operator's request to step down.
func askedToStepDown(ctx context.Context, s *fixture) cell {
	p := s.pair(ctx, manner{})
	asked := proc.Monotonic()
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { s.service.StepDown(ctx, 0, p.name, s.lease) })
	granted := p.passes(ctx)
	end := p.over(ctx, s.lease).end
	told, gap := milliseconds(end-asked), apart(end, granted)
	return judged(gap >= 0 && granted-asked < s.lease.Nanoseconds(), []float64{told, gap},
		"the work ended after %s, the successor began %s", length(told), sinceEnd(gap))
}

// crashed kills a holder while another one waits.
func crashed(ctx context.Context, s *fixture) cell {
	p := s.pair(ctx, manner{})
	killed := proc.Monotonic()
	p.holder.Kill()
	return s.gotAfterDeath(p.passes(ctx) - killed)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers/service"
)

// servedBy is the service of a scene: its replicas, each with a gate before the store.
type servedBy struct {
	*service.Replicas
	stores []*gate.HTTP
}

// onService is the place of a client of the service, whose replicas are on DynamoDB.
func onService(ctx context.Context, s *scene) (*place, error) {
	p, err := onDynamoDB(ctx, s)
	if err != nil {
		return nil, err
	}
	s.service = &servedBy{}
	drop := p.close
	p.close = func(ctx context.Context) {
		if s.service.Replicas != nil {
			s.service.Close()
		}
		for _, g := range s.service.stores {
			g.Close()
		}
		drop(ctx)
	}
	var urls []string
	for range s.replicas {
		g, err := gate.NewDynamoDB(p.direct)
		if err != nil {
			return nil, err
		}
		s.service.stores = append(s.service.stores, g)
		urls = append(urls, p.url(g.Address()))
	}
	config := service.Config{Program: s.tenured, Dir: s.dir, Stores: urls, Lease: s.lease, Drain: s.lease / 4}
	if s.service.Replicas, err = service.Start(ctx, config); err != nil {
		p.close(ctx)
		return nil, err
	}
	p.table, p.secret = "", s.service.Worker
	p.gate = func(string) (gate.Gate, error) { return service.NewFront(s.service.URLs(), gate.Fair, rand.Uint64()) }
	return p, nil
}

// proxy is the one that stands before a client of the service.
func (m *member) proxy() *gate.HTTP { return m.gate.(*gate.HTTP) }

// clientRows are the rows of the clients of the service: those of the other libraries, but
// two, and those of what a service has besides. A client of the service keeps each lock by
// itself, which is right for few; and it is no program that runs commands.
func clientRows() []row {
	applicable := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.id == manyRow || r.id == childRow })
	return append(applicable, serviceRows...)
}

var serviceRows = []row{
	{
		id: "twice", title: "Calls carried out twice, and again later", try: carriedOutAgain,
		how: "Half of the calls of two clients, one after the other holder for two and a half leases, are carried " +
			"out twice at once, the rest again within two leases.",
		rule: "each keeps the lock for its time.",
	},
	{
		id: "replay", title: "Calls of a former holder sent again", try: formerReplayed,
		how:  "An attacker sends the heartbeats and releases of a former holder again, twenty a lease.",
		rule: "the other one keeps the lock.",
	},
	{
		id: "bad-gateway", title: "502 for what was done", try: badGateways,
		how:  "Every second call of a holder is carried out, and answered with a 502 and a page of HTML.",
		rule: "the holder keeps the lock for its time, and the other one begins after the work's end.",
	},
	{
		// A start takes the time that it takes on a busy machine.
		id: "restarts", title: "Replicas killed and started again", try: restarts, lease: 2 * usualLease,
		how: "For three leases a replica is killed each 0.3 to 0.6 of a lease, and started again at once. With " +
			"one replica nobody answers until it serves again.",
		rule: "the holder keeps the lock.",
	},
	{
		id: "frozen", title: "Replica stopped and continued",
		how: "A replica is stopped with SIGSTOP for one and a half leases. Its connections stay open. With one " +
			"replica the holder can only give up in time.",
		rule: "the holder keeps the lock, or is told before the other process has it.",
		try: keptOrTold(func(ctx context.Context, s *servedBy) error { return s.Freeze(ctx, 0) },
			func(s *servedBy) error { return s.Thaw(0) }),
	},
	{
		id: "slow-store", title: "Slow store",
		how:  "Each call of a replica to the store takes a thirtieth of a lease longer.",
		rule: "two and a half leases later the holder still has the lock.",
		try: keptUnder(func(_ context.Context, p *pair) error {
			return p.service.each(func(g gate.Gate) { g.Slow(p.lease / 30) })
		}),
	},
	{
		id: "cut-store", title: "Replicas cut off from the store",
		how:  "For one and a half leases nothing that the replicas send reaches the store.",
		rule: "the holder is told before the other process has the lock.",
		try: keptOrTold(func(_ context.Context, s *servedBy) error { return s.each(gate.Gate.BlackHole) },
			func(s *servedBy) error { return s.each(gate.Gate.Heal) }),
	},
	{
		id: "step-down", title: "Asked to step down", try: askedToStepDown,
		how: "A person asks the holder to step down. Its work ends when the client tells it to, and it releases " +
			"the lock. The time is from the request until the work has ended.",
		rule: "the other process gets the lock after the work has ended, within a lease of the request.",
	},
	{
		id: "crash", title: "Crash of a holder", try: crashed,
		how:  "A holder is killed, while another one waits.",
		rule: "the other one gets the lock within two leases of the death.",
	},
}

// each does something to the gates before the store. It has no error.
func (by *servedBy) each(do func(gate.Gate)) error {
	for _, g := range by.stores {
		do(g)
	}
	return nil
}

// successorKeeps has the holder hand over. It is the cell of whether the other one still has
// the lock after a while, in which something is done to the holder's calls.
func (p *pair) successorKeeps(ctx context.Context, meanwhile func(context.Context)) (cell, error) {
	if _, err := p.handsOver(ctx, 0); err != nil {
		return cell{}, err
	}
	during, stop := context.WithCancel(ctx)
	var doing sync.WaitGroup
	defer doing.Wait()
	defer stop()
	doing.Go(func() { meanwhile(during) })
	looked := 5 * p.lease / 2
	if err := wait.For(ctx, looked); err != nil {
		return cell{}, err
	}
	held, err := p.waiter.Holds(ctx, p.name)
	if !held {
		return judged(false, nil, "the other one has lost the lock"), err
	}
	return judged(true, nil, "each kept it for the %s that were looked at", lengthOf(looked)), err
}

// carriedOutAgain has calls of both clients be carried out again.
func carriedOutAgain(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, manner{})
	if err != nil {
		return cell{}, err
	}
	w := gate.Weather{Chance: map[gate.Fault]float64{gate.Double: 0.5, gate.Again: 0.5}, Again: 2 * s.lease}
	if err := errors.Join(p.holder.proxy().Change(w), p.waiter.proxy().Change(w)); err != nil {
		return cell{}, err
	}
	if c, err := p.keeps(ctx); err != nil || c.Verdict != passed {
		return c, err
	}
	return p.successorKeeps(ctx, func(context.Context) {})
}

// formerReplayed has an attacker send the calls of a former holder again.
func formerReplayed(ctx context.Context, s *scene) (cell, error) {
	const seen = 20
	p, err := s.pair(ctx, manner{})
	if err != nil {
		return cell{}, err
	}
	if err := wait.For(ctx, s.lease); err != nil {
		return cell{}, err
	}
	return p.successorKeeps(ctx, func(ctx context.Context) {
		p.holder.proxy().Attack(ctx, s.lease/20, seen, service.IsCall(service.HeartbeatPath, service.ReleasePath))
	})
}

// badGateways has every second call of the holder be answered in the place of the service.
func badGateways(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, manner{})
	if err != nil {
		return cell{}, err
	}
	n := 0
	p.holder.proxy().Strike(gate.Strike{Fault: gate.BadGateway, Of: func(gate.Call) bool {
		n++
		return n%2 == 1
	}})
	if c, err := p.keeps(ctx); err != nil || c.Verdict != passed {
		return c, err
	}
	gap, err := p.handsOver(ctx, 0)
	return judged(gap >= 0, []float64{gap}, "kept; the other one had it %s after the work's end", length(gap)), err
}

// restarts kills replicas, one at a time, and starts them again.
func restarts(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, manner{})
	if err != nil {
		return cell{}, err
	}
	n := 0
	for began := time.Now(); time.Since(began) < 3*s.lease; n++ {
		i := rand.IntN(s.service.Len())
		s.service.Kill(i)
		if err := s.service.Restart(ctx, i); err != nil {
			return cell{}, err
		}
		if err := wait.For(ctx, time.Duration((0.3+0.3*rand.Float64())*float64(s.lease))); err != nil {
			return cell{}, err
		}
	}
	kills, figures := plural(n, "kill"), []float64{float64(n)}
	b, err := p.belief()
	if p.passed() || !b.goesOn() {
		return judged(false, figures, "lost the lock, over %s of a replica", kills), err
	}
	return judged(true, figures, "kept, over %s of a replica", kills), err
}

// keptOrTold is a row of an outage of one and a half leases: a holder whose work goes on
// has kept the lock; one that was told must have been told before the other one had it.
func keptOrTold(begin func(context.Context, *servedBy) error, end func(*servedBy) error) tried {
	return func(ctx context.Context, s *scene) (cell, error) {
		p, err := s.pair(ctx, manner{})
		if err != nil {
			return cell{}, err
		}
		if err := begin(ctx, s.service); err != nil {
			return cell{}, err
		}
		if err := errors.Join(wait.For(ctx, 3*s.lease/2), end(s.service)); err != nil {
			return cell{}, err
		}
		b, err := p.belief()
		if err != nil {
			return cell{}, err
		}
		if b.goesOn() && !p.passed() {
			return judged(true, nil, "kept"), nil
		}
		margin, err := p.margin(ctx)
		return margins([]float64{margin}), err
	}
}

// askedToStepDown has a person ask the holder to step down.
func askedToStepDown(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, manner{})
	if err != nil {
		return cell{}, err
	}
	asked := proc.Monotonic()
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		_, _ = s.service.Post(ctx, 0, s.service.Operator, "/v1/requests", map[string]any{ // what comes of it shows the lock
			"name": p.name, "kind": "step-down", "reason": "a row of the fault table", "wait_ms": s.lease.Milliseconds(),
		})
	})
	granted, err := p.passes(ctx)
	if err != nil {
		return cell{}, err
	}
	b, err := p.over(ctx, s.lease)
	told, gap := milliseconds(b.end-asked), milliseconds(granted-b.end)
	return judged(gap >= 0 && granted-asked < s.lease.Nanoseconds(), []float64{told, gap},
		"the work ended after %s, the successor began %s later", length(told), length(gap)), err
}

// crashed kills a holder while another one waits.
func crashed(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, manner{})
	if err != nil {
		return cell{}, err
	}
	killed := proc.Monotonic()
	p.holder.Kill()
	granted, err := p.passes(ctx)
	return s.gotAfterDeath(granted - killed), err
}

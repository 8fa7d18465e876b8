// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers/service"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// restartLease is that of the row in which replicas are started again: a start takes the time
// that it takes on a busy machine.
const restartLease = 6 * time.Second

// clientRows are the rows of the clients of the service: those of the other libraries, but
// two, and those of what a service has besides.
func clientRows() []row {
	// A client of the service keeps each lock by itself, which is right for few; and it is no
	// program that runs commands.
	applicable := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.id == manyRow || r.id == childRow })
	return append(applicable, serviceRows...)
}

var serviceRows = []row{
	{
		id: "twice", title: "Calls carried out twice, and again later", try: carriedOutAgain,
		how: `Half of the calls of two clients, one after the other holder for two and a half leases,
are carried out twice at once, the rest again within two leases.`,
		rule: "each keeps the lock for its time.",
	},
	{
		id: "replay", title: "Calls of a former holder sent again", try: formerReplayed,
		how:  `An attacker sends the heartbeats and releases of a former holder again, twenty a lease.`,
		rule: "the other one keeps the lock.",
	},
	{
		id: "bad-gateway", title: "502 for what was done", try: badGateways,
		how:  `Every second call of a holder is carried out, and answered with a 502 and a page of HTML.`,
		rule: "the holder keeps the lock for its time, and the other one begins after the work's end.",
	},
	{
		id: "restarts", title: "Replicas killed and started again", try: restarts, lease: restartLease,
		how: `For three leases a replica is killed each 0.3 to 0.6 of a lease, and started again at once. With one
replica nobody answers until it serves again.`,
		rule: "the holder keeps the lock.",
	},
	{
		id: "frozen", title: "Replica stopped and continued", try: frozenReplica,
		how: `A replica is stopped with SIGSTOP for one and a half leases. Its connections stay open. With one
replica the holder can only give up in time.`,
		rule: "the holder keeps the lock, or is told before the other process has it.",
	},
	{
		id: "slow-store", title: "Slow store", try: slowStore,
		how:  "Each call of a replica to the store takes a thirtieth of a lease longer.",
		rule: "two and a half leases later the holder still has the lock.",
	},
	{
		id: "cut-store", title: "Replicas cut off from the store", try: cutStore,
		how:  "For one and a half leases nothing that the replicas send reaches the store.",
		rule: "the holder is told before the other process has the lock.",
	},
	{
		id: "step-down", title: "Asked to step down", try: askedToStepDown,
		how: `A person asks the holder to step down. Its work ends when the client tells it to, and it releases the
lock. The time is from the request until the work has ended.`,
		rule: "the other process gets the lock after the work has ended, within a lease of the request.",
	},
	{
		id: "crash", title: "Crash of a holder", try: crashed,
		how:  "A holder is killed, while another one waits.",
		rule: "the other one gets the lock within two leases of the death.",
	},
}

// change has other weather before both clients.
func (p *pair) change(w gate.Weather) error {
	return errors.Join(p.holder.proxy().Change(w), p.waiter.proxy().Change(w))
}

// handsOver has the holder end its work and release the lock, and returns when the other one
// has it: the instant of the work's end, and that of the grant.
func (p *pair) handsOver(ctx context.Context) (worked, granted int64, err error) {
	if _, err := p.holder.Do(ctx, p.holder.Asking(wire.End, p.name)); err != nil {
		return 0, 0, err
	}
	bound, cancel := context.WithTimeout(ctx, 8*p.lease)
	defer cancel()
	a, err := p.granted.Wait(bound)
	if err != nil {
		return 0, 0, fmt.Errorf("the other one gets the lock: %w", err)
	}
	b, err := p.work.ended(ctx, p.lease)
	return b.end, a.GotNs, err
}

// successorKeeps is the cell of whether the other one, who has the lock, has it after a
// while.
func (p *pair) successorKeeps(ctx context.Context) (cell, error) {
	looked := 5 * p.lease / 2
	if err := wait.For(ctx, looked); err != nil {
		return cell{}, err
	}
	held, err := p.waiter.Holds(ctx, p.name)
	if err != nil || !held {
		return cell{Verdict: failed, Seen: "the other one has lost the lock"}, err
	}
	return cell{Verdict: passed, Seen: fmt.Sprintf("each kept it for the %s that were looked at", length(milliseconds(int64(looked))))}, nil
}

// carriedOutAgain has calls of both clients be carried out again.
func carriedOutAgain(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, ordinary)
	if err != nil {
		return cell{}, err
	}
	if err := p.change(gate.Weather{Chance: map[gate.Fault]float64{gate.Double: 0.5, gate.Again: 0.5}, Again: 2 * s.lease}); err != nil {
		return cell{}, err
	}
	if c, err := p.keeps(ctx); err != nil || c.Verdict != passed {
		return c, err
	}
	if _, _, err := p.handsOver(ctx); err != nil {
		return cell{}, err
	}
	return p.successorKeeps(ctx)
}

// formerReplayed has an attacker send the calls of a former holder again.
func formerReplayed(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, ordinary)
	if err != nil {
		return cell{}, err
	}
	if err := wait.For(ctx, s.lease); err != nil {
		return cell{}, err
	}
	if _, _, err := p.handsOver(ctx); err != nil {
		return cell{}, err
	}
	const seen = 20
	attack, stop := context.WithCancel(ctx)
	var attacking sync.WaitGroup
	defer attacking.Wait()
	defer stop()
	attacking.Go(func() {
		p.holder.proxy().Attack(attack, s.lease/20, seen, service.IsCall(service.HeartbeatPath, service.ReleasePath))
	})
	return p.successorKeeps(ctx)
}

// badGateways has every second call of the holder be answered in the place of the service.
func badGateways(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, ordinary)
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
	worked, granted, err := p.handsOver(ctx)
	if err != nil {
		return cell{}, err
	}
	gap := milliseconds(granted - worked)
	return cell{
		Verdict: judge(gap >= 0), Figures: []float64{gap},
		Seen: fmt.Sprintf("kept; the other one had it %s after the work's end", length(gap)),
	}, nil
}

// restarts kills replicas, one at a time, and starts them again.
func restarts(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, ordinary)
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
	select {
	case <-p.granted.Done():
		return cell{Verdict: failed, Seen: fmt.Sprintf("lost the lock, over %s of a replica", plural(float64(n), "kill"))}, nil
	default:
	}
	held, err := p.working()
	return cell{Verdict: judge(held), Figures: []float64{float64(n)}, Seen: fmt.Sprintf("kept, over %s of a replica", plural(float64(n), "kill"))}, err
}

// working says that the holder's work goes on.
func (p *pair) working() (bool, error) {
	b, err := p.work.read()
	return !b.over() && b.notice == 0, err
}

// frozenReplica stops a replica for a while.
func frozenReplica(ctx context.Context, s *scene) (cell, error) {
	return s.keptOrTold(ctx, func(ctx context.Context, for_ time.Duration) error {
		if err := s.service.Freeze(ctx, 0); err != nil {
			return err
		}
		err := wait.For(ctx, for_)
		return errors.Join(err, s.service.Thaw(0))
	})
}

// cutStore cuts all replicas off from the store for a while.
func cutStore(ctx context.Context, s *scene) (cell, error) {
	return s.keptOrTold(ctx, func(ctx context.Context, for_ time.Duration) error {
		for _, g := range s.service.stores {
			g.BlackHole()
		}
		err := wait.For(ctx, for_)
		for _, g := range s.service.stores {
			g.Heal()
		}
		return err
	})
}

// keptOrTold is the cell of an outage of one and a half leases: a holder whose work goes on
// has kept the lock; one that was told must have been told before the other one had it.
func (s *scene) keptOrTold(ctx context.Context, outage func(context.Context, time.Duration) error) (cell, error) {
	p, err := s.pair(ctx, ordinary)
	if err != nil {
		return cell{}, err
	}
	if err := outage(ctx, 3*s.lease/2); err != nil {
		return cell{}, err
	}
	held, err := p.working()
	if err != nil {
		return cell{}, err
	}
	if held {
		select {
		case <-p.granted.Done():
		default:
			return cell{Verdict: passed, Seen: "kept"}, nil
		}
	}
	o, err := p.passOn(ctx)
	if err != nil {
		return cell{}, err
	}
	return margins([]float64{o.margin()}), nil
}

// slowStore has the store be slow for all replicas.
func slowStore(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, ordinary)
	if err != nil {
		return cell{}, err
	}
	for _, g := range s.service.stores {
		g.Slow(s.lease / 30)
	}
	return p.keeps(ctx)
}

// askedToStepDown has a person ask the holder to step down.
func askedToStepDown(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, ordinary)
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
	bound, cancel := context.WithTimeout(ctx, 8*s.lease)
	defer cancel()
	a, err := p.granted.Wait(bound)
	if err != nil {
		return cell{}, fmt.Errorf("the other one gets the lock: %w", err)
	}
	b, err := p.work.ended(ctx, s.lease)
	if err != nil {
		return cell{}, err
	}
	told, gap := milliseconds(b.end-asked), milliseconds(a.GotNs-b.end)
	return cell{
		Verdict: judge(gap >= 0 && milliseconds(a.GotNs-asked) < milliseconds(int64(s.lease))), Figures: []float64{told, gap},
		Seen: fmt.Sprintf("the work ended after %s, the successor began %s later", length(told), length(gap)),
	}, nil
}

// crashed kills a holder while another one waits.
func crashed(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, ordinary)
	if err != nil {
		return cell{}, err
	}
	killed := proc.Monotonic()
	p.holder.Kill()
	bound, cancel := context.WithTimeout(ctx, 8*s.lease)
	defer cancel()
	a, err := p.granted.Wait(bound)
	if err != nil {
		return cell{}, fmt.Errorf("the other one gets the lock: %w", err)
	}
	took := milliseconds(a.GotNs - killed)
	return cell{
		Verdict: judge(took < milliseconds(int64(2*s.lease))), Figures: []float64{took},
		Seen: fmt.Sprintf("got it %s after the holder's death", length(took)),
	}, nil
}

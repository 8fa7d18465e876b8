// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// pair is a holder at work, and one who waits for its lock in another process.
type pair struct {
	*scene
	name           string
	holder, waiter *member
	work           *hold
	granted        *peers.Call
}

// pair sets the two up, and lets them be for a while that ends at a random moment
// between two heartbeats.
func (s *scene) pair(ctx context.Context, how manner) (*pair, error) {
	p := &pair{scene: s, name: s.lock()}
	var err error
	if p.holder, p.waiter, err = s.two(ctx, how, eager); err != nil {
		return nil, err
	}
	if p.work, err = p.holder.work(ctx, p.name); err != nil {
		return nil, err
	}
	p.granted = p.waiter.Begin(p.waiter.Asking(wire.Acquire, p.name))
	return p, wait.For(ctx, s.beat()+time.Duration(rand.Float64()*float64(s.beat())))
}

// pairs makes runs of a row with a pair each, and returns their figures.
func (s *scene) pairs(ctx context.Context, n int, how manner, run func(ctx context.Context, p *pair, i int) (float64, error)) ([]float64, error) {
	return s.repeat(ctx, n, func(ctx context.Context, i int) (float64, error) {
		p, err := s.pair(ctx, how)
		if err != nil {
			return 0, err
		}
		// What comes later wants the machine for itself.
		defer p.waiter.Kill()
		defer p.holder.Kill()
		return run(ctx, p, i)
	})
}

// over is how a pair ended.
type over struct {
	belief
	granted int64 // to the one who waited
}

// margin is how long before the grant the holder knew.
func (o over) margin() float64 { return milliseconds(o.granted - o.told()) }

// passOn waits until the other one has the lock and the holder has noticed, for
// as long as that could take.
func (p *pair) passOn(ctx context.Context) (o over, err error) {
	bound, cancel := context.WithTimeout(ctx, 8*p.lease)
	defer cancel()
	a, err := p.granted.Wait(bound)
	if err != nil {
		return o, fmt.Errorf("the other one gets the lock: %w", err)
	}
	o.granted = a.GotNs
	o.belief, err = p.work.ended(ctx, 2*p.lease)
	return o, err
}

const cutRuns = 4

// cutOff returns by how much holders knew before others had their locks.
func (s *scene) cutOff(ctx context.Context, n int, how manner, cut func(context.Context, *pair, int) error) ([]float64, error) {
	return s.pairs(ctx, n, how, func(ctx context.Context, p *pair, i int) (float64, error) {
		if err := cut(ctx, p, i); err != nil {
			return 0, err
		}
		o, err := p.passOn(ctx)
		return o.margin(), err
	})
}

func blackHole(ctx context.Context, s *scene) (cell, error) {
	cut := func(_ context.Context, p *pair, _ int) error {
		p.holder.gate.BlackHole()
		return nil
	}
	return s.cutOffs(ctx, cutRuns, releasing, "with ReleaseOnCancel", cut)
}

// slowShares are for how much of the lease the reply is late.
var slowShares = []float64{0.3, 0.6, 0.9}

func slowReply(ctx context.Context, s *scene) (cell, error) {
	cut := func(ctx context.Context, p *pair, i int) error {
		p.holder.gate.SlowThenBlackHole(time.Duration(slowShares[i] * float64(p.lease)))
		return p.strikes(ctx)
	}
	return s.cutOffs(ctx, len(slowShares), unbounded, "without a time-out for requests, as in its example", cut)
}

// lostThenCut loses the reply to a heartbeat, and everything after it.
func lostThenCut(ctx context.Context, s *scene) (cell, error) {
	cut := func(ctx context.Context, p *pair, _ int) error {
		p.holder.gate.LoseReply()
		if err := p.strikes(ctx); err != nil {
			return err
		}
		p.holder.gate.BlackHole()
		return nil
	}
	return s.cutOffs(ctx, 2, ordinary, "", cut)
}

// strikes waits until the fault has hit a request of the holder.
func (p *pair) strikes(ctx context.Context) error {
	return wait.Until(ctx, "the fault hits a heartbeat", func() bool { return !p.holder.gate.Struck().IsZero() })
}

// cutOffs is the cell of a fault that cuts the holder off. Of client-go a variant
// is looked at beside: the verdict is on its defaults.
func (s *scene) cutOffs(ctx context.Context, n int, variant manner, said string, cut func(context.Context, *pair, int) error) (cell, error) {
	figures, err := s.cutOff(ctx, n, ordinary, cut)
	if err != nil {
		return cell{}, err
	}
	c := margins(figures)
	if s.name != kubeName || variant == ordinary {
		return c, nil
	}
	varied, err := s.cutOff(ctx, n, variant, cut)
	if err != nil {
		return cell{}, err
	}
	c.Seen += "; " + said + ": " + margins(varied).Seen
	return c, nil
}

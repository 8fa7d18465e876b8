// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
)

const (
	failoverTime = "crash failover: from SIGKILL to the waiter's grant"
	failoverCost = "crash failover: from SIGKILL to the waiter's grant, one waiter"
)

// chain is a holder that will be killed, and the one who waits for its lock, and
// will be the next to be killed.
type chain struct {
	*stage
	holder, waiter *member
	granted        *peers.Call
	took           []float64
	used           gate.Usage
}

// failover kills holders at random moments between their heartbeats.
func failover(ctx context.Context, r *rig) error {
	t := r.size.failover
	var clients []*peers.Program
	for range r.size.pairs - 1 {
		clients = append(clients, peers.Own(peers.Tenure))
	}
	clients = append(clients, r.clients...)
	chains := make([]*chain, len(clients))
	for i, c := range clients {
		s, err := r.stage(ctx, c, t)
		if err != nil {
			return err
		}
		chains[i] = &chain{stage: s}
	}
	err := r.kill(ctx, chains)
	for _, c := range chains {
		err = errors.Join(err, c.close(ctx))
	}
	if err != nil {
		return err
	}

	took, used := map[string][]float64{}, map[string]gate.Usage{}
	for _, c := range chains {
		took[c.name] = append(took[c.name], c.took...)
		u := used[c.name]
		u.Add(c.used)
		used[c.name] = u
	}
	line := row{Step: "failover", Setting: fmt.Sprintf("%v; killed at random moments between heartbeats, after the waiter has waited for a lease or more", t)}
	for name, took := range took {
		line.Kind = counted
		r.put(line, failoverCost, name, perMillion(used[name].Over(float64(len(took)))))
		line.Kind = timed
		r.put(line, failoverTime, name, value{Spread: newSpread(took)})
	}
	return nil
}

const failoverLock = "crown"

func (r *rig) kill(ctx context.Context, chains []*chain) error {
	for _, c := range chains {
		var err error
		if c.holder, err = c.member(ctx, true); err != nil {
			return err
		}
		if _, err := c.holder.Acquire(ctx, failoverLock); err != nil {
			return err
		}
		if c.waiter, err = c.member(ctx, true); err != nil {
			return err
		}
		if c.granted, err = c.waiter.begin(ctx, failoverLock); err != nil {
			return err
		}
	}
	for round := range r.size.kills {
		last := round == r.size.kills-1
		// One after the other, and before anybody is killed: starting is work.
		next := make([]*member, len(chains))
		for i, c := range chains {
			if last {
				break
			}
			var err error
			if next[i], err = c.member(ctx, true); err != nil {
				return err
			}
		}
		if err := wait.For(ctx, r.size.failover.Lease); err != nil {
			return err
		}
		err := wait.AtOnce(ctx, len(chains), len(chains), func(ctx context.Context, i int) (err error) {
			c := chains[i]
			if err := c.killHolder(ctx); err != nil {
				return fmt.Errorf("%s, kill %d: %w", c.name, round+1, err)
			}
			if last {
				return nil
			}
			c.holder, c.waiter = c.waiter, next[i]
			c.granted, err = c.waiter.begin(ctx, failoverLock)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) killHolder(ctx context.Context) error {
	if err := wait.For(ctx, time.Duration(rand.Float64()*float64(c.Heartbeat))); err != nil {
		return err
	}
	u, err := c.wire.During(func() error {
		killed := proc.Monotonic()
		c.holder.Kill()
		a, err := c.granted.Wait(ctx)
		c.took = append(c.took, milliseconds(a.GotNs-killed))
		return err
	})
	c.used.Add(u)
	return err
}

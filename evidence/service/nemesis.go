// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers/service"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// fault is something that the nemesis does.
type fault struct {
	name        string
	least, most float64 // how long it lasts, in leases
	strike      func(r *round, ctx context.Context, length time.Duration, random *rand.Rand) error
}

// faults are all of them. What the proxies do goes on all the time.
var faults = []fault{
	{"client killed", 0.2, 0.8, (*round).killClient},
	{"client stopped", 0.5, 3, (*round).stopClient},
	{"client stopped and killed", 0.1, 0.5, (*round).stopAndKillClient},
	{"client cut off", 0.5, 2, (*round).cutClient},
	{"replica killed", 0.1, 0.8, (*round).killReplica},
	{"replica stopped", 0.3, 1.5, (*round).stopReplica},
	{"replica ended and started", 0, 0.1, (*round).rollReplica},
	{"store locked", 0.2, 0.7, (*round).lockStore},
	{"step down", 0, 0, (*round).askHolder},
	{"acquire sent again by an attacker", 0, 0, (*round).replayAcquire},
}

// deck are the faults that the nemesis deals.
func (p plan) deck() []fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return len(p.Only) > 0 && !slices.Contains(p.Only, f.name) })
}

// nemesis deals faults until ctx ends, and returns when they are over. Meanwhile attackers
// send what they have seen again.
func (r *round) nemesis(ctx context.Context) {
	var under sync.WaitGroup
	defer under.Wait()
	under.Go(func() { r.attack(ctx, rand.New(rand.NewPCG(r.plan.Seed, 2))) })
	for n := 0; ctx.Err() == nil; n++ {
		deck := n % len(r.deck)
		if deck == 0 {
			r.random.Shuffle(len(r.deck), func(i, j int) { r.deck[i], r.deck[j] = r.deck[j], r.deck[i] })
		}
		f := r.deck[deck]
		length := time.Duration((f.least + r.random.Float64()*(f.most-f.least)) * float64(r.Lease))
		random := rand.New(rand.NewPCG(r.random.Uint64(), 0))
		under.Go(func() {
			// A fault that has begun ends in its own time.
			if err := f.strike(r, context.WithoutCancel(ctx), length, random); err != nil {
				r.trouble("%s: %v", f.name, err)
			}
		})
		wait.Rest(ctx, time.Duration((0.15+0.35*r.random.Float64())*float64(r.Lease)))
	}
}

// attack sends heartbeats and releases again that somebody has seen, of any client.
func (r *round) attack(ctx context.Context, random *rand.Rand) {
	of := service.IsCall(service.HeartbeatPath, service.ReleasePath)
	for wait.For(ctx, r.Lease/20) == nil {
		c := r.seats[random.IntN(len(r.seats))].current()
		if seen := c.front.Captured(of); len(seen) > 0 {
			c.front.Resend(ctx, seen[random.IntN(len(seen))]) // what it does shows the judge
			r.faults.add("heartbeat or release sent again by an attacker", 1)
		}
	}
}

// take takes a seat that is under no fault, and prefers the holder's. Whoever has it gives
// it back.
func (r *round) take(random *rand.Rand) *seat {
	owner, _ := r.holder()
	first := random.IntN(len(r.seats))
	for i, s := range r.seats {
		if s.current().owner == owner && random.IntN(3) > 0 {
			first = i
		}
	}
	for i := range r.seats {
		if s := r.seats[(first+i)%len(r.seats)]; s.busy.TryLock() {
			return s
		}
	}
	return nil
}

func (r *round) onClient(name string, random *rand.Rand, strike func(*seat, *client) error) error {
	s := r.take(random)
	if s == nil {
		return nil
	}
	defer s.busy.Unlock()
	r.faults.add(name, 1)
	c := s.current()
	if !c.Alive() {
		return fmt.Errorf("%s has ended by itself: %v\n%s", c.owner, c.State(), c.Stderr())
	}
	return strike(s, c)
}

func (r *round) killClient(ctx context.Context, length time.Duration, random *rand.Rand) error {
	return r.onClient("client killed", random, func(s *seat, _ *client) error {
		s.kill()
		wait.Rest(ctx, length)
		return s.fill(ctx)
	})
}

func (r *round) stopClient(ctx context.Context, length time.Duration, random *rand.Rand) error {
	return r.onClient("client stopped", random, func(s *seat, c *client) error {
		if err := c.Stop(ctx); err != nil {
			return err
		}
		wait.Rest(ctx, length)
		if err := c.Continue(); err != nil {
			return err
		}
		return s.awake(ctx, c)
	})
}

// awake waits until a client that goes on has had the time to see that its lease is over: a
// kill right then would leave it unknown when it stopped.
func (s *seat) awake(ctx context.Context, c *client) error {
	_, err := c.Do(ctx, c.Asking(wire.Ping, lockName))
	wait.Rest(ctx, s.r.Lease/5)
	return err
}

func (r *round) stopAndKillClient(ctx context.Context, length time.Duration, random *rand.Rand) error {
	return r.onClient("client stopped and killed", random, func(s *seat, c *client) error {
		if err := c.Stop(ctx); err != nil {
			return err
		}
		wait.Rest(ctx, length)
		s.kill()
		return s.fill(ctx)
	})
}

func (r *round) cutClient(ctx context.Context, length time.Duration, random *rand.Rand) error {
	return r.onClient("client cut off", random, func(_ *seat, c *client) error {
		c.front.BlackHole()
		wait.Rest(ctx, length)
		c.front.Heal()
		return nil
	})
}

// onReplica has something happen to a replica, one at a time: the others have to see for a
// lease that a holder is dead.
func (r *round) onReplica(name string, random *rand.Rand, strike func(i int) error) error {
	if !r.replicaBusy.TryLock() {
		return nil
	}
	defer r.replicaBusy.Unlock()
	r.faults.add(name, 1)
	i := random.IntN(r.Replicas.Len())
	if !r.Alive(i) {
		return fmt.Errorf("replica %d has ended by itself:\n%s", i+1, r.Said(i))
	}
	return strike(i)
}

func (r *round) killReplica(ctx context.Context, length time.Duration, random *rand.Rand) error {
	return r.onReplica("replica killed", random, func(i int) error {
		r.Kill(i)
		wait.Rest(ctx, length)
		return r.Restart(ctx, i)
	})
}

func (r *round) stopReplica(ctx context.Context, length time.Duration, random *rand.Rand) error {
	return r.onReplica("replica stopped", random, func(i int) error {
		if err := r.Freeze(ctx, i); err != nil {
			return err
		}
		wait.Rest(ctx, length)
		return r.Thaw(i)
	})
}

// rollReplica ends a replica as a deployment does, and starts it again.
func (r *round) rollReplica(ctx context.Context, length time.Duration, random *rand.Rand) error {
	return r.onReplica("replica ended and started", random, func(i int) error {
		bound, cancel := context.WithTimeout(ctx, wait.Bound)
		defer cancel()
		if err := r.Terminate(bound, i); err != nil {
			return err
		}
		wait.Rest(ctx, length)
		return r.Restart(ctx, i)
	})
}

// lockStore keeps all replicas from writing.
func (r *round) lockStore(ctx context.Context, length time.Duration, _ *rand.Rand) error {
	if !r.storeBusy.TryLock() {
		return nil
	}
	defer r.storeBusy.Unlock()
	r.faults.add("store locked", 1)
	return r.lockFile(ctx, length)
}

// askHolder asks whoever holds the lock to step down. It may have none, or end before.
func (r *round) askHolder(ctx context.Context, _ time.Duration, random *rand.Rand) error {
	_, err := r.Post(ctx, random.IntN(r.Replicas.Len()), r.Operator, "/v1/requests", map[string]any{
		"name": lockName, "kind": "step-down", "reason": "the nemesis wants it",
	})
	if err == nil { // otherwise the replica is under a fault
		r.faults.add("step down", 1)
	}
	return nil
}

// replayAcquire sends an acquire again: a grant to it is nobody's.
func (r *round) replayAcquire(ctx context.Context, _ time.Duration, random *rand.Rand) error {
	c := r.seats[random.IntN(len(r.seats))].current()
	if seen := c.front.Captured(service.IsCall(service.AcquirePath)); len(seen) > 0 {
		c.front.Resend(ctx, seen[random.IntN(len(seen))]) // the same
		r.faults.add("acquire sent again by an attacker", 1)
	}
	return nil
}

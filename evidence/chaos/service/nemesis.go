// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	_ "modernc.org/sqlite" // the driver of the nemesis

	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
	"github.com/tenurelock/tenure/evidence/peers/service"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// fault is something that the nemesis does.
type fault struct {
	name        string
	least, most float64 // how long it lasts, in leases
	strike      func(r *round, ctx context.Context, length time.Duration, random *rand.Rand) (struck bool, err error)
}

// faults are all of them. What the gates do goes on all the time.
var faults = []fault{
	{"client killed", 0.2, 0.8, onClient(killClient)},
	{"client stopped", 0.5, 3, onClient(stopClient)},
	{"client stopped and killed", 0.1, 0.5, onClient(stopAndKillClient)},
	{"client cut off", 0.5, 2, onClient(cutClient)},
	{"replica killed", 0.1, 0.8, onReplica(killReplica)},
	{"replica stopped", 0.3, 1.5, onReplica(stopReplica)},
	{"replica ended and started", 0, 0.1, onReplica(rollReplica)},
	{"store locked", 0.2, 0.7, (*round).lockStore},
	{"step down", 0, 0, (*round).askHolder},
	{"acquire sent again by an attacker", 0, 0, (*round).replayAcquire},
}

// nemesis deals faults until ctx ends, and returns when they are over. Meanwhile attackers
// send what they have seen again.
func (r *round) nemesis(ctx context.Context) {
	var deck []trial.Fault
	for _, f := range faults {
		if len(r.Only) > 0 && !slices.Contains(r.Only, f.name) {
			continue
		}
		in := func(leases float64) time.Duration { return time.Duration(leases * float64(r.Lease)) }
		deck = append(deck, trial.Fault{
			Least: in(f.least), Most: in(f.most),
			Strike: func(ctx context.Context, length time.Duration, random *rand.Rand) {
				struck, err := f.strike(r, ctx, length, random)
				if err != nil {
					r.trouble("%s: %v", f.name, err)
				} else if struck {
					r.struck.Add(f.name, 1)
				}
			},
		})
	}
	attacked := make(chan struct{})
	go func() {
		defer close(attacked)
		r.attack(ctx, rand.New(rand.NewPCG(r.Seed, 2)))
	}()
	trial.Deal(ctx, deck, r.Lease*15/100, r.Lease/2, r.random)
	<-attacked
}

// attack sends heartbeats and releases again that somebody has seen, of any client.
func (r *round) attack(ctx context.Context, random *rand.Rand) {
	for wait.For(ctx, r.Lease/20) == nil {
		if r.replay(ctx, random, service.HeartbeatPath, service.ReleasePath) {
			r.struck.Add("heartbeat or release sent again by an attacker", 1)
		}
	}
}

// replay sends a call to one of these paths again.
func (r *round) replay(ctx context.Context, random *rand.Rand, paths ...string) bool {
	front := r.seats[random.IntN(len(r.seats))].current().front
	seen := front.Captured(service.IsCall(paths...))
	if len(seen) > 0 {
		front.Resend(ctx, seen[random.IntN(len(seen))]) // what it does shows the judge
	}
	return len(seen) > 0
}

// replayAcquire sends an acquire again: a grant to it is nobody's.
func (r *round) replayAcquire(ctx context.Context, _ time.Duration, random *rand.Rand) (bool, error) {
	return r.replay(ctx, random, service.AcquirePath), nil
}

// onClient has something happen to a client that is under no other fault. It prefers the
// holder.
func onClient(do func(context.Context, *seat, time.Duration) error) func(*round, context.Context, time.Duration,
	*rand.Rand) (bool, error) {
	return func(r *round, ctx context.Context, length time.Duration, random *rand.Rand) (bool, error) {
		owner, _ := r.holder()
		first := random.IntN(len(r.seats))
		for i, s := range r.seats {
			if s.current().owner == owner && random.IntN(3) > 0 {
				first = i
			}
		}
		for i := range r.seats {
			s := r.seats[(first+i)%len(r.seats)]
			if !s.busy.TryLock() {
				continue
			}
			defer s.busy.Unlock()
			if c := s.current(); !c.Alive() {
				return true, fmt.Errorf("%s has ended by itself: %v\n%s", c.owner, c.State(), c.Stderr())
			}
			return true, do(ctx, s, length)
		}
		return false, nil
	}
}

func killClient(ctx context.Context, s *seat, length time.Duration) error {
	s.kill()
	wait.Rest(ctx, length)
	return s.fill(ctx)
}

// stopClient stops a client and has it go on. It has the time then to see that its lease is
// over: a kill right away would leave it unknown when it stopped.
func stopClient(ctx context.Context, s *seat, length time.Duration) error {
	c := s.current()
	if err := c.Stop(ctx); err != nil {
		return err
	}
	wait.Rest(ctx, length)
	if err := c.Continue(); err != nil {
		return err
	}
	_, err := c.Do(ctx, c.Asking(wire.Ping, lockName))
	wait.Rest(ctx, s.Lease/5)
	return err
}

func stopAndKillClient(ctx context.Context, s *seat, length time.Duration) error {
	if err := s.current().Stop(ctx); err != nil {
		return err
	}
	return killClient(ctx, s, length)
}

func cutClient(ctx context.Context, s *seat, length time.Duration) error {
	c := s.current()
	c.front.BlackHole()
	wait.Rest(ctx, length)
	c.front.Heal()
	return nil
}

// onReplica has something happen to a replica, one at a time: the others have to see for a
// lease that a holder is dead.
func onReplica(do func(context.Context, *service.Replicas, int, time.Duration) error) func(*round,
	context.Context, time.Duration, *rand.Rand) (bool, error) {
	return func(r *round, ctx context.Context, length time.Duration, random *rand.Rand) (bool, error) {
		if !r.replicaBusy.TryLock() {
			return false, nil
		}
		defer r.replicaBusy.Unlock()
		i := random.IntN(r.replicas.Len())
		if !r.replicas.Alive(i) {
			return true, fmt.Errorf("replica %d has ended by itself:\n%s", i+1, r.replicas.Said(i))
		}
		return true, do(ctx, r.replicas, i, length)
	}
}

func killReplica(ctx context.Context, r *service.Replicas, i int, length time.Duration) error {
	r.Kill(i)
	wait.Rest(ctx, length)
	return r.Restart(ctx, i)
}

func stopReplica(ctx context.Context, r *service.Replicas, i int, length time.Duration) error {
	if err := r.Freeze(ctx, i); err != nil {
		return err
	}
	wait.Rest(ctx, length)
	return r.Thaw(i)
}

// rollReplica ends a replica as a deployment does, and starts it again.
func rollReplica(ctx context.Context, r *service.Replicas, i int, length time.Duration) error {
	bound, cancel := context.WithTimeout(ctx, wait.Bound)
	defer cancel()
	if err := r.Terminate(bound, i); err != nil {
		return err
	}
	wait.Rest(ctx, length)
	return r.Restart(ctx, i)
}

// lockStore keeps all replicas from writing the store's file for a while.
func (r *round) lockStore(ctx context.Context, length time.Duration, _ *rand.Rand) (bool, error) {
	if !r.storeBusy.TryLock() {
		return false, nil
	}
	defer r.storeBusy.Unlock()
	db, err := sql.Open("sqlite", "file:"+r.file+"?_pragma=busy_timeout(2000)")
	if err != nil {
		return false, err
	}
	defer db.Close() //nolint:errcheck // nothing was written
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close() //nolint:errcheck // given back
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return false, nil //nolint:nilerr // the replicas write all the time: it was not got in two seconds
	}
	wait.Rest(ctx, length)
	_, err = conn.ExecContext(ctx, "ROLLBACK")
	return true, err
}

// askHolder asks whoever holds the lock to step down. It may have none, or end before; and
// the replica that is asked may be under a fault.
func (r *round) askHolder(ctx context.Context, _ time.Duration, random *rand.Rand) (bool, error) {
	_, err := r.replicas.Post(ctx, random.IntN(r.replicas.Len()), r.replicas.Operator, "/v1/requests", map[string]any{
		"name": lockName, "kind": "step-down", "reason": "the nemesis wants it",
	})
	return err == nil, nil
}

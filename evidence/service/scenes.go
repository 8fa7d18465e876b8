// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/holds"
	"github.com/tenurelock/tenure/evidence/peers/service"
)

// scene is a few faults in their order, by which the breach of one rule comes to light. It
// returns what was wrong.
type scene struct {
	name     string
	replicas int
	lease    time.Duration
	play     func(context.Context, *act) ([]string, error)
}

// act is a scene that is being played.
type act struct {
	*stage
	one *peers.Program // the client that is looked at
	two *peers.Program // another one, which is right
}

// The names of the scenes.
const (
	noBeatScene   = "no heartbeat after the grant"
	repeatScene   = "heartbeat confirmed when it is repeated"
	lateScene     = "heartbeats that come through after the deadline"
	releaseScene  = "502 for a release that was applied"
	cacheScene    = "GETs from a cache while heartbeats are lost"
	deadScene     = "calls of a dead holder sent again and again"
	replicasScene = "holder and waiter at two replicas"
	revivedScene  = "heartbeat that arrives after the release"
	stepDownScene = "request to step down"
	tokenScene    = "heartbeat with another token"
	goneScene     = "waiters that go away"
)

// scenes are all of them.
var scenes = []scene{
	{noBeatScene, 1, 4 * time.Second, unconfirmed},
	{repeatScene, 1, 15 * time.Second, repeated},
	{lateScene, 1, 3 * time.Second, lateBeats},
	{releaseScene, 1, 4 * time.Second, releasedUnseen},
	{cacheScene, 1, 4 * time.Second, cachedLeader},
	{deadScene, 2, 3 * time.Second, deadHolder},
	{replicasScene, 2, 3 * time.Second, twoReplicas},
	{revivedScene, 1, 6 * time.Second, beatAfterRelease},
	{stepDownScene, 1, 4 * time.Second, stepDown},
	{tokenScene, 1, 3 * time.Second, otherToken},
	{goneScene, 1, 6 * time.Second, waitersGone},
}

// long is a time that no scene takes.
const long = 5 * time.Minute

// first starts the client that is looked at, and second the other one, in fair weather.
func (a *act) first(ctx context.Context) (*client, error) {
	return a.client(ctx, a.one, newOwner(a.one.Kind), gate.Fair, 1)
}

func (a *act) second(ctx context.Context) (*client, error) {
	return a.client(ctx, a.two, newOwner(a.two.Kind), gate.Fair, 2)
}

// at starts a client whose calls go to one replica.
func (a *act) at(ctx context.Context, i int, program *peers.Program) (*client, error) {
	front, err := service.NewFront(a.URLs()[i:i+1], gate.Fair, uint64(i))
	if err != nil {
		return nil, err
	}
	return a.clientAt(ctx, program, newOwner(program.Kind), front)
}

// working has the first client hold the lock for as long as it may.
func (a *act) working(ctx context.Context) (*client, error) {
	one, err := a.first(ctx)
	if err != nil {
		return nil, err
	}
	one.Begin(a.work(long, 0))
	return one, a.until(ctx, "begin", one)
}

// successor has the other client wait for the lock and hold it.
func (a *act) successor(ctx context.Context) (*client, error) {
	two, err := a.second(ctx)
	if err != nil {
		return nil, err
	}
	two.Begin(a.work(long, 0))
	return two, nil
}

// until waits until a client has written a word to the log.
func (a *act) until(ctx context.Context, word string, c *client) error {
	var err error
	came := wait.Within(ctx, wait.Bound, func() bool {
		var text []byte
		text, err = os.ReadFile(a.log)
		return err != nil || strings.Contains(string(text), word+" "+c.owner+" ")
	})
	if err == nil && !came {
		err = fmt.Errorf("%s has not written %q", c.owner, word)
	}
	return err
}

// overlaps lets the successor hold the lock for a while, ends all, and returns what is wrong
// with the holds and the effects.
func (a *act) overlaps(ctx context.Context, two *client, for_ time.Duration) ([]string, error) {
	if err := a.until(ctx, "begin", two); err != nil {
		return nil, err
	}
	if err := wait.For(ctx, for_); err != nil {
		return nil, err
	}
	return a.judged(ctx)
}

// judged ends all clients, and returns what is wrong.
func (a *act) judged(ctx context.Context) ([]string, error) {
	for _, c := range a.clients {
		c.Kill()
		a.died(c.owner)
	}
	p, bad, err := a.past(ctx)
	if err != nil {
		return nil, err
	}
	v := &verdict{Wrong: holds.Wrong(p.Holds)}
	v.judgeEffects(p)
	v.judgeHistory(p)
	return append(v.Wrong, bad...), nil
}

// strike has all heartbeats have a fault.
func (c *client) strike(fault gate.Fault) *gate.Strike {
	return c.front.Strike(gate.Strike{Fault: fault, Of: service.IsCall(service.HeartbeatPath)})
}

// unconfirmed: no heartbeat arrives after the grant.
func unconfirmed(ctx context.Context, a *act) ([]string, error) {
	one, err := a.first(ctx)
	if err != nil {
		return nil, err
	}
	lost := one.strike(gate.LoseRequest)
	one.Begin(a.work(long, 0))
	if err := lost.Hit(ctx); err != nil {
		return nil, err
	}
	two, err := a.successor(ctx)
	if err != nil {
		return nil, err
	}
	return a.overlaps(ctx, two, a.Lease/2)
}

// repeated: a heartbeat is applied and its answer lost; a repetition of it comes through
// after two fifths of the lease, before the client has to give up; nothing does after that.
func repeated(ctx context.Context, a *act) ([]string, error) {
	one, err := a.working(ctx)
	if err != nil {
		return nil, err
	}
	two, err := a.successor(ctx)
	if err != nil {
		return nil, err
	}
	applied := one.front.Strike(gate.Strike{Fault: gate.LoseAnswer, Of: service.IsCall(service.HeartbeatPath), Times: 1})
	opens := make(chan struct{}, 1) // has one in it when one call may pass
	lost := func(c gate.Call) bool {
		if c.Path != service.HeartbeatPath {
			return false
		}
		select {
		case <-opens:
			return false
		default:
			return true
		}
	}
	one.front.Strike(gate.Strike{Fault: gate.LoseRequest, Of: lost})
	if err := applied.Hit(ctx); err != nil {
		return nil, err
	}
	if err := wait.For(ctx, a.Lease*2/5); err != nil {
		return nil, err
	}
	opens <- struct{}{}
	return a.overlaps(ctx, two, a.Lease/2)
}

// lateBeats: heartbeats are lost until the client has given up, and come through then.
func lateBeats(ctx context.Context, a *act) ([]string, error) {
	one, err := a.working(ctx)
	if err != nil {
		return nil, err
	}
	lost := one.strike(gate.LoseRequest)
	if err := a.until(ctx, "end", one); err != nil {
		return nil, err
	}
	one.front.Lift(lost)
	if err := wait.For(ctx, a.Lease); err != nil {
		return nil, err
	}
	return a.judged(ctx)
}

// releasedUnseen: the release is applied, and answered with a 502.
func releasedUnseen(ctx context.Context, a *act) ([]string, error) {
	one, err := a.first(ctx)
	if err != nil {
		return nil, err
	}
	one.Begin(a.work(a.Lease/2, 0))
	if err := a.until(ctx, "begin", one); err != nil {
		return nil, err
	}
	two, err := a.successor(ctx)
	if err != nil {
		return nil, err
	}
	done := one.front.Strike(gate.Strike{Fault: gate.BadGateway, Of: service.IsCall(service.ReleasePath), Times: 1})
	if err := done.Hit(ctx); err != nil {
		return nil, err
	}
	// A heartbeat would tell a client that is wrong, too.
	one.strike(gate.LoseRequest)
	return a.overlaps(ctx, two, a.Lease/2)
}

// cachedLeader: heartbeats are lost, and each GET is answered from the cache.
func cachedLeader(ctx context.Context, a *act) ([]string, error) {
	cache := gate.Weather{Chance: map[gate.Fault]float64{gate.Cached: 1}}
	one, err := a.client(ctx, a.one, newOwner(a.one.Kind), cache, 1)
	if err != nil {
		return nil, err
	}
	one.Begin(a.work(long, 0))
	if err := a.until(ctx, "begin", one); err != nil {
		return nil, err
	}
	one.strike(gate.LoseRequest)
	two, err := a.successor(ctx)
	if err != nil {
		return nil, err
	}
	return a.overlaps(ctx, two, a.Lease/2)
}

// twoReplicas: the holder's calls go to one replica, and the waiter's to another.
func twoReplicas(ctx context.Context, a *act) ([]string, error) {
	one, err := a.at(ctx, 0, a.one)
	if err != nil {
		return nil, err
	}
	one.Begin(a.work(long, 0))
	if err := a.until(ctx, "begin", one); err != nil {
		return nil, err
	}
	two, err := a.at(ctx, 1, a.two)
	if err != nil {
		return nil, err
	}
	two.Begin(a.work(long, 0))
	if err := wait.For(ctx, 5*a.Lease/2); err != nil {
		return nil, err
	}
	return a.judged(ctx)
}

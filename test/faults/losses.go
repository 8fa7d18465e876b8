// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/relay"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/redis"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// loss is a way in which Redis loses what it has answered.
type loss struct {
	setup redis.Setup
	how   string // what the URL of Tenure's store says of its replicas
	// lags comes before what is lost. It may be nil.
	lags    func(*redis.Servers)
	strikes func(context.Context, *redis.Servers)
	stays   bool // the holder stays with the server that was primary
	chance  bool // what was answered last may be kept
	emptied bool // the store is gone
}

// replicated is the set-up that docs/guides/redis.md advises: any one of three servers may be lost.
var replicated = redis.Setup{Replicas: 2}

const byQuorum = "&replicas=2&quorum=true&lag=1s"

var (
	failover = loss{
		setup: replicated, how: byQuorum, lags: (*redis.Servers).Lag,
		strikes: func(ctx context.Context, s *redis.Servers) { s.FailOver(ctx) },
	}
	powerCut = loss{
		setup: redis.Setup{Fsync: "everysec"}, chance: true,
		strikes: func(ctx context.Context, s *redis.Servers) { s.PowerCut(ctx, 0) },
	}
	emptied = loss{
		emptied: true,
		strikes: func(ctx context.Context, s *redis.Servers) { s.Empty(ctx, 0) },
	}
	isolated = loss{
		setup: replicated, how: byQuorum, stays: true,
		strikes: func(ctx context.Context, s *redis.Servers) {
			s.Isolate()
			s.Promote(ctx)
		},
	}
)

// lossRows are the rows of what Redis loses.
var lossRows = []row{
	{named: named{"fail-over", "Failover to a replica that lags"}, try: failover.try},
	{named: named{"power-cut", "Power cut, with everysec"}, try: powerCut.try},
	{named: named{"emptied", "Restart without data"}, try: emptied.try},
	{named: named{"isolated", "Primary that is cut off and goes on"}, try: isolated.try},
}

// way is the loss under programs at work.
func (l loss) way(id, title string) way {
	return way{named{id, title}, func(ctx context.Context, s *fixture) losing { return losingRedis{s.lossy(ctx, l), l} }}
}

// losingRedis are servers of Redis that lose writes again and again.
type losingRedis struct {
	*redis.Servers
	by loss
}

func (r losingRedis) lags(ctx context.Context) {
	if r.by.lags != nil {
		r.by.lags(r.Servers)
		must.Do(wait.For(ctx, 300*time.Millisecond+rand.N(900*time.Millisecond)))
	}
}

func (r losingRedis) strikes(ctx context.Context) { r.by.strikes(ctx, r.Servers) }

func (r losingRedis) moves(_ context.Context, members []*member, now *struck) {
	for _, m := range members {
		m.aim(r.Primary())
	}
	now.up = proc.Monotonic()
}

// try has a holder work, and another one wait, when writes are lost.
func (l loss) try(ctx context.Context, s *fixture) (found cell) {
	const runs, most = 3, 8
	var figures []float64
	refused := false
	for n := 0; len(figures) < runs; n++ {
		if n == most {
			must.Do(fmt.Errorf("only %d of %d losses were of the lock", len(figures), n))
		}
		s.Run(func() {
			servers := s.lossy(ctx, l)
			figure, no := l.run(ctx, s, servers)
			if figure != nil {
				figures = append(figures, *figure)
			}
			refused = refused || no
		})
	}
	found = margins(figures)
	if refused {
		found.Seen += "; nobody gets it until a person creates the store again"
	}
	return found
}

// lossy starts servers, and has the place of the fixture be there.
func (s *fixture) lossy(ctx context.Context, l loss) *redis.Servers {
	setup := l.setup
	setup.Dir = must.Have(os.MkdirTemp(s.dir, "redis-"))
	servers := redis.Start(ctx, setup)
	s.After(servers.Close)
	s.place = s.redisAt(servers.Primary())
	if s.ours {
		s.place = s.storeAt(ctx, servers.Primary(), l.how)
	}
	servers.Spread(ctx)
	return servers
}

// run returns how long before another one's grant the holder was told, nil if the lock was not lost;
// and whether nobody is granted it until the store is created again.
func (l loss) run(ctx context.Context, s *fixture, servers *redis.Servers) (figure *float64, refused bool) {
	if l.lags != nil {
		l.lags(servers)
	}
	p := s.working(ctx, manner{})
	defer p.waiter.Kill()
	defer p.holder.Kill()
	if !l.chance {
		p.waits()
		must.Do(wait.For(ctx, s.beat()/2))
	}
	l.strikes(ctx, servers)
	if l.chance && s.has(ctx, servers, p.name) {
		return nil, false
	}
	p.waiter.aim(servers.Primary())
	if !l.stays {
		p.holder.aim(servers.Primary())
	}
	if l.chance {
		p.waits()
	}
	if l.emptied && s.ours {
		p.isRefused(ctx)
		// As docs/guides/redis.md says: the store is made again when all leases are over.
		must.Do(wait.For(ctx, s.lease))
		store := s.store(servers.Primary())
		create(ctx, store)
		must.Do(store.Close())
		p.waiter.Kill()
		p.waiter = s.member(ctx, manner{})
		p.waits()
		refused = true
	}
	margin := p.margin(ctx)
	return &margin, refused
}

// has reports whether the server has the record of a lock.
func (s *fixture) has(ctx context.Context, servers *redis.Servers, lock string) bool {
	return must.Have(servers.Client().Exists(ctx, s.recordKey(lock)).Result()) > 0
}

// recordKey is where the record of a lock is.
func (s *fixture) recordKey(lock string) string {
	if s.ours {
		return "{" + s.table + "}:r:" + lock
	}
	return lock
}

// aim has a member find its server at another address.
func (m *member) aim(address string) {
	m.gate.(*relay.Relay).Aim(address) //nolint:forcetypeassert // those of Redis are such
}

// isRefused waits until the waiter has got an error.
func (p *pair) isRefused(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 8*p.lease)
	defer cancel()
	_, err := p.granted.Wait(ctx)
	if !refusedAs(err, wire.Other) {
		must.Do(errors.Join(errors.New("the waiter is granted the lock, where the store is gone"), err))
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest/relay"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/redis"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
)

// redisSetups are the engines that are Redis, by the names that -engines takes: a server that
// loses its last writes in a power cut, a server that loses nothing, and a server with replicas.
var redisSetups = map[string]struct {
	redis.Setup
	how string // what the URL says, behind the address
}{
	"redis":          {redis.Setup{Fsync: "everysec"}, "?lease=%v"},
	"redis-single":   {redis.Setup{Fsync: "always"}, "?mode=single"},
	"redis-replicas": {redis.Setup{Replicas: 2}, "?lease=%v&replicas=2&quorum=true&lag=1s"},
}

// lossy is a Redis. Each replica reaches its primary through its own gate.
type lossy struct {
	*served
	servers *redis.Servers
	waits   time.Duration // for which nobody is granted a lock after a loss
	silent  time.Duration // until the first write after a silence is accepted
}

// confirmed is how long replicas and a retry may take until a write is accepted that comes after Lag and 2 s
// without any, as after the death of a lone holder: see docs/guides/redis.md.
const confirmed = 2 * time.Second

func openRedis(ctx context.Context, p plan, dir string, scope *peers.Scope) *lossy {
	setup := redisSetups[p.Engine]
	setup.Dir = filepath.Join(dir, "redis")
	must.Do(os.Mkdir(setup.Dir, 0o700))
	how := setup.how
	if setup.Fsync != "always" {
		how = fmt.Sprintf(how, p.Lease)
	}
	e := &lossy{servers: redis.Start(ctx, setup.Setup)}
	scope.After(e.servers.Close)
	first := &member{address: e.servers.Primary(), process: e.servers.Process()}
	e.served = &served{members: []*member{first}, server: server{
		name: "redis", addresses: []string{first.address}, leads: alone,
		url:     func(addresses []string) string { return "redis:" + addresses[0] + how },
		replace: func(ctx context.Context, _ *served, _ int) { e.again(ctx) },
	}}
	for range p.Seats {
		g := must.Have(relay.New(first.address))
		scope.After(g.Close)
		first.gates = append(first.gates, g)
	}
	store := e.create(ctx)
	e.waits = store.(driver.Guarded).Waits() //nolint:forcetypeassert // its package says so
	if setup.Replicas > 0 {
		e.silent = confirmed
	}
	must.Do(store.Close())
	e.servers.Spread(ctx) // what is lost is not the store
	return e
}

// create makes the store.
func (e *lossy) create(ctx context.Context) driver.Store {
	store := replica.OpenStore(e.store(-1), "")
	made := store.(driver.Provisioner) //nolint:forcetypeassert // its package says so
	must.Have(made.Create(ctx, driver.CreateOptions{}))
	return store
}

// faults are those of all servers, and the ways in which this one loses what it has answered.
func (e *lossy) faults() []fault {
	all := e.served.faults()
	loss := func(k kind, least, most float64, f func(context.Context, time.Duration)) {
		strike := exclusive(&e.busy, func(ctx context.Context, length time.Duration, _ int) {
			f(context.WithoutCancel(ctx), length)
			e.follow(nil)
		})
		all = append(all, slices.Repeat([]fault{{k, nobody, least, most, strike}}, 2)...)
	}
	if e.servers.Replicas > 0 {
		loss(failOver, 0.2, 0.8, func(ctx context.Context, length time.Duration) {
			e.servers.Lag()
			wait.Rest(ctx, length)
			e.servers.FailOver(ctx)
			e.follow(nil)
			e.servers.Rejoin(ctx)
		})
		loss(isolate, 0.5, 3, func(ctx context.Context, length time.Duration) {
			e.servers.Isolate()
			e.servers.Promote(ctx)
			e.follow(func(seat int) bool { return seat%2 == 1 }) // the others stay
			wait.Rest(ctx, length)
			e.servers.Rejoin(ctx)
		})
	}
	if e.servers.Fsync == "everysec" {
		loss(powerCut, 0.02, 0.5, func(ctx context.Context, length time.Duration) { e.servers.PowerCut(ctx, length) })
	}
	return all
}

// again replaces the primary that was killed: by a replica, or on its data.
func (e *lossy) again(ctx context.Context) {
	if e.servers.Replicas > 0 {
		e.servers.Promote(ctx)
		e.servers.Rejoin(ctx)
	} else {
		e.servers.Restart(ctx, 0)
	}
	e.follow(nil)
}

// follow takes replicas to the primary, all if the function is nil.
func (e *lossy) follow(these func(seat int) bool) {
	m := e.members[0]
	m.address, m.process, e.addresses[0] = e.servers.Primary(), e.servers.Process(), e.servers.Primary()
	for seat, g := range m.gates {
		if these == nil || these(seat) {
			g.Aim(m.address)
		}
	}
}

// emptied is the fault of a server that starts without its data. What a person must do then is done:
// all programs are stopped, the store is created again, and tokens are raised above all that were granted.
func (w *replicas) emptied(e *lossy) strike {
	return exclusive(&e.busy, func(ctx context.Context, length time.Duration, _ int) {
		ctx = context.WithoutCancel(ctx)
		for _, s := range w.seats {
			s.busy.Lock()
			defer s.busy.Unlock()
		}
		e.servers.Empty(ctx, 0)
		e.follow(nil)
		wait.Rest(ctx, w.Lease+length)
		if h := w.holder(); h.process != nil && h.Alive() {
			w.trouble("%s holds the lock, and the store is gone for longer than a lease", h.name)
		}
		for _, s := range w.seats {
			s.now().kill(w.now)
		}
		w.recreate(ctx, e)
		w.each(ctx, func(s *seat) { w.fill(ctx, s, nil) })
	})
}

func (w *replicas) recreate(ctx context.Context, e *lossy) {
	store := e.create(ctx)
	client := must.Have(tenure.New(store, &tenure.Options{LeaseDuration: w.Lease, Owner: "operator"}))
	lease := must.Have(client.Acquire(ctx, replica.LockName, nil))
	must.Do(lease.Release(ctx))
	w.mu.Lock()
	highest := w.highest[replica.LockName]
	w.mu.Unlock()
	must.Have(admin.RaiseTokens(ctx, client, "", highest+1, nil))
	must.Do(errors.Join(client.Close(ctx), store.Close()))
	e.servers.Spread(ctx)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/postgres"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
)

const (
	// settled is when a guarded primary that was cut off takes no writes any more.
	settled = postgres.SenderTimeout + 2*time.Second
	// staying is how long at least a program stays with such a primary: longer than nobody is granted a lock.
	staying = usualLease + settled*11/10 + time.Second
	// watchdogBound is for how long after a promotion Patroni's watchdog lets an old primary live.
	watchdogBound = 5 * time.Second
)

// splits are the ways in which PostgreSQL loses writes: a primary is cut off and goes on, and its standby, which lags,
// is promoted. Each has the parameters of the store's URL.
var (
	byStandbys = split{
		standbys: 2, how: "&guard=standbys&need=1&of=2&wal_sender_timeout=" + postgres.SenderTimeout.String(),
	}
	byWatchdog = split{standbys: 1, how: "&guard=patroni-watchdog", watchdog: true}
	unguarded  = split{standbys: 1, how: "&standbys=accept"}
)

var postgresLosses = losses{
	tableOf("postgres losses", "go run ./test/faults -postgres -losses 50", nil, nil).Part,
	[]way{
		byStandbys.way("standbys", "`guard=standbys&need=1&of=2`"),
		byWatchdog.way("watchdog", "`guard=patroni-watchdog`"),
		unguarded.way("unguarded", "without a guard"),
	},
	[]column{onStore(column{named: named{"tenure-postgres", "Tenure"}, engine: postgreSQL})},
}

// split is a way in which two servers of PostgreSQL are primaries at the same time.
type split struct {
	standbys int
	how      string
	watchdog bool // ends the old primary
}

func (l split) guarded() bool { return l.how != unguarded.how }

func (l split) way(id, title string) way {
	return way{named{id, title}, func(ctx context.Context, s *fixture) losing {
		dir := must.Have(os.MkdirTemp(s.dir, "postgres-"))
		must.Do(errors.Join(os.Chmod(s.dir, 0o711), os.Chmod(dir, 0o711))) // for the servers' user
		servers := postgres.Start(ctx, dir, l.standbys)
		s.After(servers.Close)
		how := l.how
		if l.guarded() {
			how += "&lease=" + s.lease.String()
		}
		s.place = s.storeAt(ctx, servers.Primary(), how)
		return &splitting{servers, l}
	}}
}

// splitting are servers that are split again and again.
type splitting struct {
	*postgres.Servers
	by split
}

func (l *splitting) lags(ctx context.Context) {
	l.Lag()
	must.Do(wait.For(ctx, 300*time.Millisecond+rand.N(900*time.Millisecond)))
}

func (l *splitting) strikes(ctx context.Context) { l.Promote(ctx) }

// moves has one program find the new primary at once, a second one soon, a third before or after the old primary has
// stopped, and a fourth when locks are granted again.
func (l *splitting) moves(ctx context.Context, members []*member, now *struck) {
	type step struct {
		after time.Duration
		do    func()
	}
	stopped, stays := time.Duration(now.lagged-now.at)+postgres.SenderTimeout, staying+rand.N(time.Second)
	var steps []step
	switch {
	case l.by.watchdog:
		stopped = rand.N(watchdogBound)
		stays = stopped + rand.N(2*time.Second)
		now.up = now.at + stopped.Nanoseconds()
		steps = append(steps, step{stopped, func() {
			l.End()
			now.up = proc.Monotonic()
		}})
	case l.by.guarded():
		now.up = now.at + settled.Nanoseconds()
	default: // both grant
		now.up, stopped = now.at, stays
	}
	now.stopped, now.moved = now.at+stopped.Nanoseconds(), map[string]int64{}
	for i, n := range rand.Perm(len(members)) {
		after := []time.Duration{0, rand.N(time.Second), rand.N(settled), stays}[i]
		steps = append(steps, step{after, func() {
			members[n].aim(l.Primary())
			now.moved[members[n].owner] = proc.Monotonic()
		}})
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.after, b.after) })
	for _, next := range steps {
		must.Do(wait.For(ctx, next.after-time.Duration(proc.Monotonic()-now.at)))
		next.do()
	}
}

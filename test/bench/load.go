// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
)

// The rows, as the page names them.
const (
	contended  = "pairs a second, 16 callers, 4 locks"
	handedOver = "hand-over, median, ms"
	beats      = "heartbeats a second"
	batches    = beats + ", 100 a call"
	memory     = "memory a lock, bytes"
	processor  = "processor, s a minute"

	underOne = ", all locks under one session"
)

// serviceLease is the lease of all locks.
const serviceLease = time.Minute

// callers are how many make pairs at once, in one step after the other.
var callers = []int{1, 16, 64}

const (
	beatCallers   = 64
	holdCallers   = 32
	batchCallers  = 4 // of 100 heartbeats each: a principal may have 500 under way
	warmUp        = 200 * time.Millisecond
	waitsForSure  = 20 * time.Millisecond
	heartbeatPart = 5 // a heartbeat each fifth of the lease, as the service asks for
)

func pairsRow(callers int) string {
	if callers == 1 {
		return "pairs a second, 1 caller"
	}
	return fmt.Sprintf("pairs a second, %d callers", callers)
}

// Peers returns the measured peers, in the order of the page.
func (p *part) Peers() []string {
	return slices.DeleteFunc([]string{gateway, oneLease, consulName, onEtcd, onSQLite}, func(name string) bool {
		return p.row(contended).Values[name].Spread == nil
	})
}

// load is a run with all peers of the service.
type load struct {
	*harness
	rounds int
	length time.Duration // of a run of pairs, and of heartbeats
	held   int           // locks that are held at once
	hold   time.Duration // how long
	beaten int           // locks whose heartbeats are sent as fast as it goes
	peers  []*peer
	last   atomic.Int64 // name of a lock
}

// measureService puts the same load on the lock service and its peers: pairs of acquire and
// release, hand-overs, heartbeats, and many locks held at once. The callers are goroutines of
// this process.
func measureService(ctx context.Context, r *harness) {
	l := &load{
		harness: r, rounds: sized(r.part, 5, 1), length: sized(r.part, 1500*time.Millisecond, 300*time.Millisecond),
		held: sized(r.part, 10_000, 200), hold: sized(r.part, 30*time.Second, time.Second), beaten: sized(r.part, 1000, 20),
	}
	r.Setting = fmt.Sprintf("Medians of %d rounds, leases of %v, %d locks held for %v",
		l.rounds, serviceLease, l.held, l.hold)
	r.Programs = serverVersions(ctx, r.consul)
	l.start(ctx, l.folder())
	for _, n := range callers {
		r.add(served, "", pairsRow(n))
	}
	r.add(served, "", contended, handedOver, beats, batches, memory, processor, memory+underOne, processor+underOne)
	l.measure(ctx)
}

// measure takes each step with all peers before the next one, in rounds; the peers take
// turns at the beginning.
func (l *load) measure(ctx context.Context) {
	take := func(p *peer, step func(p *peer)) {
		if err := must.Try(func() { step(p) }); err != nil {
			must.Do(fmt.Errorf("%s: %w", p.name, err))
		}
	}
	for _, p := range l.peers { // first of all, while the servers' memory is that of a start
		l.say("%d locks held, %s", l.held, p.name)
		if p.session != nil {
			take(p, func(p *peer) { l.crowd(ctx, p, p.session, 1, underOne) })
		}
		take(p, func(p *peer) {
			if p.batch != nil {
				l.crowd(ctx, p, p.batch, batchCallers, "")
			} else {
				l.crowd(ctx, p, p.open, holdCallers, "")
			}
		})
	}
	var steps []func(p *peer)
	for _, n := range callers {
		steps = append(steps, func(p *peer) { l.pairs(ctx, pairsRow(n), p, n, n, l.length) })
	}
	steps = append(steps,
		func(p *peer) { l.pairs(ctx, contended, p, 16, 4, l.length) },
		func(p *peer) {
			two := openAll(ctx, p.open, 2)
			took := handOver(ctx, two, l.fresh(1)[0], sized(l.part, 60, 3), waitsForSure, l.wrongOf(p.name))
			l.found(handedOver, p.name, spreadOf(took).Median)
		},
		func(p *peer) { l.beating(ctx, beats, p, p.open, min(l.beaten, beatCallers)) },
		func(p *peer) {
			if p.batch != nil {
				l.beating(ctx, batches, p, p.batch, batchCallers)
			}
		},
	)
	for i, step := range steps {
		for _, p := range l.peers { // connections are made, pages are mapped
			take(p, func(p *peer) { l.pairs(ctx, "", p, 4, 4, warmUp) })
		}
		for round := range l.rounds {
			l.say("step %d of %d, round %d of %d", i+1, len(steps), round+1, l.rounds)
			for i := range l.peers {
				take(l.peers[(i+round)%len(l.peers)], step)
			}
		}
	}
}

// fresh returns names that no earlier step has used.
func (l *load) fresh(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("bench/%07d", l.last.Add(1))
	}
	return all
}

// pairs finds how many pairs callers of a peer make a second.
func (l *load) pairs(ctx context.Context, row string, p *peer, n, locks int, length time.Duration) {
	rate := pairs(ctx, openAll(ctx, p.open, n), l.fresh(locks), length, l.wrongOf(p.name))
	l.found(row, p.name, rate)
}

// wrongOf notes what is wrong with a peer.
func (p *part) wrongOf(who string) func(string) {
	return func(what string) { p.wrong(who + ": " + what) }
}

// holding makes callers take locks, calls f for the locks of each caller, and releases
// them.
func (l *load) holding(ctx context.Context, all []caller, locks int, work func(has [][]*heldLock)) {
	of, has := l.fresh(locks), make([][]*heldLock, len(all))
	must.AtOnce(ctx, len(all), len(all), func(ctx context.Context, i int) {
		for at := i; at < locks; at += len(all) {
			has[i] = append(has[i], all[i].acquire(ctx, of[at]))
		}
	})
	work(has)
	must.AtOnce(ctx, len(all), len(all), func(ctx context.Context, i int) {
		for _, held := range has[i] {
			held.release(ctx)
		}
	})
}

// beat sends a heartbeat, and notes a lost lock.
func (l *load) beat(ctx context.Context, p *peer, c caller, has []*heldLock) (done int) {
	err := must.Try(func() { done = c.beat(ctx, has) })
	if errors.Is(err, errLost) {
		l.wrong(p.name + ": a heartbeat of a lock that is held was refused")
	}
	must.Do(err)
	return done
}

// beating makes n callers send heartbeats of locks as fast as possible. A caller whose call is for
// all of its locks has one lock: its call is one heartbeat, for any number of locks.
func (l *load) beating(ctx context.Context, row string, p *peer, open openFunc, n int) {
	all, locks := openAll(ctx, open, n), l.beaten
	if p.forAll {
		locks = n
	}
	l.holding(ctx, all, locks, func(has [][]*heldLock) {
		var sent atomic.Int64
		begun := time.Now()
		must.AtOnce(ctx, n, n, func(ctx context.Context, i int) {
			for from := 0; time.Since(begun) < l.length; {
				done := l.beat(ctx, p, all[i], has[i][from:])
				from = (from + done) % len(has[i])
				sent.Add(int64(done))
			}
		})
		l.found(row, p.name, float64(sent.Load())/time.Since(begun).Seconds())
	})
}

// crowd holds many locks at once, with the heartbeats that they need, and measures what the
// servers use. The heartbeats are spread over the period, as with clients that do
// not know of each other. The rows end with how.
func (l *load) crowd(ctx context.Context, p *peer, open openFunc, n int, how string) {
	all := openAll(ctx, open, n)
	if p.atRest == 0 {
		p.atRest = p.uses(rssAnon)
	}
	l.holding(ctx, all, l.held, func(has [][]*heldLock) {
		l.found(memory+how, p.name, (p.uses(rssAnon)-p.atRest)/float64(l.held))
		before, period, begun := p.uses(cpuTime), serviceLease/heartbeatPart, time.Now()
		must.AtOnce(ctx, n, n, func(ctx context.Context, i int) {
			for {
				turn := time.Now()
				for from := 0; from < len(has[i]); {
					from += l.beat(ctx, p, all[i], has[i][from:])
					pace := turn.Add(time.Duration(float64(period) * float64(from) / float64(len(has[i]))))
					wait.Rest(ctx, min(time.Until(pace), l.hold-time.Since(begun)))
					if time.Since(begun) >= l.hold {
						return
					}
				}
			}
		})
		l.found(processor+how, p.name, (p.uses(cpuTime)-before)*60/time.Since(begun).Seconds())
	})
}

// uses sums up what the peer's processes use.
func (p *peer) uses(what func(procfs.Proc) float64) (sum float64) {
	for _, pid := range p.pids {
		sum += what(must.Have(procfs.NewProc(pid)))
	}
	return sum
}

// rssAnon is the resident anonymous memory of a process, in bytes.
func rssAnon(p procfs.Proc) float64 { return float64(must.Have(p.NewStatus()).RssAnon) }

// cpuTime is the processor time of a process, in seconds.
func cpuTime(p procfs.Proc) float64 { return must.Have(p.Stat()).CPUTime() }

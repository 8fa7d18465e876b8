// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

func milliseconds(ns int64) float64 { return float64(ns) / 1e6 }

// handover measures the time from a release to the waiter's grant: in another
// process, in the same one, and in another process with notifications, which only Tenure has.
func handover(ctx context.Context, r *harness) {
	const (
		between  = "clean hand-over to a process that waits"
		within   = "clean hand-over within a process"
		notified = "clean hand-over with notifications"
	)
	setting := fmt.Sprintf("%v; from before the release is sent until the other one's acquire has returned; "+
		"released at a random moment of its waiting; notifications go over the loopback", r.everyday())
	r.add(timed, setting, between, within, notified)
	r.eachClient(ctx, r.everyday(), func(ctx context.Context, s *fixture) {
		two := s.several(ctx, s.request(), s.request())
		n := sized(r.part, 20, 2)
		what, times := []string{between, within}, []int{n, n}
		pairs := [][]*peers.Member{two, {two[0], two[0]}}
		if s.name == tenureName {
			o := s.request()
			o.Notify = true
			what, times, pairs = append(what, notified), append(times, sized(r.part, 50, 2)), append(pairs, s.several(ctx, o, o))
		}
		must.AtOnce(ctx, len(pairs), len(pairs), func(ctx context.Context, i int) {
			r.found(what[i], s.name, s.handOver(ctx, fmt.Sprintf("baton-%d", i), pairs[i], times[i])...)
		})
	})
}

// handOver passes a lock to and fro between two members, and returns how long
// that took each time.
func (s *fixture) handOver(ctx context.Context, name string, pair []*peers.Member, times int) (took []float64) {
	pair[0].Acquire(ctx, name)
	for i := range times {
		granted := s.begin(ctx, pair[(i+1)%2], name)
		must.Do(wait.For(ctx, s.Refresh+time.Duration(rand.Float64()*float64(s.Refresh))))
		released := pair[i%2].Release(ctx, name)
		took = append(took, milliseconds(must.Have(granted.Wait(ctx)).GotNs-released.SentNs))
	}
	pair[times%2].Release(ctx, name)
	return took
}

// chain is a holder that will be killed, and the waiter for its lock, and
// will be the next to be killed.
type chain struct {
	*fixture
	holder, waiter *peers.Member
	granted        *peers.Call
	took           []float64
	used           gate.Usage
}

// crown is the lock whose holders are killed.
const crown = "crown"

// failover kills holders at random moments between their heartbeats.
func failover(ctx context.Context, r *harness) {
	const took = "crash failover: from SIGKILL to the waiter's grant"
	const cost = took + ", one waiter"
	t := sized(r.part, timing(3*time.Second, 600*time.Millisecond, 600*time.Millisecond),
		timing(time.Second, 200*time.Millisecond, 200*time.Millisecond))
	setting := fmt.Sprintf("%v; killed at random moments between heartbeats, "+
		"after the waiter has waited for a lease or more", t)
	r.add(counted, setting, cost)
	r.add(timed, setting, took)
	clients := slices.Clone(r.clients)
	for range sized(r.part, 3, 1) - 1 { // Tenure has more pairs than the others
		clients = append(clients, peers.Own(peers.Tenure))
	}
	r.withFixtures(ctx, clients, t, func(all []*fixture) {
		chains := make([]*chain, len(all))
		for i, s := range all {
			chains[i] = &chain{fixture: s, waiter: s.member(ctx)}
			chains[i].waiter.Acquire(ctx, crown)
		}
		for range sized(r.part, 14, 1) {
			kill(ctx, chains)
		}
		used, kills := map[string]gate.Usage{}, map[string]int{}
		for _, c := range chains {
			u := used[c.name]
			u.Add(c.used)
			used[c.name], kills[c.name] = u, kills[c.name]+len(c.took)
			r.found(took, c.name, c.took...)
			r.put(cost, c.name, once(u, kills[c.name]))
		}
	})
}

// kill kills the holder of each chain, and measures when its successor has the lock.
func kill(ctx context.Context, chains []*chain) {
	// One after the other, and before any kill: starting is work.
	for _, c := range chains {
		c.holder, c.waiter = c.waiter, c.member(ctx)
		c.granted = c.begin(ctx, c.waiter, crown)
	}
	must.Do(wait.For(ctx, chains[0].Lease))
	must.AtOnce(ctx, len(chains), len(chains), func(ctx context.Context, i int) {
		c := chains[i]
		must.Do(wait.For(ctx, time.Duration(rand.Float64()*float64(c.Heartbeat))))
		c.used.Add(c.during(func() {
			killed := proc.Monotonic()
			c.holder.Kill()
			c.took = append(c.took, milliseconds(must.Have(c.granted.Wait(ctx)).GotNs-killed))
		}))
	})
}

// throughput measures pairs of an acquire and a release, in runs of one client
// after the other. The requests do not go through a counter, which would be a
// part of the load; but a proxy delays them if they must take longer.
func throughput(ctx context.Context, r *harness) {
	length := sized(r.part, 1500*time.Millisecond, 200*time.Millisecond)
	setting := fmt.Sprintf("%v; runs of %v, the clients in turn, the next run beginning with another one; "+
		"goroutines, or threads in Java, each with a lock of its own; straight to the engine, not counted; "+
		"where a delay is added, through a proxy that adds it; clients in Go with 256 idle connections; "+
		"the engine on the same cores",
		r.everyday(), length)
	for _, load := range sized(r.part,
		[]workload{{1, 0}, {32, 0}, {1, 5 * time.Millisecond}}, []workload{{4, 0}, {1, time.Millisecond}}) {
		r.add(paced, setting, load.String())
		r.withFixtures(ctx, r.clients, r.everyday(), func(all []*fixture) { r.pace(ctx, all, load, length) })
	}
}

func (r *harness) pace(ctx context.Context, all []*fixture, load workload, length time.Duration) {
	members := make([]*peers.Member, len(all))
	for i, s := range all {
		request := s.request()
		request.Wide = true
		if s.wire.Slow(load.delay); load.delay == 0 {
			request.Endpoint = s.engine
		}
		members[i] = s.open(ctx, request)
	}
	for run := range sized(r.part, 5, 2) + 1 {
		rates := map[string]float64{}
		for k := range all {
			i := (k + run) % len(all)
			rates[all[i].name] = work(ctx, members[i], load.goroutines, length)
		}
		if run == 0 {
			continue // virtual machines compile, and connections are made
		}
		for name, rate := range rates {
			r.found(load.String(), name, rate)
		}
		if ours, theirs := rates[tenureName], rates[dynamolockName]; ours > 0 && theirs > 0 {
			r.found(load.String(), ratio, ours/theirs)
		}
	}
}

// workload describes a measurement of throughput.
type workload struct {
	goroutines int
	delay      time.Duration // added to each request
}

// ratio is Tenure's rate to dynamolock's of the same run.
const ratio = "ratio"

func (w workload) String() string {
	s := fmt.Sprintf("%d goroutines", w.goroutines)
	if w.goroutines == 1 {
		s = "1 goroutine"
	}
	if w.delay > 0 {
		s += fmt.Sprintf(", %v added to each request", w.delay)
	}
	return s
}

// work makes goroutines or threads of a member acquire and release for a while, each its own
// lock, and returns how many pairs they made a second.
func work(ctx context.Context, m *peers.Member, n int, d time.Duration) float64 {
	answers := make([]wire.Answer, n)
	must.AtOnce(ctx, n, n, func(ctx context.Context, i int) {
		answers[i] = must.Have(m.Do(ctx, wire.Request{
			Command: wire.Work, Name: fmt.Sprintf("lock-%d", i), Log: "/dev/null",
			DurationMs: d.Milliseconds(), RefreshMs: m.RefreshMs,
		}))
	})
	made, began, ended := int64(0), answers[0].SentNs, answers[0].GotNs
	for _, a := range answers {
		if a.Counts == nil || a.Counts.Errors > 0 {
			must.Do(fmt.Errorf("not all went well: %+v", a.Counts))
		}
		made, began, ended = made+a.Counts.Released, min(began, a.SentNs), max(ended, a.GotNs)
	}
	return float64(made) / time.Duration(ended-began).Seconds()
}

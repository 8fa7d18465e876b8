// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

func milliseconds(ns int64) float64 { return float64(ns) / 1e6 }

// handover measures the time from a release to the grant of who waits for it: in another
// process, in the same one, and in another process with a bell, which Tenure alone has.
func handover(ctx context.Context, r *rig) error {
	const (
		between = "clean hand-over to a process that waits"
		within  = "clean hand-over within a process"
		bell    = "clean hand-over with a bell"
	)
	setting := fmt.Sprintf("%v; from before the release is sent until the other one's acquire has returned; "+
		"released at a random moment of its waiting; the bell is on the loopback", r.size.everyday)
	r.add(timed, setting, between, within, bell)
	return r.eachClient(ctx, r.size.everyday, func(ctx context.Context, s *stage) error {
		two, err := s.several(ctx, 2)
		if err != nil {
			return err
		}
		what, times := []string{between, within}, []int{s.size.handovers, s.size.handovers}
		pairs := [][]*peers.Member{two, {two[0], two[0]}}
		if s.name == tenureName {
			rung := make([]*peers.Member, 2)
			for i := range rung {
				o := s.Open(s.wire.Address(), s.table.Name)
				o.Bell = true
				if rung[i], err = s.open(ctx, o); err != nil {
					return err
				}
			}
			what, times, pairs = append(what, bell), append(times, s.size.bells), append(pairs, rung)
		}
		return wait.AtOnce(ctx, len(pairs), len(pairs), func(ctx context.Context, i int) error {
			took, err := s.handOver(ctx, fmt.Sprintf("baton-%d", i), pairs[i], times[i])
			if err == nil {
				r.put(what[i], s.name, spreadOf(took))
			}
			return err
		})
	})
}

// handOver passes a lock to and fro between two members, and returns how long
// that took each time.
func (s *stage) handOver(
	ctx context.Context, name string, pair []*peers.Member, times int,
) (took []float64, err error) {
	if _, err := pair[0].Acquire(ctx, name); err != nil {
		return nil, err
	}
	for i := range times {
		granted, err := s.begin(ctx, pair[(i+1)%2], name)
		if err != nil {
			return nil, err
		}
		if err := wait.For(ctx, s.Refresh+time.Duration(rand.Float64()*float64(s.Refresh))); err != nil {
			return nil, err
		}
		released, err := pair[i%2].Release(ctx, name)
		if err != nil {
			return nil, err
		}
		a, err := granted.Wait(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, milliseconds(a.GotNs-released.SentNs))
	}
	_, err = pair[times%2].Release(ctx, name)
	return took, err
}

// chain is a holder that will be killed, and the one who waits for its lock, and
// will be the next to be killed.
type chain struct {
	*stage
	holder, waiter *peers.Member
	granted        *peers.Call
	took           []float64
	used           gate.Usage
}

// crown is what holders are killed for.
const crown = "crown"

// failover kills holders at random moments between their heartbeats.
func failover(ctx context.Context, r *rig) error {
	const took = "crash failover: from SIGKILL to the waiter's grant"
	const cost = took + ", one waiter"
	setting := fmt.Sprintf("%v; killed at random moments between heartbeats, "+
		"after the waiter has waited for a lease or more", r.size.failover)
	r.add(counted, setting, cost)
	r.add(timed, setting, took)
	clients := slices.Clone(r.clients)
	for range r.size.pairs - 1 {
		clients = append(clients, peers.Own(peers.Tenure))
	}
	return r.onStages(ctx, clients, r.size.failover, func(all []*stage) error {
		times, used := map[string][]float64{}, map[string]gate.Usage{}
		chains := make([]*chain, len(all))
		for i, s := range all {
			chains[i] = &chain{stage: s}
		}
		if err := kill(ctx, chains, r.size.kills); err != nil {
			return err
		}
		for _, c := range chains {
			times[c.name] = append(times[c.name], c.took...)
			u := used[c.name]
			u.Add(c.used)
			used[c.name] = u
		}
		for name, figures := range times {
			r.put(cost, name, once(used[name], len(figures)))
			r.put(took, name, spreadOf(figures))
		}
		return nil
	})
}

func kill(ctx context.Context, chains []*chain, times int) (err error) {
	for _, c := range chains {
		if c.waiter, err = c.member(ctx); err != nil {
			return err
		}
		if _, err := c.waiter.Acquire(ctx, crown); err != nil {
			return err
		}
	}
	for range times {
		// One after the other, and before anybody is killed: starting is work.
		for _, c := range chains {
			c.holder = c.waiter
			if c.waiter, err = c.member(ctx); err != nil {
				return err
			}
			if c.granted, err = c.begin(ctx, c.waiter, crown); err != nil {
				return err
			}
		}
		if err := wait.For(ctx, chains[0].Lease); err != nil {
			return err
		}
		err := wait.AtOnce(ctx, len(chains), len(chains), func(ctx context.Context, i int) error {
			return chains[i].killHolder(ctx)
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
	if err != nil {
		return fmt.Errorf("%s, kill %d: %w", c.name, len(c.took), err)
	}
	return nil
}

// pairs makes acquires and releases in n goroutines or threads, each of a lock of
// its own, for a while, and returns how many it made a second.
type pairs func(ctx context.Context, n int, d time.Duration) (float64, error)

// throughput measures pairs of an acquire and a release, in runs of one client
// after the other. The requests do not go through a counter, which would be a
// part of the load; but where each of them is to take longer, a proxy sees to it.
func throughput(ctx context.Context, r *rig) error {
	setting := fmt.Sprintf("%v; runs of %v, the clients in turn, the next run beginning with another one; "+
		"goroutines, or threads in Java, each with a lock of its own; straight to the engine, not counted; "+
		"where a delay is added, through a proxy that adds it; both clients in Go in the process of the benchmark, "+
		"with 256 idle connections each; the engine on the same cores", r.size.everyday, r.size.throughput)
	for _, load := range r.size.loads {
		r.add(paced, setting, load.String())
		err := r.onStages(ctx, r.clients, r.size.everyday, func(all []*stage) error { return r.pace(ctx, all, load) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) pace(ctx context.Context, all []*stage, load workload) error {
	makers, rates := make([]pairs, len(all)), map[string][]float64{}
	for run := range r.size.runs + 1 {
		for k := range all {
			i := (k + run) % len(all)
			if makers[i] == nil {
				var err error
				if makers[i], err = all[i].pairs(ctx, load.delay); err != nil {
					return err
				}
			}
			rate, err := makers[i](ctx, load.goroutines, r.size.throughput)
			if err != nil {
				return err
			}
			if run > 0 { // before, virtual machines compile, and connections are made
				rates[all[i].name] = append(rates[all[i].name], rate)
			}
		}
	}
	var ratios []float64
	for i, theirs := range rates[dynamolockName] {
		if ours := rates[tenureName]; i < len(ours) {
			ratios = append(ratios, ours[i]/theirs)
		}
	}
	if len(ratios) > 0 {
		r.put(load.String(), ratio, spreadOf(ratios))
	}
	for name, rate := range rates {
		r.put(load.String(), name, spreadOf(rate))
	}
	return nil
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

func (s *stage) pairs(ctx context.Context, delay time.Duration) (pairs, error) {
	endpoint := s.engine
	if delay > 0 {
		endpoint = s.wire.Address()
		s.wire.Slow(delay)
	}
	request := s.Open(endpoint, s.table.Name)
	open := map[string]func(*dynamodb.Client, *wire.Request) (serve.Client, error){
		tenureName: serve.OpenTenure, dynamolockName: serve.OpenDynamolock,
	}[s.name]
	if open == nil {
		m, err := s.open(ctx, request)
		return work(m), err
	}
	db, _ := dynamo.ConnectWide(endpoint)
	client, err := open(db, &request)
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() { _ = client.Close() }) // it has nothing left to release
	return func(ctx context.Context, n int, d time.Duration) (float64, error) {
		var made atomic.Int64
		start := time.Now()
		err := wait.AtOnce(ctx, n, n, func(ctx context.Context, i int) error {
			for time.Since(start) < d {
				lock, err := client.Acquire(ctx, &wire.Request{Name: fmt.Sprintf("lock-%d", i), RefreshMs: request.RefreshMs})
				if err != nil {
					return err
				}
				if err := lock.Release(&wire.Request{}); err != nil {
					return err
				}
				made.Add(1)
			}
			return nil
		})
		return float64(made.Load()) / time.Since(start).Seconds(), err
	}, nil
}

// work has a process of a client work in a loop of its own.
func work(m *peers.Member) pairs {
	return func(ctx context.Context, n int, d time.Duration) (float64, error) {
		answers := make([]wire.Answer, n)
		err := wait.AtOnce(ctx, n, n, func(ctx context.Context, i int) (err error) {
			answers[i], err = m.Do(ctx, wire.Request{
				Command: wire.Work, Name: fmt.Sprintf("lock-%d", i), Log: "/dev/null",
				DurationMs: d.Milliseconds(), RefreshMs: m.RefreshMs,
			})
			return err
		})
		if err != nil {
			return 0, err
		}
		made, began, ended := int64(0), answers[0].SentNs, answers[0].GotNs
		for _, a := range answers {
			if a.Counts == nil || a.Counts.Errors > 0 {
				return 0, fmt.Errorf("not all went well: %+v", a.Counts)
			}
			made, began, ended = made+a.Counts.Released, min(began, a.SentNs), max(ended, a.GotNs)
		}
		return float64(made) / time.Duration(ended-began).Seconds(), nil
	}
}

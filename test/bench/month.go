// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/test/harness/dynamo"
	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
)

// standing is an activity that lasts a month.
type standing struct {
	what string
	// leases is how many leases the Kinesis Client Library would have instead; 0: it
	// does not support this.
	leases int
	// begin starts the activity, which lasts until ctx ends, and returns. Each call of
	// client makes a client, as for another process.
	begin func(ctx context.Context, client func() *tenure.Client)
}

// standings are what is priced by the month. Each has a row in the table.
var standings = []standing{
	{"one lock", 1, func(ctx context.Context, client func() *tenure.Client) {
		must.Have(client().Acquire(ctx, "one", nil))
	}},
	{"1,000 locks under one session", 1000, func(ctx context.Context, client func() *tenure.Client) {
		s := must.Have(client().OpenSession(ctx, nil))
		must.AtOnce(ctx, 1000, acquirers, func(ctx context.Context, i int) {
			must.Have(s.Acquire(ctx, fmt.Sprintf("lock-%d", i), nil))
		})
	}},
	{"a semaphore: 3 hold, 10 wait, in a process each", 0, func(ctx context.Context, client func() *tenure.Client) {
		const slots, waiters = 3, 10
		for i := range slots + waiters {
			s := must.Have(semaphore.New(client(), "renders", slots, nil))
			if i < slots {
				must.Have(s.Acquire(ctx, nil))
			} else {
				go func() { _, _ = s.Acquire(ctx, nil) }() // in vain: the slots are held until the end
			}
		}
	}},
	{"1,000 partitions of a group, 10 workers, in a process each", 1000, func(
		ctx context.Context, client func() *tenure.Client,
	) {
		const workers, partitions = 10, 1000
		groups := make([]*shard.Group, workers)
		for i := range groups {
			groups[i] = must.Have(shard.New(client(), "orders", &shard.Options{Partitions: partitions}))
			go func() {
				_ = groups[i].Run(ctx, func(ctx context.Context, _ *shard.Partition) error { // ends with ctx
					<-ctx.Done()
					return nil
				})
			}()
		}
		for held, surplus := 0, 0; held < partitions || surplus > 0; { // until each has its share
			must.Do(wait.For(ctx, 100*time.Millisecond))
			held, surplus = 0, 0
			for _, g := range groups {
				s := g.Stats()
				held, surplus = held+s.Held, surplus+s.Surplus
			}
		}
	}},
}

// countedFor is how long an activity is counted.
func countedFor(p *part) time.Duration { return sized(p, 30*time.Second, 2*time.Second) }

// months counts the requests of Tenure for all activities at once, each on its own table,
// and prices them by the month.
func months(ctx context.Context, r *harness) {
	t, d := r.everyday(), countedFor(r.part)
	setting := fmt.Sprintf("Tenure in the process of the benchmark, with %v; requests counted for %v, "+
		"after a first lease; units by the size of each item", t, d)
	for _, s := range standings {
		r.add(monthly, setting, s.what)
	}
	must.AtOnce(ctx, len(standings), len(standings), func(ctx context.Context, i int) {
		r.withFixture(ctx, peers.Own(peers.Tenure), t, func(s *fixture) {
			r.put(standings[i].what, tenureName, each(s.stand(ctx, standings[i], d), time.Second, d))
			if n := standings[i].leases; n > 0 {
				r.put(standings[i].what, kclName, each(peers.KCL(n, t.Lease), time.Second, time.Second))
			}
		})
	})
}

// stand counts what a running process sends.
func (s *fixture) stand(ctx context.Context, what standing, d time.Duration) gate.Usage {
	ctx, cancel := context.WithCancel(ctx)
	var clients []*tenure.Client
	defer func() {
		cancel()
		for _, c := range clients {
			soon, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Millisecond)
			_ = c.Close(soon) // what it holds is left behind, as is the table
			stop()
		}
	}()
	what.begin(ctx, func() *tenure.Client {
		db, _ := dynamo.ConnectWide(s.wire.Address())
		c := must.Have(s.Tenure(db, s.table.Name, nil))
		clients = append(clients, c)
		return c
	})
	// The start is over: a lease later there are only heartbeats.
	must.Do(wait.For(ctx, s.Lease+s.Heartbeat/2))
	must.Have(s.wire.Take())
	must.Do(wait.For(ctx, d))
	u := must.Have(s.wire.Take())
	if u.Requests == 0 {
		must.Do(fmt.Errorf("%s: nothing was sent", what.what))
	}
	return u
}

// kclName is the Kinesis Client Library, which is not run: what it would send
// follows from its periods.
const kclName = "kcl"

// holding is the result of a process that holds many locks for a while.
type holding struct {
	Locks      int        `json:"locks"`
	Lost       int        `json:"lost"` // of them
	Used       gate.Usage `json:"used"` // in a heartbeat period, counted on the wire
	Periods    float64    `json:"periods"`
	CPUMinute  float64    `json:"cpuSecondsAMinute"`
	LockHeap   float64    `json:"heapBytesALock"` // how much more there is, after a garbage collection
	Goroutines int        `json:"goroutines"`     // the most that were seen
}

// sessions holds many locks in one process: with one heartbeat in all, and with
// one for each. One process at a time, so that none suffers from another's load.
func sessions(ctx context.Context, r *harness) {
	// A lease at which a heartbeat for each lock is a load.
	t := sized(r.part, timing(2*time.Second, 400*time.Millisecond, 400*time.Millisecond),
		timing(10*time.Second, 500*time.Millisecond, 200*time.Millisecond))
	delay := sized(r.part, 10*time.Millisecond, time.Millisecond)
	held := sized(r.part, 20*time.Second, 2*time.Second)
	crowds := sized(r.part,
		map[string][]int{tenureName: {1000, 10_000, 100_000}, dynamolockName: {100, 400, 1000}},
		map[string][]int{tenureName: {20, 200}, dynamolockName: {20}})
	setting := fmt.Sprintf("%v, %v added to each request by the proxy that counts them; held for %v, "+
		"looked at each second; memory and goroutines are those of the client's process, which has no other work; "+
		"Tenure has one session; "+
		"dynamolock has its defaults, and says of a lock that it is lost by IsExpired", t, delay, held)
	for _, c := range r.clients {
		for _, n := range crowds[string(c.Kind)] {
			what := fmt.Sprintf("%s, %d locks", titles[string(c.Kind)], n)
			r.add(crowded, setting, what)
			r.withFixture(ctx, c, t, func(s *fixture) {
				s.wire.Slow(delay)
				h := s.crowd(ctx, n, held)
				r.put(what, s.name, value{Held: h})
				r.say("session: %s: %d lost, %.3f requests a heartbeat period", what, h.Lost, h.Used.Requests)
				if c.Kind == peers.Tenure {
					r.wrong(h.missed()...)
				}
			})
		}
	}
}

// crowd makes a process take locks, and hold them for a time.
func (s *fixture) crowd(ctx context.Context, locks int, d time.Duration) *holding {
	r := s.request()
	r.Session = s.name == tenureName
	m := s.open(ctx, r)
	// Some locks first, to load all of the client, and to open its connections.
	must.AtOnce(ctx, acquirers, acquirers, func(ctx context.Context, i int) {
		name := fmt.Sprintf("first-%d", i)
		m.Acquire(ctx, name)
		m.Release(ctx, name)
	})
	h, names := &holding{Locks: locks}, lockNames(locks)
	before := m.Usage(ctx, true)
	acquireAll(ctx, m, names)
	held, began := m.Usage(ctx, true), time.Now()
	h.LockHeap = float64(held.Heap-before.Heap) / float64(locks)
	used := s.during(func() {
		for end := began.Add(d); time.Now().Before(end); {
			must.Do(wait.For(ctx, min(time.Second, time.Until(end)+1)))
			h.Goroutines = max(h.Goroutines, m.Usage(ctx, false).Goroutines)
		}
	})
	took := time.Since(began).Seconds()
	h.CPUMinute = (m.Usage(ctx, false).CPU - held.CPU) / took * 60
	h.Periods = took / s.Heartbeat.Seconds()
	h.Used = used.Over(h.Periods)
	var lost atomic.Int64
	must.AtOnce(ctx, locks, acquirers, func(ctx context.Context, i int) {
		if !m.Holds(ctx, names[i]) {
			lost.Add(1)
		}
	})
	h.Lost = int(lost.Load())
	return h
}

const (
	// mostGoroutines is one more than a process that holds locks under a session may
	// have, however many they are.
	mostGoroutines = 50
	// edges is how many heartbeats more or fewer than periods there may be: the first
	// period and the last one are cut at any place.
	edges = 1
)

// missed returns what is wrong with a session: a write a heartbeat period at most,
// however many locks are held, and no lock lost.
func (h *holding) missed() (all []string) {
	if writes := h.Used.WriteUnits * h.Periods; writes > h.Periods+edges {
		all = append(all, fmt.Sprintf("%.0f writes in %.1f heartbeat periods", writes, h.Periods))
	}
	if h.Lost > 0 || h.Goroutines >= mostGoroutines {
		all = append(all, fmt.Sprintf("%d locks lost, %d goroutines", h.Lost, h.Goroutines))
	}
	return all
}

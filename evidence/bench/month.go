// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/must"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/shard"
)

// standing is something that goes on for a month.
type standing struct {
	what string
	// leases is how many the Kinesis Client Library would have in its place; 0: it
	// has no such thing.
	leases int
	// begin has it go on until ctx ends, and returns when it does. Each call of
	// client makes one as another process would have it.
	begin func(ctx context.Context, client func() *tenure.Client)
}

// standings are what is priced by the month. One that is added here has its row in
// the table.
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
		for held, surplus := 0, 0; held < partitions || surplus > 0; { // until each has what it is to have
			must.Do(wait.For(ctx, 100*time.Millisecond))
			held, surplus = 0, 0
			for _, g := range groups {
				s := g.Stats()
				held, surplus = held+s.Held, surplus+s.Surplus
			}
		}
	}},
}

// months counts what Tenure sends for what goes on, all at once, each on a table of
// its own, and prices it by the month: by the true size of each item.
func months(ctx context.Context, r *rig) {
	t, d := r.size.everyday, r.size.counted
	setting := fmt.Sprintf("Tenure in the process of the benchmark, with %v; requests counted for %v, "+
		"after a first lease; units by the size of each item, as it was at the end", t, d)
	for _, s := range standings {
		r.add(monthly, setting, s.what)
	}
	must.AtOnce(ctx, len(standings), len(standings), func(ctx context.Context, i int) {
		r.onStage(ctx, peers.Own(peers.Tenure), t, func(s *stage) {
			r.put(standings[i].what, tenureName, each(s.stand(ctx, standings[i], d), time.Second, d))
			if n := standings[i].leases; n > 0 {
				r.put(standings[i].what, kclName, each(peers.KCL(n, t.Lease), time.Second, time.Second))
			}
		})
	})
}

// stand counts what something sends that goes on.
func (s *stage) stand(ctx context.Context, what standing, d time.Duration) gate.Usage {
	ctx, cancel := context.WithCancel(ctx)
	s.large = true
	s.wire.Weigh()
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
	// What begins has been done: a lease later there are heartbeats alone.
	must.Do(wait.For(ctx, s.Lease+s.Heartbeat/2))
	must.Have(s.wire.Take())
	must.Do(wait.For(ctx, d))
	u, used, err := s.wire.TakeAll()
	must.Do(err)
	if u.Requests == 0 {
		must.Do(fmt.Errorf("%s: nothing was sent", what.what))
	}
	return u.Weighed(used, must.Have(s.table.Sizes(ctx)))
}

// kclName is the Kinesis Client Library, which is not run: what it would send
// follows from its periods.
const kclName = "kcl"

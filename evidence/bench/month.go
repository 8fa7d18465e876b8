// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/keepers"
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
	begin func(ctx context.Context, client opener) error
}

// opener opens a client of Tenure.
type opener func() (*tenure.Client, error)

// standings are what is priced by the month. One that is added here has its row in
// the table.
var standings = []standing{
	{"one lock", 1, func(ctx context.Context, client opener) error {
		c, err := client()
		if err != nil {
			return err
		}
		_, err = c.Acquire(ctx, "one", nil)
		return err
	}},
	{"1,000 locks under one session", 1000, func(ctx context.Context, client opener) error {
		c, err := client()
		if err != nil {
			return err
		}
		s, err := c.OpenSession(ctx, nil)
		if err != nil {
			return err
		}
		return wait.AtOnce(ctx, 1000, keepers.Acquirers, func(ctx context.Context, i int) error {
			_, err := s.Acquire(ctx, fmt.Sprintf("lock-%d", i), nil)
			return err
		})
	}},
	{"a semaphore: 3 hold, 10 wait, in a process each", 0, func(ctx context.Context, client opener) error {
		const slots, waiters = 3, 10
		for i := range slots + waiters {
			c, err := client()
			if err != nil {
				return err
			}
			s, err := semaphore.New(c, "renders", slots, nil)
			if err != nil {
				return err
			}
			if i < slots {
				if _, err := s.Acquire(ctx, nil); err != nil {
					return err
				}
				continue
			}
			go func() { _, _ = s.Acquire(ctx, nil) }() // in vain: the slots are held until the end
		}
		return nil
	}},
	{"1,000 partitions of a group, 10 workers, in a process each", 1000, func(ctx context.Context, client opener) error {
		const workers, partitions = 10, 1000
		groups := make([]*shard.Group, workers)
		for i := range groups {
			c, err := client()
			if err != nil {
				return err
			}
			if groups[i], err = shard.New(c, "orders", &shard.Options{Partitions: partitions}); err != nil {
				return err
			}
			go func() {
				_ = groups[i].Run(ctx, func(ctx context.Context, _ *shard.Partition) error { // ends with ctx
					<-ctx.Done()
					return nil
				})
			}()
		}
		return settled(ctx, groups, partitions)
	}},
}

// settled waits until each worker has what it is to have, and no more.
func settled(ctx context.Context, groups []*shard.Group, partitions int) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		held, surplus := 0, 0
		for _, g := range groups {
			s := g.Stats()
			held, surplus = held+s.Held, surplus+s.Surplus
		}
		if held == partitions && surplus == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d partitions are held, %d by others than planned", held, partitions, surplus)
		}
	}
}

// months counts what each of them sends in a while, all at once: each has a table
// and a counter of its own.
func months(ctx context.Context, r *rig) error {
	t, d := r.size.everyday, r.size.counted
	setting := fmt.Sprintf("Tenure in the process of the benchmark, with %v; requests counted for %v, "+
		"after a first lease; units by the size of each item, as it was at the end", t, d)
	for _, s := range standings {
		r.add(monthly, setting, s.what)
	}
	return wait.AtOnce(ctx, len(standings), len(standings), func(ctx context.Context, i int) error {
		return r.onStage(ctx, peers.Own(peers.Tenure), t, func(ctx context.Context, s *stage) error {
			u, err := s.stand(ctx, standings[i], d)
			if err != nil {
				return fmt.Errorf("%s: %w", standings[i].what, err)
			}
			r.put(standings[i].what, tenureName, each(u, time.Second, d))
			if n := standings[i].leases; n > 0 {
				r.put(standings[i].what, kclName, each(peers.KCL(n, t.Lease), time.Second, time.Second))
			}
			return nil
		})
	})
}

// kclName is the Kinesis Client Library, which is not run: what it would send
// follows from its periods.
const kclName = "kcl"

// stand counts what something sends that goes on.
func (s *stage) stand(ctx context.Context, what standing, d time.Duration) (u gate.Usage, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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
	err = what.begin(ctx, func() (*tenure.Client, error) {
		db, _ := dynamo.ConnectWide(s.wire.Address())
		c, err := s.Tenure(db, s.table.Name, nil)
		if err == nil {
			clients = append(clients, c)
		}
		return c, err
	})
	if err != nil {
		return u, err
	}
	if err := wait.For(ctx, s.Lease+s.Heartbeat/2); err != nil {
		return u, err
	}
	if _, err := s.wire.Take(); err != nil {
		return u, err
	}
	if err := wait.For(ctx, d); err != nil {
		return u, err
	}
	u, used, err := s.wire.TakeAll()
	if err != nil {
		return u, err
	}
	sizes, err := s.table.Sizes(ctx)
	if err != nil {
		return u, err
	}
	if u.Requests == 0 {
		return u, errors.New("nothing was sent")
	}
	return u.Weighed(used, sizes), nil
}

// sessions holds many locks in one process: with one heartbeat in all, and with
// one for each. One process at a time: none is to suffer from another's load.
func sessions(ctx context.Context, r *rig) error {
	t, size := r.size.crowd.Timing, r.size.crowd
	setting := fmt.Sprintf("%v, %v added to each request by the proxy that counts them; held for %v, "+
		"looked at each second; memory and goroutines are those of the client's process, which has no other work; Tenure has one session; "+
		"dynamolock has its defaults, and says of a lock that it is lost by IsExpired", t, size.Delay, size.Hold)
	for _, c := range r.clients {
		for _, n := range r.size.crowds[string(c.Kind)] {
			what := fmt.Sprintf("%s, %d locks", titles[string(c.Kind)], n)
			r.add(crowded, setting, what)
			err := r.onStage(ctx, c, t, func(ctx context.Context, s *stage) error {
				h, err := keepers.Hold(ctx, c.Kind, n, s.wire, s.table.Name, size)
				if err != nil {
					return err
				}
				r.put(what, s.name, value{Held: h})
				r.say("session: %s: %d lost, %.1f s to take them, %.3f requests a heartbeat period",
					what, h.Hold.Lost, h.Acquire.Took, h.Holding.Requests)
				if c.Kind == peers.Tenure {
					r.wrong(h.Missed()...)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

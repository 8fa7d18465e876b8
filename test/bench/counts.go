// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/test/harness/dynamo"
	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// The operations that are counted one at a time.
const (
	takeFree     = "take a free lock"
	oneHeartbeat = "one heartbeat"
	tryHeld      = "a try at a lock that is held"
	releaseOne   = "release"
	takeReleased = "take a lock that was released"
	takeHistory  = "take and release, with history, as elections have it"
	takeShared   = "take a lock that was released, in a table shared with another client"
	takeDead     = "take over a dead holder's lock"
)

// single counts the requests of single operations.
func single(ctx context.Context, r *harness) {
	setting := fmt.Sprintf("%v; each client's own default at release: "+
		"the Java client deletes the item, the others keep it", longTimes)
	r.add(counted, setting, takeFree, takeReleased, tryHeld, oneHeartbeat, releaseOne)
	r.eachClient(ctx, longTimes, func(ctx context.Context, s *fixture) {
		two := s.several(ctx, s.request(), s.request())
		names := r.locks()
		for _, step := range []struct{ what, command string }{
			{takeFree, wire.Acquire},
			{oneHeartbeat, wire.Heartbeat},
			{tryHeld, ""},
			{releaseOne, wire.Release},
			{takeReleased, wire.Acquire},
		} {
			u := s.during(func() {
				for _, name := range names {
					if step.what == tryHeld {
						refused(ctx, two[1], name)
					} else if _, err := two[0].Do(ctx, two[0].Asking(step.command, name)); err != nil {
						must.Do(fmt.Errorf("%s: %w", step.what, err))
					}
				}
			})
			r.put(step.what, s.name, once(u, len(names)))
		}
	})
}

// locks are the names of the locks that are counted one at a time.
func (r *harness) locks() []string { return lockNames(sized(r.part, 10, 3)) }

// once is what each of n operations uses.
func once(u gate.Usage, n int) value {
	u = u.Over(float64(n))
	return value{Used: &u}
}

// each is what is used in each period of a window.
func each(u gate.Usage, period, window time.Duration) value {
	u = u.Over(window.Seconds() / period.Seconds())
	return value{Used: &u, Period: period}
}

// refused tries a lock that is held.
func refused(ctx context.Context, m *peers.Member, name string) {
	_, err := m.Do(ctx, wire.Request{Command: wire.Acquire, Name: name, TryOnly: true})
	if refused := (*peers.Refused)(nil); !errors.As(err, &refused) || refused.Kind != wire.Held {
		must.Do(errors.Join(errors.New("try of a held lock: it was not refused as held"), err))
	}
}

// variants counts the requests of features that only Tenure has.
func variants(ctx context.Context, r *harness) {
	setting := fmt.Sprintf("Tenure alone, in the process of the benchmark; %v; after a first round", longTimes)
	r.add(counted, setting, takeHistory, takeShared)
	r.withFixture(ctx, peers.Own(peers.Tenure), longTimes, func(s *fixture) {
		rounds := func(what string, release bool, options *dynamostore.Options, acquire *tenure.AcquireOptions) {
			client := must.Have(s.Tenure(dynamo.Connect(s.wire.Address()), s.table.Name, options))
			s.After(func() { _ = client.Close(context.WithoutCancel(ctx)) }) // it has released all
			var sum gate.Usage
			n := len(r.locks())
			for i := range n + 1 {
				var lease *tenure.Lease
				took := s.during(func() { lease = must.Have(client.Acquire(ctx, what, acquire)) })
				released := s.during(func() { must.Do(lease.Release(ctx)) })
				if i == 0 {
					continue // before the first one there was no tenure
				}
				sum.Add(took)
				if release {
					sum.Add(released)
				}
			}
			r.put(what, tenureName, once(sum, n))
		}
		rounds(takeHistory, true, nil, &tenure.AcquireOptions{History: true})
		rounds(takeShared, false, &dynamostore.Options{SharedTable: true}, nil)
	})
}

// takeover counts what it takes to get the lock of a holder that was killed, from
// the first request of a process that comes afterwards.
func takeover(ctx context.Context, r *harness) {
	setting := fmt.Sprintf("%v; the holder was killed before; "+
		"the requests of the successor, who comes afterwards and waits", r.everyday())
	r.add(counted, setting, takeDead)
	r.eachClient(ctx, r.everyday(), func(ctx context.Context, s *fixture) {
		names := r.locks()
		dead := s.open(ctx, s.Open(s.engine, s.table.Name)) // not counted
		acquireAll(ctx, dead, names)
		dead.Kill()
		successor := s.member(ctx)
		// All come within a heartbeat period, so none of these is in it.
		u := s.during(func() { acquireAll(ctx, successor, names) })
		r.put(takeDead, s.name, once(u, len(names)))
	})
}

// hold counts what keeps locks alive, for so many of a process.
func hold(ctx context.Context, r *harness) {
	const periods = 3
	t, window, held := r.everyday(), periods*r.everyday().Heartbeat, sized(r.part, []int{1, 100, 1000}, []int{1, 20})
	what := func(n int) string { return fmt.Sprintf("hold locks in one process: %d", n) }
	setting := fmt.Sprintf("%v; requests in a heartbeat period, counted over %d of them", t, periods)
	for _, n := range held {
		r.add(counted, setting, what(n))
	}
	// All numbers at once, but in a full run one client after the other: a thousand
	// heartbeats in a burst are a load, and must not slow down another client.
	must.AtOnce(ctx, len(held)*len(r.clients), len(held)*r.clientsAtOnce(), func(ctx context.Context, i int) {
		r.withFixture(ctx, r.clients[i/len(held)], t, func(s *fixture) {
			holder, names := s.member(ctx), lockNames(held[i%len(held)])
			acquireAll(ctx, holder, names)
			// From the middle between two bursts of heartbeats to another such
			// middle, as far as they come in bursts.
			before := s.wire.Count()
			must.Do(wait.Until(ctx, "a heartbeat is sent", func() bool { return s.wire.Count() > before }))
			must.Do(wait.For(ctx, t.Heartbeat/2))
			v := each(s.countFor(ctx, window), t.Heartbeat, window)
			for _, name := range names {
				if !holder.Holds(ctx, name) {
					v.Lost++
				}
			}
			r.put(what(len(names)), s.name, v)
		})
	})
}

// clientsAtOnce is how many clients may be measured at once if each of them is a load.
func (r *harness) clientsAtOnce() int { return sized(r.part, 1, 3) }

// waiters counts the requests of many waiters for a lock, in one process, and in a process each.
// In a full run with many processes, which are a load, one client comes after the other.
func waiters(ctx context.Context, r *harness) {
	n, t := sized(r.part, 50, 2), r.everyday()
	window := 3 * t.Heartbeat
	setting := fmt.Sprintf("%v; requests of the waiters in a second, counted over %v; "+
		"the holder's are not in it", t, window)
	for _, way := range []struct {
		what                    string
		processes, each, atOnce int
	}{
		{fmt.Sprintf("%d wait for one lock, in one process", n), 1, n, len(r.clients)},
		{fmt.Sprintf("%d wait for one lock, in a process each", n), n, 1, r.clientsAtOnce()},
	} {
		r.add(counted, setting, way.what)
		must.AtOnce(ctx, len(r.clients), way.atOnce, func(ctx context.Context, i int) {
			c := *r.clients[i]
			if way.processes > 1 && c.Kind == peers.Java {
				// They start sooner when they do not compile for speed, and send the same.
				c.Command.Env = []string{"JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1"}
			}
			r.withFixture(ctx, &c, t, func(s *fixture) {
				u := s.wait(ctx, way.processes, way.each, window)
				r.put(way.what, s.name, each(u, time.Second, window))
			})
		})
	}
}

// wait counts the requests of waiters once all of them wait.
func (s *fixture) wait(ctx context.Context, processes, each int, window time.Duration) gate.Usage {
	request := s.request()
	uncounted := request
	uncounted.Endpoint = s.engine
	s.open(ctx, uncounted).Acquire(ctx, "busy")
	var granted []*peers.Call
	for _, w := range s.several(ctx, slices.Repeat([]wire.Request{request}, processes)...) {
		for range each {
			granted = append(granted, w.Begin(w.Asking(wire.Acquire, "busy")))
		}
	}
	// Until all have begun, on a busy machine too: each process has looked three
	// times on average, and had a while for more.
	must.Do(wait.Until(ctx, "all wait", func() bool { return s.wire.Count() >= 3*processes }))
	must.Do(wait.For(ctx, 2*s.Refresh+s.Heartbeat))
	u := s.countFor(ctx, window)
	if slices.ContainsFunc(granted, (*peers.Call).Answered) {
		must.Do(errors.New("a waiter has stopped waiting"))
	}
	return u
}

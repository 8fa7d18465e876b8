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
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/keepers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// What is counted one at a time.
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

// single counts the requests of what is done one at a time.
func single(ctx context.Context, r *rig) error {
	setting := fmt.Sprintf("%v; each client's own default at release: "+
		"the Java client deletes the item, the others keep it", longTimes)
	r.add(counted, setting, takeFree, takeReleased, tryHeld, oneHeartbeat, releaseOne)
	return r.eachClient(ctx, longTimes, func(ctx context.Context, s *stage) error {
		two, err := s.several(ctx, 2)
		if err != nil {
			return err
		}
		names := keepers.Names(r.size.locks)
		do := func(command string) func(name string) error {
			return func(name string) error { _, err := two[0].Do(ctx, two[0].Asking(command, name)); return err }
		}
		for _, part := range []struct {
			what string
			do   func(name string) error
		}{
			{takeFree, do(wire.Acquire)},
			{oneHeartbeat, do(wire.Heartbeat)},
			{tryHeld, func(name string) error { return refused(ctx, two[1], name) }},
			{releaseOne, do(wire.Release)},
			{takeReleased, do(wire.Acquire)},
		} {
			u, err := s.wire.During(func() error {
				for _, name := range names {
					if err := part.do(name); err != nil {
						return fmt.Errorf("%s: %w", part.what, err)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			r.put(part.what, s.name, once(u, len(names)))
		}
		return nil
	})
}

// once is what one of n uses.
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
func refused(ctx context.Context, m *peers.Member, name string) error {
	_, err := m.Do(ctx, wire.Request{Command: wire.Acquire, Name: name, TryOnly: true})
	if refused := (*peers.Refused)(nil); errors.As(err, &refused) && refused.Kind == wire.Held {
		return nil
	}
	return errors.Join(errors.New("try of a held lock: it was not refused as held"), err)
}

// variants counts what Tenure does for more, which the others have not.
func variants(ctx context.Context, r *rig) error {
	setting := fmt.Sprintf("Tenure alone, in the process of the benchmark; %v; after a first round", longTimes)
	r.add(counted, setting, takeHistory, takeShared)
	return r.onStage(ctx, peers.Own(peers.Tenure), longTimes, func(ctx context.Context, s *stage) error {
		rounds := func(what string, release bool, options *dynamostore.Options, acquire *tenure.AcquireOptions) error {
			client, err := s.Tenure(dynamo.Connect(s.wire.Address()), s.table.Name, options)
			if err != nil {
				return err
			}
			defer func() { _ = client.Close(context.WithoutCancel(ctx)) }() // it has released all
			var sum gate.Usage
			for i := range r.size.locks + 1 {
				var lease *tenure.Lease
				took, err := s.wire.During(func() (err error) {
					lease, err = client.Acquire(ctx, what, acquire)
					return err
				})
				if err != nil {
					return err
				}
				released, err := s.wire.During(func() error { return lease.Release(ctx) })
				if err != nil {
					return err
				}
				if i == 0 {
					continue // before the first one there was no tenure
				}
				sum.Add(took)
				if release {
					sum.Add(released)
				}
			}
			r.put(what, tenureName, once(sum, r.size.locks))
			return nil
		}
		if err := rounds(takeHistory, true, nil, &tenure.AcquireOptions{History: true}); err != nil {
			return err
		}
		return rounds(takeShared, false, &dynamostore.Options{SharedTable: true}, nil)
	})
}

// takeover counts what it takes to get the lock of a holder that was killed, from
// the first request of a process that comes afterwards.
func takeover(ctx context.Context, r *rig) error {
	setting := fmt.Sprintf("%v; the holder was killed before; "+
		"the requests of the successor, who comes afterwards and waits", r.size.takeover)
	r.add(counted, setting, takeDead)
	return r.eachClient(ctx, r.size.takeover, func(ctx context.Context, s *stage) error {
		names := keepers.Names(r.size.locks)
		dead, err := s.uncounted(ctx)
		if err != nil {
			return err
		}
		if err := acquireAll(ctx, dead, names); err != nil {
			return err
		}
		dead.Kill()
		successor, err := s.member(ctx)
		if err != nil {
			return err
		}
		// All come within a heartbeat period, so none of these is in it.
		u, err := s.wire.During(func() error { return acquireAll(ctx, successor, names) })
		if err != nil {
			return err
		}
		r.put(takeDead, s.name, once(u, len(names)))
		return nil
	})
}

// hold counts what keeps locks alive, for so many of a process.
func hold(ctx context.Context, r *rig) error {
	t, window := r.size.everyday, time.Duration(r.size.periods)*r.size.everyday.Heartbeat
	what := func(n int) string { return fmt.Sprintf("hold locks in one process: %d", n) }
	setting := fmt.Sprintf("%v; requests in a heartbeat period, counted over %d of them", t, r.size.periods)
	for _, n := range r.size.hold {
		r.add(counted, setting, what(n))
	}
	// All numbers at once, but in a full run one client after the other: a thousand
	// heartbeats in a burst are a load, and none is to suffer from another's.
	sizes := len(r.size.hold)
	return wait.AtOnce(ctx, sizes*len(r.clients), sizes*r.size.atOnce, func(ctx context.Context, i int) error {
		return r.onStage(ctx, r.clients[i/sizes], t, func(ctx context.Context, s *stage) error {
			holder, err := s.member(ctx)
			if err != nil {
				return err
			}
			names := keepers.Names(r.size.hold[i%sizes])
			if err := acquireAll(ctx, holder, names); err != nil {
				return err
			}
			// From the middle between two bursts of heartbeats to another such
			// middle, as far as they come in bursts.
			before := s.wire.Count()
			if err := wait.Until(ctx, "a heartbeat is sent", func() bool { return s.wire.Count() > before }); err != nil {
				return err
			}
			if err := wait.For(ctx, t.Heartbeat/2); err != nil {
				return err
			}
			u, err := s.countFor(ctx, window)
			if err != nil {
				return err
			}
			v := each(u, t.Heartbeat, window)
			for _, name := range names {
				holds, err := holder.Holds(ctx, name)
				if err != nil {
					return err
				}
				if !holds {
					v.Lost++
				}
			}
			r.put(what(len(names)), s.name, v)
			return nil
		})
	})
}

// waiters counts what many send who wait for a lock: in one process, in a process each, and so
// with a bell that tells of heartbeats, which no other client has. In a full run one client
// comes after the other where there are many processes, which are a load.
func waiters(ctx context.Context, r *rig) error {
	n, t := r.size.waiters, r.size.everyday
	window := time.Duration(r.size.periods) * t.Heartbeat
	setting := fmt.Sprintf("%v; requests of the waiters in a second, counted over %v; "+
		"the holder's are not in it", t, window)
	for _, way := range []struct {
		what                    string
		processes, each, atOnce int
		bell                    bool
	}{
		{fmt.Sprintf("%d wait for one lock, in one process", n), 1, n, len(r.clients), false},
		{fmt.Sprintf("%d wait for one lock, in a process each", n), n, 1, r.size.atOnce, false},
		{fmt.Sprintf("%d wait for one lock, in a process each, told of heartbeats by a bell", n), n, 1, r.size.atOnce, true},
	} {
		r.add(counted, setting, way.what)
		err := wait.AtOnce(ctx, len(r.clients), way.atOnce, func(ctx context.Context, i int) error {
			c := *r.clients[i]
			if way.bell && c.Kind != peers.Tenure {
				return nil
			}
			if way.processes > 1 && c.Kind == peers.Java {
				// They start sooner when they do not compile for speed, and send the same.
				c.Command.Env = []string{"JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1"}
			}
			return r.onStage(ctx, &c, t, func(ctx context.Context, s *stage) error {
				u, err := s.wait(ctx, way.processes, way.each, way.bell, window)
				if err == nil {
					r.put(way.what, s.name, each(u, time.Second, window))
				}
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// wait counts what waiters send once all of them wait.
func (s *stage) wait(
	ctx context.Context, processes, each int, bell bool, window time.Duration,
) (u gate.Usage, err error) {
	start := func(ctx context.Context, endpoint string) (*peers.Member, error) {
		o := s.Open(endpoint, s.table.Name)
		o.Bell, o.Tells = bell, bell
		return s.open(ctx, o)
	}
	holder, err := start(ctx, s.engine)
	if err != nil {
		return u, err
	}
	if _, err := holder.Acquire(ctx, "busy"); err != nil {
		return u, err
	}
	waiters := make([]*peers.Member, processes)
	err = wait.AtOnce(ctx, processes, 2, func(ctx context.Context, i int) (err error) {
		waiters[i], err = start(ctx, s.wire.Address())
		return err
	})
	if err != nil {
		return u, err
	}
	granted := make(chan error, processes*each)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, w := range waiters {
		for range each {
			go func() {
				_, err := w.Acquire(ctx, "busy")
				granted <- err
			}()
		}
	}
	// Until all have begun, on a busy machine too: each process has looked three
	// times on average, and had a while for more.
	if err := wait.Until(ctx, "all wait", func() bool { return s.wire.Count() >= 3*processes }); err != nil {
		return u, err
	}
	if err := wait.For(ctx, 2*s.Refresh+s.Heartbeat); err != nil {
		return u, err
	}
	if u, err = s.countFor(ctx, window); err != nil {
		return u, err
	}
	select {
	case err := <-granted:
		return u, errors.Join(errors.New("somebody does not wait any more"), err)
	default:
		return u, nil
	}
}

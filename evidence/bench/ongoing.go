// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/keepers"
)

// hold counts what keeps locks alive, for so many of a process.
func hold(ctx context.Context, r *rig) error {
	t := r.size.everyday
	line := row{Step: "hold", Kind: counted, Setting: fmt.Sprintf("%v; requests in a heartbeat period, counted over %d of them", t, r.size.periods)}
	what := func(n int) string { return fmt.Sprintf("hold locks in one process: %d", n) }
	for _, n := range r.size.hold {
		r.inOrder(line, what(n))
	}
	// All numbers at once, but in a full run one client after the other: a thousand
	// heartbeats in a burst are a load, and none is to suffer from another's.
	sizes := len(r.size.hold)
	return wait.AtOnce(ctx, sizes*len(r.clients), sizes*r.size.crowds, func(ctx context.Context, i int) error {
		c := r.clients[i/sizes]
		n := r.size.hold[i%sizes]
		return r.staged(ctx, c, t, func(ctx context.Context, s *stage) error {
			holder, err := s.member(ctx, true)
			if err != nil {
				return err
			}
			names := keepers.Names(n)
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
			u, err := s.countFor(ctx, time.Duration(r.size.periods)*t.Heartbeat)
			if err != nil {
				return err
			}
			kept, err := holder.holds(ctx, names)
			if err != nil {
				return err
			}
			v := perMonth(u.Over(float64(r.size.periods)), t.Heartbeat)
			v.Lost = n - kept
			r.put(line, what(n), s.name, v)
			return nil
		})
	})
}

// countFor counts for a while.
func (s *stage) countFor(ctx context.Context, d time.Duration) (gate.Usage, error) {
	return s.wire.During(func() error { return wait.For(ctx, d) })
}

// waiters counts what many who wait in one process send.
func waiters(ctx context.Context, r *rig) error {
	return r.waiting(ctx, "waiters", fmt.Sprintf("%d wait for one lock, in one process", r.size.waiters), 1, r.size.waiters, len(r.clients))
}

// processes counts what as many send who wait in a process each. In a full run
// one client comes after the other: so many processes are a load.
func processes(ctx context.Context, r *rig) (err error) {
	// Fifty virtual machines start sooner when they do not compile for speed, and
	// what they send is the same.
	const variable = "JAVA_TOOL_OPTIONS"
	if err := os.Setenv(variable, "-XX:TieredStopAtLevel=1"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Unsetenv(variable)) }()
	return r.waiting(ctx, "processes", fmt.Sprintf("%d wait for one lock, in a process each", r.size.waiters), r.size.waiters, 1, r.size.crowds)
}

func (r *rig) waiting(ctx context.Context, step, what string, processes, each, clientsAtOnce int) error {
	t := r.size.everyday
	window := time.Duration(r.size.periods) * t.Heartbeat
	line := row{Step: step, Kind: counted, Setting: fmt.Sprintf("%v; requests of the waiters in a second, counted over %v; the holder's are not in it", t, window)}
	count := func(ctx context.Context, c *peers.Program, what string, tells bool) error {
		return r.staged(ctx, c, t, func(ctx context.Context, s *stage) error {
			s.tells = tells
			holder, err := s.member(ctx, false)
			if err != nil {
				return err
			}
			if _, err := holder.Acquire(ctx, "busy"); err != nil {
				return err
			}
			u, err := s.wait(ctx, processes, each, window)
			if err != nil {
				return err
			}
			r.put(line, what, s.name, perMonth(u.Over(window.Seconds()), time.Second))
			return nil
		})
	}
	told := what + ", told of heartbeats by a bell"
	if processes > 1 {
		r.inOrder(line, what, told)
	}
	return wait.AtOnce(ctx, len(r.clients), clientsAtOnce, func(ctx context.Context, i int) error {
		c := r.clients[i]
		err := count(ctx, c, what, false)
		if err == nil && processes > 1 && string(c.Kind) == tenureName { // no other client has one
			err = count(ctx, c, told, true)
		}
		return err
	})
}

// wait counts what waiters send once all of them wait.
func (s *stage) wait(ctx context.Context, processes, each int, window time.Duration) (gate.Usage, error) {
	waiters := make([]*member, processes)
	err := wait.AtOnce(ctx, processes, 2, func(ctx context.Context, i int) (err error) {
		waiters[i], err = s.member(ctx, true)
		return err
	})
	if err != nil {
		return gate.Usage{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	granted := make(chan error, processes*each)
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
		return gate.Usage{}, err
	}
	if err := wait.For(ctx, 2*s.Refresh+s.Heartbeat); err != nil {
		return gate.Usage{}, err
	}
	u, err := s.countFor(ctx, window)
	if err != nil {
		return u, err
	}
	select {
	case err := <-granted:
		return u, errors.Join(errors.New("somebody does not wait any more"), err)
	default:
		return u, nil
	}
}

// sessions holds many locks in one process: with one heartbeat in all, and with
// one for each. One process at a time: none is to suffer from another's load.
func sessions(ctx context.Context, r *rig) error {
	size := r.size.crowd
	line := row{Step: "session", Kind: crowded}
	for _, c := range r.clients {
		counts := map[string][]int{tenureName: size.tenure, dynamolockName: size.dynamolock}[string(c.Kind)]
		for _, n := range counts {
			err := r.staged(ctx, c, size.Timing, func(ctx context.Context, s *stage) error {
				h, err := keepers.Hold(ctx, s.client.Kind, n, s.wire, s.table.Name, size.Size)
				if err != nil {
					return err
				}
				line.Setting = fmt.Sprintf("%v, %v added to each request by the proxy that counts them; held for %v, looked at each second; "+
					"memory and goroutines are those of the client's process, which has no other work; Tenure has one session; dynamolock has its defaults, and says of a lock that it is lost by IsExpired",
					s.Timing, size.Delay, size.Hold)
				r.put(line, fmt.Sprintf("%d locks", n), s.name, value{Held: h})
				r.say("session: %s with %d locks: %d lost, %.1f s to take them, %s requests a heartbeat period", s.name, n, h.Hold.Lost, h.Acquire.Took, page.Amount(h.Holding.Requests))
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

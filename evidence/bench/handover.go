// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// handover measures the time from a release to the grant of who waits for it, in
// another process and in the same one.
func handover(ctx context.Context, r *rig) error {
	t := r.size.handover
	line := row{
		Step: "handover", Kind: timed,
		Setting: fmt.Sprintf("%v; from before the release is sent until the other one's acquire has returned; released at a random moment of its waiting", t),
	}
	what := []string{"clean hand-over to a process that waits", "clean hand-over within a process"}
	r.inOrder(line, what...)
	return r.eachClient(ctx, t, func(ctx context.Context, s *stage) error {
		one, err := s.member(ctx, true)
		if err != nil {
			return err
		}
		other, err := s.member(ctx, true)
		if err != nil {
			return err
		}
		pairs := [][2]*member{{one, other}, {one, one}}
		return wait.AtOnce(ctx, len(pairs), len(pairs), func(ctx context.Context, i int) error {
			took, err := s.handOver(ctx, fmt.Sprintf("baton-%d", i), pairs[i], s.size.handovers)
			if err != nil {
				return err
			}
			r.put(line, what[i], s.name, value{Spread: newSpread(took)})
			return nil
		})
	})
}

// rung measures the same between two processes that have a bell, beside two that have
// none. No other client has one.
func rung(ctx context.Context, r *rig) error {
	t := r.size.handover
	line := row{
		Step: "bell", Kind: timed,
		Setting: fmt.Sprintf("%v; as above, between two processes, with a bell on the loopback and without one at the same time", t),
	}
	what := []string{"clean hand-over with a bell", "clean hand-over beside it without one"}
	r.inOrder(line, what...)
	for _, c := range r.clients {
		if string(c.Kind) != tenureName {
			continue
		}
		return r.staged(ctx, c, t, func(ctx context.Context, s *stage) error {
			return wait.AtOnce(ctx, len(what), len(what), func(ctx context.Context, i int) error {
				var pair [2]*member
				for k := range pair {
					m, err := s.rung(ctx, i == 0)
					if err != nil {
						return err
					}
					pair[k] = m
				}
				took, err := s.handOver(ctx, fmt.Sprintf("bell-%d", i), pair, s.size.rings)
				if err != nil {
					return err
				}
				r.put(line, what[i], s.name, value{Spread: newSpread(took)})
				return nil
			})
		})
	}
	return nil
}

// handOver passes a lock to and fro between two members, and returns how long
// that took each time.
func (s *stage) handOver(ctx context.Context, name string, pair [2]*member, times int) (took []float64, err error) {
	if _, err := pair[0].Acquire(ctx, name); err != nil {
		return nil, err
	}
	for i := range times {
		holder, waiter := pair[i%2], pair[(i+1)%2]
		granted, err := waiter.begin(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := wait.For(ctx, s.Refresh+time.Duration(rand.Float64()*float64(s.Refresh))); err != nil {
			return nil, err
		}
		released, err := holder.Release(ctx, name)
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenurelock/tenure/interop/peer/wire"
)

// answered is what became of an acquire that was begun.
type answered struct {
	wire.Answer
	err error
}

// begin has m wait for a lock, and returns when it does.
func (m *member) begin(ctx context.Context, name string) (<-chan answered, error) {
	granted := make(chan answered, 1)
	before := m.stage.wire.requests()
	go func() {
		a, err := m.acquire(ctx, name)
		granted <- answered{a, err}
	}()
	err := until(ctx, "a waiter sends a request", func() bool { return m.stage.wire.requests() > before })
	return granted, err
}

// got waits for the answer to an acquire.
func got(ctx context.Context, granted <-chan answered) (wire.Answer, error) {
	select {
	case a := <-granted:
		return a.Answer, a.err
	case <-ctx.Done():
		return wire.Answer{}, context.Cause(ctx)
	}
}

// handover measures the time from a release to the grant of who waits for it, in
// another process and in the same one.
func handover(ctx context.Context, r *rig) error {
	t := r.size.handover
	var all findings
	what := map[bool]string{false: "clean hand-over to a process that waits", true: "clean hand-over within a process"}
	err := r.eachClient(ctx, t, func(ctx context.Context, s *stage) error {
		one, err := s.member(ctx, true)
		if err != nil {
			return err
		}
		other, err := s.member(ctx, true)
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i, pair := range [][2]*member{{one, other}, {one, one}} {
			same := i == 1
			wg.Go(func() {
				took, err := s.handOver(ctx, fmt.Sprintf("baton-%d", i), pair)
				if errs[i] = err; err == nil {
					setting := fmt.Sprintf("%v; from before the release is sent until the other one's acquire has returned; released at a random moment of its waiting", t)
					all.put(row{Step: "handover", What: what[same], Setting: setting, Kind: timed}, s.name, value{Spread: newSpread(took)})
				}
			})
		}
		wg.Wait()
		return firstOf(errs...)
	})
	r.add(all.inOrder([]string{what[false], what[true]})...)
	return err
}

// handOver passes a lock to and fro between two members, and returns how long
// that took each time.
func (s *stage) handOver(ctx context.Context, name string, pair [2]*member) (took []float64, err error) {
	if _, err := pair[0].acquire(ctx, name); err != nil {
		return nil, err
	}
	for i := range s.size.handovers {
		holder, waiter := pair[i%2], pair[(i+1)%2]
		granted, err := waiter.begin(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := pause(ctx, s.refresh+time.Duration(rand.Float64()*float64(s.refresh))); err != nil {
			return nil, err
		}
		released, err := holder.release(ctx, name)
		if err != nil {
			return nil, err
		}
		a, err := got(ctx, granted)
		if err != nil {
			return nil, err
		}
		took = append(took, milliseconds(a.GotNs-released.SentNs))
	}
	_, err = pair[s.size.handovers%2].release(ctx, name)
	return took, err
}

func milliseconds(ns int64) float64 { return float64(ns) / 1e6 }

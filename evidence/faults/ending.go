// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// waitingFor is for how long the waiter is ready to wait beyond a lease, where
// the library takes that for an argument.
const waitingFor = 5 * time.Second

// promptly is how soon Close and the waiter have to return.
const promptly = 500 * time.Millisecond

// closeWaiting closes a client whose caller waits for a lock that another process
// holds.
func closeWaiting(ctx context.Context, s *scene) (cell, error) {
	_, waiter, name, err := s.held(ctx)
	if err != nil {
		return cell{}, err
	}
	ask := waiter.Asking(wire.Acquire, name)
	ask.WaitMs = peers.Milliseconds(waitingFor)
	waiting := waiter.Begin(ask).Done()
	if err := wait.For(ctx, s.beat()); err != nil {
		return cell{}, err
	}
	sent := proc.Monotonic()
	closing := waiter.Begin(waiter.Asking(wire.Close, name)).Done()
	bound, cancel := context.WithTimeout(ctx, 10*s.lease)
	defer cancel()
	// Either may return an error, and that is an answer.
	figures := make([]float64, 2)
	err = wait.AtOnce(ctx, 2, 2, func(ctx context.Context, i int) error {
		select {
		case <-[]<-chan struct{}{closing, waiting}[i]:
		case <-bound.Done():
		}
		figures[i] = milliseconds(proc.Monotonic() - sent)
		return context.Cause(ctx)
	})
	if err != nil {
		return cell{}, err
	}
	within := milliseconds(int64(promptly))
	return cell{
		Verdict: judge(figures[0] <= within && figures[1] <= within), Figures: figures,
		Seen: fmt.Sprintf("Close returned after %s, the waiter after %s", length(figures[0]), length(figures[1])),
	}, nil
}

// drain is for how long the work goes on after it was told to stop.
const drain = 1500 * time.Millisecond

// endAtWork closes the client of a holder whose work needs a moment to stop, as a
// program does that is told to end.
func endAtWork(ctx context.Context, s *scene) (cell, error) {
	holder, waiter, err := s.two(ctx, releasing, eager)
	if err != nil {
		return cell{}, err
	}
	name := s.lock()
	var work *hold
	if s.name == javaName {
		_, err = holder.Acquire(ctx, name)
	} else {
		work, err = holder.work(ctx, name)
	}
	if err != nil {
		return cell{}, err
	}
	granted := waiter.Begin(waiter.Asking(wire.Acquire, name))
	if err := wait.For(ctx, s.beat()); err != nil {
		return cell{}, err
	}
	o := holder.Asking(wire.End, name)
	o.DrainMs = drain.Milliseconds()
	if s.name == javaName {
		o.Command = wire.Close
	}
	began := proc.Monotonic()
	closing := holder.Begin(o)
	bound, cancel := context.WithTimeout(ctx, 8*s.lease)
	defer cancel()
	a, err := granted.Wait(bound)
	if err != nil {
		return cell{}, fmt.Errorf("the other one gets the lock: %w", err)
	}
	// The Java client's process has no work that outlasts a lock: its end is
	// reckoned.
	worked := began + drain.Nanoseconds()
	if s.name != javaName {
		b, err := work.ended(ctx, 3*s.lease)
		if err != nil {
			return cell{}, err
		}
		worked = b.end
	}
	if _, err := closing.Wait(bound); err != nil {
		s.say("%s: Close: %v", s.name, err)
	}
	gap := milliseconds(a.GotNs - worked)
	when := map[bool]string{true: "after", false: "before"}[gap >= 0]
	return cell{Verdict: judge(gap >= 0), Figures: []float64{gap}, Seen: fmt.Sprintf("the successor began %s %s the work's end", length(math.Abs(gap)), when)}, nil
}

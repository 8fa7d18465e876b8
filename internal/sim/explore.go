// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"sync"
	"sync/atomic"
)

// Sum is what many runs were like.
type Sum struct {
	Schedules uint64
	Events    uint64
	Least     int // events of the shortest

	// Schedules with at least one of these.
	WithTakeover, WithRequest, WithLateWrite, WithWrongClock, WithStep, WithPause, WithCrash, WithRefusal uint64

	Grants, Takeovers, Holes uint64
	Seen                     Transitions
}

// Add counts one more run.
func (s *Sum) Add(t *Tally) {
	if s.Schedules == 0 || t.Events < s.Least {
		s.Least = t.Events
	}
	s.Schedules++
	s.Events += uint64(t.Events)
	s.Grants += uint64(t.Grants)
	s.Takeovers += uint64(t.Takeovers)
	s.Holes += uint64(t.Holes)
	with := func(n *uint64, many int) {
		if many > 0 {
			*n++
		}
	}
	with(&s.WithTakeover, t.Takeovers)
	with(&s.WithRequest, t.Asked)
	with(&s.WithLateWrite, t.LateWrites)
	with(&s.WithWrongClock, t.WrongClocks)
	with(&s.WithStep, t.Steps)
	with(&s.WithPause, t.Pauses+t.Freezes)
	with(&s.WithCrash, t.Crashes)
	with(&s.WithRefusal, t.Refused)
	s.Seen.Add(&t.Seen)
}

// Failure is a seed whose run has violated a rule.
type Failure struct {
	Seed uint64
	Err  *Violation
}

// Explore runs the schedules of the seeds from first on with so many workers,
// until it has run n of them (for ever if n is 0), ctx ends, or one fails: then
// it returns the one with the lowest seed that was found. Shape changes what a
// seed has drawn, if it is not nil. Each is told of every sum, now and then.
func Explore(ctx context.Context, first, n uint64, workers int, shape func(*Config), each func(Sum)) (Sum, *Failure) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		next   atomic.Uint64
		mu     sync.Mutex
		sum    Sum
		failed *Failure
		all    sync.WaitGroup
	)
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if n > 0 && i >= n {
					return
				}
				tally, err := RunSeed(first+i, shape, nil)
				mu.Lock()
				sum.Add(tally)
				if v, ok := err.(*Violation); ok && (failed == nil || first+i < failed.Seed) { //nolint:errorlint // it is never wrapped
					failed = &Failure{first + i, v}
					cancel()
				}
				if each != nil && sum.Schedules%1000 == 0 {
					each(sum)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return sum, failed
}

// RunSeed runs the schedule of a seed, and notes what is done in t.
func RunSeed(seed uint64, shape func(*Config), t *Trace) (*Tally, error) {
	return RunSource(Seed(seed), shape, t)
}

// RunSource runs the schedule that a source draws, and notes what is done in t.
func RunSource(src Source, shape func(*Config), t *Trace) (*Tally, error) {
	cfg := Schedule(src)
	if shape != nil {
		shape(&cfg)
	}
	cfg.Trace = t
	return Tell(src, cfg)
}

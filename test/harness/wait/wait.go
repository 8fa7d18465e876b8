// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package wait waits: for a while, for a condition, and for many calls at once.
package wait

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Bound bounds what takes no time except on a busy machine.
const Bound = time.Minute

// For waits for a time that belongs to a measurement.
func For(ctx context.Context, d time.Duration) error {
	if Unless(d, ctx.Done(), nil) {
		return nil
	}
	return context.Cause(ctx)
}

// Unless waits for a time. It returns false if done comes before.
func Unless(d time.Duration, over, other <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-over:
	case <-other:
	}
	return false
}

// Rest is For where the caller checks the end of ctx elsewhere.
func Rest(ctx context.Context, d time.Duration) { _ = For(ctx, d) }

// Within waits for a condition, for a time at most, and reports whether it came true.
func Within(ctx context.Context, d time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for !holds() {
		if For(ctx, 2*time.Millisecond) != nil {
			return false
		}
	}
	return true
}

// Until waits for a condition, for [Bound] at most.
func Until(ctx context.Context, what string, holds func() bool) error {
	if Within(ctx, Bound, holds) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New("not so within a minute: " + what)
}

// AtOnce runs f for all of 0 to n-1, limit of them at a time, and ends the others
// when one fails.
func AtOnce(ctx context.Context, n, limit int, f func(ctx context.Context, i int) error) error {
	all, during := errgroup.WithContext(ctx)
	all.SetLimit(limit)
	for i := range n {
		all.Go(func() error { return f(during, i) })
	}
	return cmp.Or(all.Wait(), context.Cause(ctx))
}

// Lateness measures how late a timer of this process is, and so how busy the machine is. It
// returns a function that ends the measurement, and returns the maximum.
func Lateness() (most func() time.Duration) {
	const nap = 20 * time.Millisecond
	end, told := make(chan struct{}), make(chan time.Duration)
	go func() {
		var worst time.Duration
		ticker := time.NewTicker(nap)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-ticker.C:
				worst = max(worst, time.Since(last)-nap)
				last = time.Now()
			case <-end:
				told <- worst
				return
			}
		}
	}()
	return sync.OnceValue(func() time.Duration {
		close(end)
		return <-told
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

const (
	manyLocks   = 1000
	manyLatency = 10 * time.Millisecond
	manyTime    = 20 * time.Second
	manyLease   = 5 * time.Second
	// manyAtOnce is how many are acquired at the same time.
	manyAtOnce = 32
)

// holdMany holds many locks in one process, with a store that is not near.
func holdMany(ctx context.Context, s *scene) (cell, error) {
	m, err := s.member(ctx, ordinary)
	if err != nil {
		return cell{}, err
	}
	m.gate.slow(manyLatency)
	names := make([]string, manyLocks)
	for i := range names {
		names[i] = s.lock()
	}
	err = atOnce(names, func(name string) error {
		_, err := m.acquire(ctx, name)
		return err
	})
	if err != nil {
		return cell{}, err
	}
	m.gate.requests()
	began := time.Now()
	if err := pause(ctx, manyTime); err != nil {
		return cell{}, err
	}
	sent := float64(m.gate.requests()) / time.Since(began).Seconds()
	var mu sync.Mutex
	lost := 0
	err = atOnce(names, func(name string) error {
		holds, err := m.holds(ctx, name)
		if err == nil && !holds {
			mu.Lock()
			lost++
			mu.Unlock()
		}
		return err
	})
	if err != nil {
		return cell{}, err
	}
	return cell{
		Verdict: judge(lost == 0), Figures: []float64{float64(lost), sent},
		Seen: fmt.Sprintf("lost %d; %s a second", lost, plural(math.Round(sent), "request")),
	}, nil
}

// atOnce calls f for each name, some at the same time.
func atOnce(names []string, f func(string) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	room := make(chan struct{}, manyAtOnce)
	for _, name := range names {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if err := f(name); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return fmt.Errorf("%d of %d: %w", len(errs), len(names), errors.Join(errs[:min(3, len(errs))]...))
	}
	return nil
}

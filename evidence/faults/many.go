// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
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
	how, said := ordinary, ""
	if s.isOnKubernetes() || s.on == bucket {
		how, said = underSession, "under one session, "
	}
	m, err := s.member(ctx, how)
	if err != nil {
		return cell{}, err
	}
	m.gate.Slow(manyLatency)
	names := make([]string, manyLocks)
	for i := range names {
		names[i] = s.lock()
	}
	err = wait.AtOnce(ctx, len(names), manyAtOnce, func(ctx context.Context, i int) error {
		_, err := m.Acquire(ctx, names[i])
		return err
	})
	if err != nil {
		return cell{}, err
	}
	before := m.gate.Count()
	began := time.Now()
	if err := wait.For(ctx, manyTime); err != nil {
		return cell{}, err
	}
	sent := float64(m.gate.Count()-before) / time.Since(began).Seconds()
	var lost atomic.Int64
	err = wait.AtOnce(ctx, len(names), manyAtOnce, func(ctx context.Context, i int) error {
		holds, err := m.Holds(ctx, names[i])
		if err == nil && !holds {
			lost.Add(1)
		}
		return err
	})
	if err != nil {
		return cell{}, err
	}
	return cell{
		Verdict: judge(lost.Load() == 0), Figures: []float64{float64(lost.Load()), sent},
		Seen: fmt.Sprintf("%slost %d; %s a second", said, lost.Load(), plural(math.Round(sent), "request")),
	}, nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
)

const suspendRuns = 3

// suspend suspends the holder until another one has had its lock for a while.
func suspend(ctx context.Context, s *scene) (cell, error) {
	figures, err := s.repeat(ctx, suspendRuns, func(ctx context.Context, _ int) (float64, error) {
		p, err := s.pair(ctx, suspendable)
		if err != nil {
			return 0, err
		}
		defer p.end()
		if err := p.stop(ctx); err != nil {
			return 0, err
		}
		stopped := proc.Monotonic()
		return p.wake(ctx, func() (int64, error) {
			slept := proc.Monotonic() - stopped
			err := p.holder.sleep(time.Duration(slept))
			if s.name != javaName {
				slept = 0 // its log is by the machine's own clock
			}
			return slept, err
		})
	})
	if err != nil {
		return cell{}, err
	}
	return believed(figures), nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"time"
)

const defaultHealthFailures = 3

// health are the checks of a leader beside its work.
type health struct {
	name     string // of the election
	ask      func(context.Context, *Lease) error
	period   time.Duration
	failures int // in a row, that end the tenure
}

// beside returns the work with the checks beside it.
func (h health) beside(lease time.Duration, work func(context.Context, *Lease) error) (func(context.Context, *Lease) error, error) {
	switch {
	case h.period < 0 || h.failures < 0:
		return nil, refused("health period %v and health failures %d must not be negative", h.period, h.failures)
	case h.ask == nil:
		return work, nil
	}
	if h.period == 0 {
		h.period = lease
	}
	if h.failures == 0 {
		h.failures = defaultHealthFailures
	}
	return func(ctx context.Context, l *Lease) error {
		working, stop := context.WithCancelCause(ctx)
		var sick error
		checked := make(chan struct{})
		go func() {
			defer close(checked)
			sick = h.check(working, l)
			stop(sick)
		}()
		end := func() {
			stop(nil)
			<-checked
		}
		defer end() // after a panic as well
		err := work(working, l)
		if end(); sick != nil && ctx.Err() == nil {
			return lostWith(&Error{"lead", h.name, sick}, endOf(working, err))
		}
		return err
	}, nil
}

// check asks after the health of a leader until ctx ends. It returns why the leader is
// unhealthy, nil if it was not until then.
func (h health) check(ctx context.Context, l *Lease) error {
	ticks := time.NewTicker(h.period)
	defer ticks.Stop()
	for failed := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		asking, end := context.WithTimeout(ctx, h.period)
		err := h.ask(asking, l)
		end()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failed = 0
			continue
		}
		if failed++; failed >= h.failures {
			return refused("%w %d times in a row: %w", ErrUnhealthy, failed, err)
		}
	}
}

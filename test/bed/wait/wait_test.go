// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/test/bed/wait"
)

func TestWaits(t *testing.T) {
	over := make(chan struct{})
	close(over)
	ended, end := context.WithCancelCause(t.Context())
	errEnded := errors.New("ended")
	end(errEnded)
	for name, c := range map[string]struct {
		wait func(ctx context.Context) bool
		want bool
		took time.Duration
	}{
		"unless nothing":      {func(context.Context) bool { return wait.Unless(time.Hour, nil, nil) }, true, time.Hour},
		"unless it is over":   {func(context.Context) bool { return wait.Unless(time.Hour, over, nil) }, false, 0},
		"unless another is":   {func(context.Context) bool { return wait.Unless(time.Hour, nil, over) }, false, 0},
		"for no time":         {func(context.Context) bool { return wait.Unless(0, over, over) }, true, 0},
		"for a time":          {func(ctx context.Context) bool { return wait.For(ctx, time.Hour) == nil }, true, time.Hour},
		"for an ended one":    {func(context.Context) bool { return errors.Is(wait.For(ended, time.Hour), errEnded) }, true, 0},
		"within, and it is":   {func(context.Context) bool { return wait.Within(ended, time.Hour, func() bool { return true }) }, true, 0},
		"within, and it ends": {func(context.Context) bool { return wait.Within(ended, time.Hour, func() bool { return false }) }, false, 0},
		"until, and it ends": {func(context.Context) bool {
			return errors.Is(wait.Until(ended, "it", func() bool { return false }), errEnded)
		}, true, 0},
		"within a time":   {func(ctx context.Context) bool { return wait.Within(ctx, time.Minute, func() bool { return false }) }, false, time.Minute},
		"until the bound": {func(ctx context.Context) bool { return wait.Until(ctx, "it", func() bool { return false }) == nil }, false, wait.Bound},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			if got, took := c.wait(t.Context()), time.Since(began); got != c.want || took != c.took {
				t.Errorf("%s: %v after %v, want %v after %v", name, got, took, c.want, c.took)
			}
		})
	}
}

// TestLateness: a timer that nothing holds up is not late, and the figure stays as it was
// told.
func TestLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := wait.Lateness()
		wait.Rest(t.Context(), time.Second)
		if first := most(); first != 0 || most() != first {
			t.Errorf("late by %v, then by %v", first, most())
		}
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowly is a context that takes its time to say that it has not ended.
type slowly struct{ context.Context }

func (c slowly) Err() error {
	<-time.After(time.Second)
	return c.Context.Err()
}

// An election that is won while following tasks are being started waits for that as well: a
// task whose start was decided before would run beside the leading ones otherwise.
func TestElectedWhileStartingToFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(nil, &Options{Logger: slog.New(slog.DiscardHandler)})
		var begun, over atomic.Bool
		g.Following("f", func(ctx context.Context, _ *Followed) error {
			begun.Store(true)
			if over.Load() {
				t.Error("it is started beside leading tasks")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		stopping, stop := context.WithCancelCause(t.Context())
		defer stop(errEnded)
		g.stopping, g.stop, g.left = slowly{stopping}, stop, 1+len(g.following)
		starting, cancel := context.WithCancel(t.Context())
		f := &following{g: g, crew: &crew{g: g}, followed: newFollowed(0), started: make(chan struct{}), cancel: cancel, unwatch: func() {}, watched: make(chan struct{})}
		close(f.watched)
		go f.start(starting, t.Context())
		time.Sleep(settle + time.Second/2) // it has asked whether to start the task
		f.stop(ErrElected, 1)
		over.Store(true)
		time.Sleep(time.Minute)
		if !begun.Load() {
			t.Error("the task was never started: the test has lost its point")
		}
	})
}

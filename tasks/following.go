// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
)

// settle is how long a replica that follows waits for its election before its
// following tasks are started, unless another is seen to lead before that. So
// the first replica of all does not start them to stop them at once.
const settle = time.Second

// confirm is the delay before a new leader is passed on: a poll can show this replica's
// own term a moment before the replica knows that it was elected, and the record does not
// say for certain whose term it is.
const confirm = 100 * time.Millisecond

// following is the time from one term of this replica to its next.
type following struct {
	g        *Group
	crew     *crew
	followed *Followed
	cancel   context.CancelFunc // ends the waiting of start
	started  chan struct{}      // closed when start has ended
	unwatch  context.CancelFunc
	watched  chan struct{} // closed when watch has ended
}

// newFollowing follows from now on. The token is that of this replica's last term.
func newFollowing(g *Group, ctx context.Context, token uint64) *following {
	ctx = context.WithoutCancel(ctx)
	f := &following{
		g: g, crew: &crew{g: g}, followed: newFollowed(token),
		started: make(chan struct{}), watched: make(chan struct{}),
	}
	watching, unwatch := context.WithCancel(ctx)
	starting, cancel := context.WithCancel(ctx)
	f.unwatch, f.cancel = unwatch, cancel
	go f.watch(watching)
	go f.start(starting, ctx)
	return f
}

// watch passes each leader on.
func (f *following) watch(ctx context.Context) {
	defer close(f.watched)
	known := uint64(0)
	for leader, err := range f.g.election.Observe(ctx) {
		switch {
		case errors.Is(err, tenure.ErrClosed):
			// The campaign finds it as well, but not every group has one.
			if len(f.g.leading) == 0 {
				f.g.fail(fmt.Errorf("tasks: %w", err))
			}
			return
		case err != nil:
			// The leader is unknown: the last known one may still lead.
			f.followed.settle()
			continue
		case !leader.None() && leader.Token != known:
			select {
			case <-time.After(confirm):
			case <-ctx.Done():
				return
			}
		}
		known = leader.Token
		f.followed.set(leader)
	}
}

func (f *following) start(ctx, tasks context.Context) {
	defer close(f.started)
	timer := time.NewTimer(settle)
	defer timer.Stop()
	select {
	case <-f.followed.settled:
	case <-timer.C:
	case <-ctx.Done():
	}
	f.crew.start(tasks, f.g.following, inputs{followed: f.followed}, func() bool {
		return ctx.Err() == nil && f.g.stopping.Err() == nil
	})
}

// stop stops the tasks in order. The token is that of this replica's new term, or of its
// last one.
func (f *following) stop(cause error, token uint64) {
	f.followed.exclude(token)
	f.cancel()
	<-f.started
	f.crew.stop(cause)
	f.unwatch()
	<-f.watched
	close(f.followed.over)
}

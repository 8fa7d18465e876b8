// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tenurelock/tenure"
)

// candidate is the group's part in the election: it follows, and leads when it
// is elected. Its run is the one goroutine that uses it, but for withdraw.
type candidate struct {
	g       *Group
	ctx     context.Context // of the campaigns and the terms; not ended by Run's context
	leave   context.CancelCauseFunc
	follows *following    // nil while it leads, and without following tasks
	token   uint64        // of its last term
	ended   bool          // the last term, otherwise than by the stop
	done    chan struct{} // closed when the lock is released and following tasks have returned
	stuck   chan struct{} // closed when leading tasks were given up

	mu    sync.Mutex
	leads bool // the end of ctx is put off until its leading tasks have returned
}

func newCandidate(g *Group, ctx context.Context) *candidate {
	c := &candidate{g: g, done: make(chan struct{}), stuck: make(chan struct{})}
	c.ctx, c.leave = context.WithCancelCause(context.WithoutCancel(ctx))
	return c
}

// run follows and leads until the group stops.
func (c *candidate) run() {
	defer close(c.done)
	defer c.leave(errEnded)
	unhook := context.AfterFunc(c.g.stopping, c.withdraw)
	defer unhook()

	c.follow()
	if len(c.g.leading) == 0 {
		<-c.g.stopping.Done()
	}
	for c.g.stopping.Err() == nil {
		c.ended = false
		err := c.g.election.Run(c.ctx, c.lead)
		switch {
		case c.g.stopping.Err() != nil:
			// Of how a stop ends the election only this counts: that the lease
			// was lost while leading tasks were stopped.
			if errors.Is(err, tenure.ErrLost) && !c.ended {
				c.g.fail(err)
			}
		case c.ended:
			// A term has ended: campaign again. A closed client says so then.
		case err != nil:
			c.g.fail(fmt.Errorf("tasks: %w", err))
		}
	}
	c.unfollow(context.Cause(c.g.stopping))
}

// withdraw ends the campaign when the group stops, or the term if its tasks
// have returned.
func (c *candidate) withdraw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leads {
		c.leave(context.Cause(c.g.stopping))
	}
}

func (c *candidate) setLeads(leads bool) {
	c.mu.Lock()
	c.leads = leads
	c.mu.Unlock()
	if !leads && c.g.stopping.Err() != nil {
		c.withdraw() // a loss from here on must not begin another campaign
	}
}

// lead is one term. It returns when no leading task is under way any more,
// because then the lock is released.
func (c *candidate) lead(ctx context.Context, lease *tenure.Lease) error {
	c.setLeads(true)
	defer c.setLeads(false)
	c.token, c.ended = lease.Token(), false
	c.unfollow(ErrElected)

	leading := &crew{g: c.g}
	leading.start(ctx, c.g.leading, inputs{lease: lease}, func() bool {
		// The lease may be over before its context says so.
		return c.g.stopping.Err() == nil && ctx.Err() == nil && lease.Check() == nil
	})
	select {
	case <-c.g.stopping.Done():
	case <-ctx.Done():
	}
	// One after the other while the lease is good: its context has not ended yet. If the
	// lease is lost, the end of ctx has reached them all at once.
	cause := context.Cause(c.g.stopping)
	if cause == nil {
		cause = context.Cause(ctx)
	}
	stuck := leading.stop(cause)
	if len(stuck) > 0 {
		// The group, which has failed by this, goes on without them. From now
		// on the lease is counted out; it is released if they return before.
		c.leave(context.Cause(c.g.stopping))
		close(c.stuck)
		for _, w := range stuck {
			<-w.done
		}
	}
	if c.g.stopping.Err() != nil {
		c.release(ctx, lease)
		return nil
	}
	c.ended = true
	err := context.Cause(ctx)
	if !errors.Is(err, tenure.ErrClosed) {
		// Before the release, which a store that is away holds up.
		c.follow()
	}
	return err
}

// release releases the lock as failed if the failure of a task has ended the term:
// before the campaign is ended, which would count as being asked to stop. How the
// release itself went, Run finds again.
func (c *candidate) release(ctx context.Context, lease *tenure.Lease) {
	cause := context.Cause(c.g.stopping)
	var failed *Error
	var panicked *PanicError
	switch {
	case ctx.Err() != nil, errors.Is(cause, ErrStop):
		return
	case errors.As(cause, &failed):
	case errors.As(cause, &panicked):
		cause = fmt.Errorf("task %q panicked: %v", panicked.Task, panicked.Value) // without its stack
	default:
		return
	}
	_ = lease.ReleaseWith(context.WithoutCancel(ctx), &tenure.ReleaseOptions{Failed: cause}) // see above
}

// follow begins to follow.
func (c *candidate) follow() {
	if len(c.g.following) > 0 {
		c.follows = newFollowing(c.g, c.ctx, c.token)
	}
}

// unfollow stops the following tasks.
func (c *candidate) unfollow(cause error) {
	if c.follows != nil {
		c.follows.stop(cause, c.token)
		c.follows = nil
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// CrashOptions are those of [Client.ReleaseCrashed].
type CrashOptions struct {
	// After is how long the lock stays held, from the call on: the last requests of the
	// dead holder to what it has worked on may still be on their way. A lease that
	// runs out leaves them [Options.Grace]. If zero, that is it; a negative one is no
	// time at all, which is right only if the resource is fenced.
	After time.Duration
	// Within is how long the store is asked, from the call on, at least as long as
	// After. If zero, two lease durations. By then the lease has run out by itself.
	Within time.Duration
}

// ReleaseCrashed releases the lock of a lease whose holder has certainly ended without
// releasing it, so that others need not wait until the lease has run out. The id is
// that of the lease: [Lease.ID]. The caller answers for the death: the holder's process,
// all that it had started, and whoever else has worked under the lease, must have ended.
// The end of a connection is no proof of that, nor is the exit of one process which may
// have left children. For a holder that has shown no life for its lease
// [Client.ReleaseDead] needs no proof.
//
// Only a record that shows the very lease is written. The lock may be taken, released
// or reserved meanwhile: the error matches [ErrNotHeld] then. The tenure ends as
// [EndCrashed], unless the holder has said itself why it had stopped. Other errors are
// those of the store, or match the context's; the lock runs out by itself then.
func (c *Client) ReleaseCrashed(ctx context.Context, name, id string, options *CrashOptions) error {
	err := checkKey(name)
	if err == nil && id == "" {
		err = invalid("the id of the lease is empty")
	}
	if err == nil {
		err = checkForm("lease id", id, driver.MaxSessionLen)
	}
	var o CrashOptions
	if options != nil {
		o = *options
	}
	if o.After == 0 {
		o.After = c.timing.Grace
	}
	if o.Within == 0 {
		o.Within = max(o.After, 0) + 2*c.timing.Lease
	}
	if err == nil && (o.Within < 0 || o.Within < o.After) {
		err = invalid("within %v must not be shorter than after %v", o.Within, o.After)
	}
	if err == nil && ctx.Err() != nil {
		err = done(ctx)
	}
	if err == nil {
		err = c.bury(ctx, name, id, o)
	}
	if err != nil {
		return wrap("release", name, err)
	}
	return nil
}

// bury runs the machine that frees what a dead holder has left.
func (c *Client) bury(ctx context.Context, name, id string, o CrashOptions) error {
	if err := c.refusal(); err != nil {
		return err
	}
	var mu sync.Mutex
	now := c.clock.Contender()
	m := protocol.NewUndertaker(c.timing, c.env, protocol.Death{Key: name, ID: id, From: now + max(o.After, 0), Until: now + o.Within})
	ended, over := make(chan struct{}), false
	run := engine.Run{
		Machine: m, Mutex: &mu, Clock: c.contender, Timers: c.looks, Send: c.last,
		Stepped: func(time.Duration, protocol.Action) {
			if answer, _, _ := m.Answer(); answer != protocol.NoAnswer && !over {
				over = true
				close(ended)
			}
		},
		Replied: func(_ time.Duration, _ *protocol.Call, r protocol.Result) {
			if engine.Newsworthy(r.Err) {
				c.events.emit(Event{Kind: EventStoreError, Lock: name, Err: r.Err})
			}
		},
	}
	run.Step()
	select {
	case <-ended:
	case <-ctx.Done():
		run.Do(m.GiveUp)
		return done(ctx)
	case <-c.closing:
		run.Do(m.GiveUp)
		return ErrClosed
	case <-c.voided:
		run.Do(m.GiveUp)
		return c.refusal()
	}
	mu.Lock()
	answer, rec, err := m.Answer()
	mu.Unlock()
	switch answer {
	case protocol.Done:
		c.released(name)
		return nil
	case protocol.Nobody:
		return ErrNotHeld
	case protocol.Changed:
		return refused("%w: %q has it now, under token %d", ErrNotHeld, rec.Owner, rec.Token)
	}
	if rec.Key != "" {
		return unreadable(rec)
	}
	if errors.Is(err, protocol.ErrNotProved) {
		return refused("not settled within %v: the lock runs out by itself", o.Within)
	}
	return err
}

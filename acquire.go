// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"

	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
)

// Acquire takes the lock, waiting until it is free. ctx bounds only the waiting: the
// lease lives until it is released. Acquire returns at once when ctx ends; a write that
// is under way then is cleaned up in the background.
//
// A name has 1 to 1024 bytes of printable UTF-8, no leading or trailing space, and does not
// begin with "tenure/".
//
// Packages once, semaphore, rwlock and shard derive names such as "nightly:once" for
// their own locks. A program that takes such a lock blocks these packages.
//
// The error matches the context's, if ctx ended. If that was a deadline, it carries what the
// caller waited for: a [*HeldError] with the holder, so that it matches [ErrHeld] too, or the
// store's own error if the store has recently given no answer. Otherwise the error matches
// one of these:
//
//   - [ErrHeld] if Wait or AdditionalWait passed
//   - [ErrUnreadable] if the record cannot be understood
//   - [ErrClosed] if the client was closed
//   - [ErrExpired] if the process was paused while the lock was granted, until that
//     lease was over
//   - the store's own error, if the store is unusable, or gave no answer for
//     StoreTimeout
func (c *Client) Acquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return c.acquire(ctx, "acquire", name, options, nil, false)
}

// TryAcquire takes the lock if that is possible without waiting for its
// holder. Otherwise the error is a [*HeldError], which matches [ErrHeld]. The
// client remembers what TryAcquire saw: called again after the lease of a dead
// holder, it takes the lock.
func (c *Client) TryAcquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return c.acquire(ctx, "try acquire", name, options, nil, true)
}

func (c *Client) acquire(ctx context.Context, op, name string, options *AcquireOptions, under *engine.SessionHolder, try bool) (*Lease, error) {
	l, err := c.acquired(ctx, name, options, under, try)
	if err != nil {
		return nil, wrap(op, name, err)
	}
	return l, nil
}

func (c *Client) acquired(ctx context.Context, name string, options *AcquireOptions, under *engine.SessionHolder, try bool) (*Lease, error) {
	var of Timing
	if options != nil {
		of = options.Timing
	}
	t, err := c.timingOf(of, under)
	if err != nil {
		return nil, err
	}
	o, err := options.copied(t.Lease, c.options.Label)
	if err == nil {
		err = checkName(name)
	}
	if err == nil && ctx.Err() != nil {
		err = engine.Done(ctx)
	}
	if err != nil {
		return nil, err
	}
	patience := t.Lease
	if try {
		patience = 3 * t.RequestTimeout
	}
	if o.StoreTimeout != 0 {
		patience = max(0, o.StoreTimeout)
	}
	wants := engine.AcquireOptions{
		Want: protocol.Want{
			Key: name, Data: o.Data, Try: try, UnlessAlive: o.UnlessAlive && !try, Patience: patience,
			Priority: o.Priority,
		},
		Timing: t, Under: under, Wait: o.Wait, AdditionalWait: o.AdditionalWait, Capacity: o.Capacity,
		History: o.History, WatchRequests: o.WatchRequests,
	}
	var held *engine.LeaseHolder
	if o.CoolDown > 0 && !try && !o.UnlessAlive {
		held, err = c.coolDown(ctx, wants, o.CoolDown, o.CoolDownMax)
	} else {
		held, err = c.engine.Acquire(ctx, wants)
	}
	if err != nil {
		return nil, err
	}
	return held.Of.(*Lease), nil
}

// timingOf returns the timing of a lock that is taken with the given timing.
func (c *Client) timingOf(t Timing, under *engine.SessionHolder) (*protocol.Timing, error) {
	switch {
	case under == nil && t == (Timing{}):
		return &c.timing, nil
	case under == nil:
		own, err := t.of(c.timing)
		return &own, err
	case t != (Timing{}):
		return under.Timing(), text.Invalid("a lock under a session has the session's timing: set it in SessionOptions instead")
	}
	return under.Timing(), nil
}

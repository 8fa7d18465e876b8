// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
)

// Run takes the lock, runs work while it is held, waits for it to return, and
// releases the lock. It is the right default.
//
// The context of work carries ctx's values, and ends with ctx, with the lease,
// and with the client; see [Lease.Context]. When it ends, work must return:
// heartbeats go on meanwhile, for [Options.StopTimeout] at most.
//
// Run returns what work returns. If the lease was lost before that, or work
// outlasted its heartbeats, the error matches [ErrLost] or [ErrStopTimeout]
// too. If the holder was asked to step down, and work returned an error, it
// matches [ErrSteppedDown]. If the lock was not acquired, work was not run; see [Client.Acquire].
// A panic of work releases the lock and goes on.
//
// If work returns an error, or panics, while nothing has asked it to stop, the
// tenure ends as [EndFailed], with the error's text as the reason.
func (c *Client) Run(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error) error {
	if err := checkWork("run", name, work == nil); err != nil {
		return err
	}
	return run(ctx, name, options, work, c.Acquire)
}

// TryRun is [Client.Run] for work that is left out while another process holds the
// lock: it does not wait for a holder. The error is then a [*HeldError], which matches
// [ErrHeld], and work was not run; see [Client.TryAcquire].
func (c *Client) TryRun(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error) error {
	if err := checkWork("try run", name, work == nil); err != nil {
		return err
	}
	return run(ctx, name, options, work, c.TryAcquire)
}

func run(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error,
	acquire func(context.Context, string, *AcquireOptions) (*Lease, error),
) error {
	l, err := acquire(ctx, name, options)
	if err != nil {
		return err
	}
	return l.hold(ctx, work)
}

// hold runs work under the lease, and releases it.
func (l *Lease) hold(ctx context.Context, work func(context.Context, *Lease) error) error {
	lost, err := l.run(ctx, work)
	if lost != nil && (err != nil || !errors.Is(lost, ErrSteppedDown)) {
		return lostWith(&Error{"run", l.key, lost}, err)
	}
	return err
}

// run runs work under the lease and releases it. If the lease was lost, or asked
// back, before work had returned, lost says how; err is the error of work.
func (l *Lease) run(ctx context.Context, work func(context.Context, *Lease) error) (lost, err error) {
	bound, stop := l.Bind(ctx)
	defer stop()
	unhook := context.AfterFunc(ctx, func() { l.stop(context.Cause(ctx)) })
	defer unhook()

	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			_ = l.ReleaseWith(context.WithoutCancel(ctx), l.failure(ctx, errBroken))
		}
	}()
	err = work(bound, l)
	returned = true

	lost = l.ReleaseWith(context.WithoutCancel(ctx), l.failure(ctx, err))
	if errors.Is(lost, ErrLost) || errors.Is(lost, ErrStopTimeout) {
		return errors.Unwrap(lost), err
	}
	if cause := context.Cause(l.ctx); errors.Is(cause, ErrSteppedDown) {
		return cause, err
	}
	return nil, err // released, or running out by itself: the work was covered
}

// errBroken is the failure of work that has not returned.
var errBroken = errors.New("the work panicked, or ended its goroutine")

// failure returns what a release says of the error of work: that the work has
// failed, unless it was asked to stop before. What stops the work is its own
// context, the lease, and the client, which ends the lease.
func (l *Lease) failure(ctx context.Context, err error) *ReleaseOptions {
	if err == nil || ctx.Err() != nil || l.ctx.Err() != nil || l.Check() != nil {
		return nil
	}
	return &ReleaseOptions{Failed: err}
}

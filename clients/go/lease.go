// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/internal/text"
)

// Lease is the time-bounded right of a holder to a lock. It is a fence.Grant: package fence can show its
// name and token to a resource.
//
// All methods may be called concurrently.
type Lease struct {
	c       *Client
	grant   grant
	ctx     context.Context
	cancel  context.CancelCauseFunc
	renewer *renewer // of the lock's own heartbeats; nil under a session
	session *Session // nil without one
	member  *member  // of the session

	once   sync.Once // the release
	done   chan struct{}
	result error // of the release, when done is closed
}

// bare returns a lease that nothing holds.
func (c *Client) bare(g grant) *Lease {
	l := &Lease{c: c, grant: g, done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// lease returns the lease of a grant that counts nothing yet.
func (c *Client) lease(g grant) *Lease {
	l := c.bare(g)
	l.renewer = c.renewer(newTerm(g, c.stopTimeout(g)))
	l.renewer.beat = func(ctx context.Context, h *heartbeat) (confirmation, *problem) {
		body := fields{"name": g.name, "token": g.token, "after": h.after, "next": h.next}
		return call(ctx, l.renewer.to, l.renewer.limit, "/v1/heartbeat", body, readHeartbeat)
	}
	l.renewer.confirmed = func(c confirmation, now time.Duration) {
		if c.asked != nil && l.renewer.term.ask(now) {
			l.cancel(c.asked)
		}
	}
	l.renewer.over = l.cancel
	return l
}

func (c *Client) stopTimeout(g grant) time.Duration {
	if c.options.StopTimeout > 0 {
		return c.options.StopTimeout
	}
	return g.lease
}

// Name returns the name of the lock. The name of a slot of a semaphore is derived, such as "renders:slot/2".
func (l *Lease) Name() string { return l.grant.name }

// Token returns the fencing token. Every change of holder raises it, and it never decreases. Send it to the
// resource, which must reject a token lower than the highest that it has seen.
func (l *Lease) Token() uint64 { return l.grant.token }

// Owner returns the name under which the lock is held.
func (l *Lease) Owner() string { return l.c.options.Owner }

// Data returns what the record of the lock held when it was granted: [AcquireOptions.Data], or else what the
// former holder has left. It is nil if there was nothing.
func (l *Lease) Data() []byte { return slices.Clone(l.grant.data) }

// Context returns a context that is cancelled at the deadline, on a loss, when the holder must stop, and by a
// release. context.Cause says why: an error that matches [ErrLost], [ErrReleased] or [ErrSessionClosed], or a
// [*StepDownError].
func (l *Lease) Context() context.Context { return l.ctx }

// Bind returns a context with the values and the cancellation of ctx that also ends with the lease, as
// [Lease.Context] does. stop frees its resources.
func (l *Lease) Bind(ctx context.Context) (bound context.Context, stop context.CancelFunc) {
	return bind(ctx, l.ctx)
}

// bind returns a context that ends with ctx and with another one, by the cause of either.
func bind(ctx, with context.Context) (bound context.Context, stop context.CancelFunc) {
	bound, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(with, func() { cancel(context.Cause(with)) })
	return bound, func() {
		unhook()
		cancel(nil)
	}
}

// Check returns nil while the holder may act. After that it returns why not: an error that matches [ErrLost],
// [ErrReleased], [ErrSessionClosed] or [ErrStopTimeout]. It only reads a clock that counts suspends, and sends
// nothing: it is exact even if timers are late. Once it has failed it fails for ever.
//
// Call it before every side effect. The process can still be paused between the check and the effect: a
// resource that must never be overwritten has to check the token as well.
//
// After a request to step down Check still returns nil, so that the work can end in order.
func (l *Lease) Check() error { return wrap("check", l.Name(), l.check()) }

func (l *Lease) check() error {
	if l.session != nil {
		return l.session.checkOf(l.member)
	}
	return l.renewer.check()
}

// Remaining returns the time until the deadline, 0 when the right to act has ended.
func (l *Lease) Remaining() time.Duration {
	if l.session != nil {
		return l.session.remainingOf(l.member)
	}
	return l.renewer.remaining()
}

// Release ends the lease: it makes Check fail, cancels the context with [ErrReleased], and frees the lock, so
// that others need not wait. Call it when the work has returned.
//
// It waits for the answer of the service, for a lease duration at most. A context that is already done at the
// call is ignored, so that a deferred Release works. A context that ends meanwhile ends the waiting, and the
// release goes on in the background.
//
// The result is nil if the lease was good until now. Otherwise it matches [ErrLost] if the lease had been lost,
// [ErrStopTimeout], or [ErrUncertain] if no answer came. Releasing again returns the same.
func (l *Lease) Release(ctx context.Context) error { return l.ReleaseWith(ctx, nil) }

// ReleaseOptions say what else a release records. Nil means nothing.
type ReleaseOptions struct {
	// Data is kept in the record for the next holder: 256 KiB at most. If nil, the data stay as they
	// are; to clear them, use an empty slice that is not nil.
	Data []byte
	// Failed says that the work has failed, and why. The history shows the first 1,024 bytes.
	Failed error
}

// ReleaseWith is like [Lease.Release], and records data and whether the work has failed in the same write.
// Only the first release counts. An error that matches [ErrInvalid] says that nothing is released.
func (l *Lease) ReleaseWith(ctx context.Context, options *ReleaseOptions) error {
	var o ReleaseOptions
	if options != nil {
		o = *options
	}
	err := checkData(o.Data)
	if o.Data != nil && l.grant.fence > 0 {
		err = errOwnData
	}
	if err != nil {
		return wrap("release", l.Name(), err)
	}
	body := fields{"name": l.grant.name, "token": l.grant.token}
	if o.Data != nil {
		body["data"] = append([]byte{}, o.Data...)
	}
	if o.Failed != nil {
		body["failed"] = text.Failure(o.Failed.Error())
	}
	l.once.Do(func() { l.begin(body) })
	if ctx.Err() != nil {
		ctx = context.Background()
	}
	select {
	case <-l.done:
		return wrap("release", l.Name(), l.result)
	case <-ctx.Done():
		return wrap("release", l.Name(), done(ctx, nil))
	}
}

// begin ends the right, and begins the release.
func (l *Lease) begin(body fields) {
	before := l.check()
	if l.session != nil {
		l.session.release(l, before, body)
		return
	}
	r := l.renewer.release()
	l.cancel(ErrReleased)
	l.c.release(func() {
		l.renewer.end()
		l.result = l.renewer.carryOut(r, "/v1/release", body)
		if before != nil {
			l.result = before
		}
		close(l.done)
	})
}

// giveBack releases a lock that no caller has got. It does not wait.
func (l *Lease) giveBack() {
	body := fields{"name": l.grant.name, "token": l.grant.token}
	if l.grant.unwritten != nil {
		body["data"] = l.grant.unwritten
	}
	l.once.Do(func() { l.begin(body) })
}

// errBroken is the failure of work that has not returned.
var errBroken = errors.New("the work panicked, or ended its goroutine")

// run runs work under the lease, and releases it.
func (l *Lease) run(ctx context.Context, work func(context.Context) error) error {
	return runUnder(ctx, l, func(err error) error {
		return l.ReleaseWith(context.WithoutCancel(ctx), &ReleaseOptions{Failed: err})
	}, work)
}

// grip is a lease, or a set of them.
type grip interface {
	Bind(context.Context) (context.Context, context.CancelFunc)
	Context() context.Context
	Check() error
}

// runUnder runs work, and releases what it runs under.
func runUnder(ctx context.Context, g grip, release func(failed error) error, work func(context.Context) error) error {
	bound, stop := g.Bind(ctx)
	defer stop()
	failure := func(err error) error { // none, if the work was asked to stop
		if bound.Err() != nil || g.Check() != nil {
			return nil
		}
		return err
	}
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			_ = release(failure(errBroken))
		}
	}()
	err := work(bound)
	returned = true

	asked := context.Cause(g.Context())
	out := release(failure(err))
	switch {
	case errors.Is(out, ErrLost), errors.Is(out, ErrStopTimeout):
	case err != nil && errors.Is(asked, ErrSteppedDown):
		out = asked
	default:
		return err // released, or expiring by itself: the lease covered the work
	}
	if err != nil && errors.Is(out, err) {
		return out
	}
	if err == nil {
		return out
	}
	return fmt.Errorf("%w; the work returned: %w", out, err)
}

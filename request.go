// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"cmp"
	"context"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
)

// RequestKind says what a request asks for.
type RequestKind string

// What a [Request] asks for.
const (
	RequestStepDown    RequestKind = RequestKind(driver.StepDown)    // stop, and release the lock
	RequestHandOver    RequestKind = RequestKind(driver.HandOver)    // stop, and make way for To, or ToLabel
	RequestReleaseDead RequestKind = RequestKind(driver.ReleaseDead) // an operator's release of a dead holder's lock
	RequestRevoke      RequestKind = RequestKind(driver.Revoke)      // an operator's taking of the lock
	RequestFail        RequestKind = RequestKind(driver.Fail)        // what a holder says of itself whose work has failed
	RequestRaise       RequestKind = RequestKind(driver.Raise)       // an operator's raising of the token, after a loss of the store
)

// Request is what somebody asked of the holder of a lock.
type Request struct {
	Kind   RequestKind
	By     string // the owner name of the requester
	Reason string
	To     string // the owner that is to have the lock next
	// ToLabel is the label of those who are to have it next.
	ToLabel string
	At      time.Time // by the requester's clock
}

func requestOf(q *driver.Request) *Request {
	if q == nil {
		return nil
	}
	return &Request{Kind: RequestKind(q.Kind), By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel, At: q.At}
}

// StepDownOptions say why a holder is to stop, and who is to have the lock next.
type StepDownOptions struct {
	// Reason is kept in the history. It must not be empty.
	Reason string

	// To is the owner that is to have the lock next. The holder leaves it reserved for
	// that owner, which must be waiting for it. Others can take the lock after it, or when
	// it has not come within twice the time of a poll and a write, 5 s by default. If To and
	// ToLabel are empty, the lock is free for anybody.
	To string

	// ToLabel has the lock reserved for whoever has that [Options.Label]: the first
	// candidate of the label that comes may take it at once. Nobody else may, not even one
	// without a label, until the same time has passed. A holder that has the label already
	// is not asked: that is an error. To and ToLabel exclude each other.
	ToLabel string
}

// request returns what is asked of a holder, and the name of the operation.
func (o *StepDownOptions) request(to string) (op string, q driver.Request, err error) {
	var how StepDownOptions
	if o != nil {
		how = *o
	}
	q = driver.Request{Kind: driver.StepDown, To: how.To, ToLabel: how.ToLabel, Reason: how.Reason}
	op = "step down"
	if how.To != "" || how.ToLabel != "" {
		op, q.Kind = to, driver.HandOver
	}
	switch {
	case how.To != "" && how.ToLabel != "":
		err = invalid("owner %q and label %q to hand over to: name one of the two", how.To, how.ToLabel)
	case how.To != "":
		err = checkHeir(how.To)
	case how.ToLabel != "":
		err = checkHeirs(how.ToLabel)
	}
	return op, q, cmp.Or(err, checkReason(how.Reason))
}

// StepDown asks the holder of the lock to stop and to release it, or to hand it over, and
// waits until its tenure has ended. The request is written into the record, where the
// holder finds it with its next heartbeat; its work has its stop timeout. ctx bounds the
// waiting.
//
// The error matches [ErrNotHeld], [ErrRequested] if somebody else has asked before,
// [ErrForeign], or [ErrUnanswered] if the request is in the record and the holder
// has not answered. A request does not prolong a dead holder's lease.
func (c *Client) StepDown(ctx context.Context, name string, options *StepDownOptions) error {
	op, q, err := options.request("transfer")
	if err != nil {
		return wrap(op, name, cmp.Or(checkKey(name), err))
	}
	return c.ask(ctx, op, name, q)
}

// ReleaseDead releases the lock of a dead holder, for a caller that cannot wait
// until a contender takes it over. It watches the record until the holder has shown
// no sign of life for the lease duration that the record states, and releases it
// then. If there is a sign of life the error matches [ErrAlive]; if there is no
// holder, [ErrNotHeld].
func (c *Client) ReleaseDead(ctx context.Context, name, reason string) error {
	return c.ask(ctx, "release", name, driver.Request{Kind: driver.ReleaseDead, Reason: reason})
}

// Revoke takes the lock away from its holder, alive or not. From the first write on
// the holder cannot renew any more. It may be at work until its lease has run out,
// so the lock is free only after that, and Revoke waits until then. If ctx ends
// before, the lock stays reserved for nobody, and is free for any client that has
// watched that for the lease duration.
//
// Use it for a holder that does not answer. Ask a holder that answers to step down
// instead: it can end its work in order, and is quicker. A lock under a session
// cannot be taken away alone while the session is alive, or may be, as far as this
// client has seen: the error matches [ErrAlive]. [Client.ReleaseDead] watches, and
// releases the lock when the session is dead.
func (c *Client) Revoke(ctx context.Context, name, reason string) error {
	return c.ask(ctx, "revoke", name, driver.Request{Kind: driver.Revoke, Reason: reason})
}

// StepDown asks the leader to stop, or to hand over: see [Client.StepDown].
func (e *Election) StepDown(ctx context.Context, options *StepDownOptions) error {
	return e.c.StepDown(ctx, e.name, options)
}

func (c *Client) ask(ctx context.Context, op, name string, q driver.Request) error {
	err := checkKey(name)
	if err == nil {
		err = checkReason(q.Reason)
	}
	if err == nil && ctx.Err() != nil {
		err = engine.Done(ctx)
	}
	if err != nil {
		return wrap(op, name, err)
	}
	if err := c.engine.Ask(ctx, name, q); err != nil {
		return wrap(op, name, err)
	}
	return nil
}

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
		err = engine.Done(ctx)
	}
	if err == nil {
		err = c.engine.ReleaseCrashed(ctx, name, id, o.After, o.Within)
	}
	if err != nil {
		return wrap("release", name, err)
	}
	return nil
}

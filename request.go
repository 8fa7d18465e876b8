// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"cmp"
	"context"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/text"
)

// RequestKind says what a request asks for.
type RequestKind string

// What a [Request] asks for.
const (
	RequestStepDown    RequestKind = RequestKind(driver.StepDown)    // stop, and release the lock
	RequestHandOver    RequestKind = RequestKind(driver.HandOver)    // stop, and reserve the lock for To, or ToLabel
	RequestReleaseDead RequestKind = RequestKind(driver.ReleaseDead) // an operator's release of a dead holder's lock
	RequestRevoke      RequestKind = RequestKind(driver.Revoke)      // an operator's revocation of the lock
	RequestFail        RequestKind = RequestKind(driver.Fail)        // the holder's own report that its work has failed
	RequestRaise       RequestKind = RequestKind(driver.Raise)       // an operator's raising of the token, after a loss of the store
)

// Request is a request to the holder of a lock.
type Request struct {
	Kind   RequestKind
	By     string // the owner name of the requester
	Reason string
	To     string // the owner that gets the lock next
	// ToLabel is the label of the processes that may have the lock next.
	ToLabel string
	At      time.Time // by the requester's clock
}

func requestOf(q *driver.Request) *Request {
	if q == nil {
		return nil
	}
	return &Request{Kind: RequestKind(q.Kind), By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel, At: q.At}
}

// StepDownOptions say why a holder must stop, and who gets the lock next.
type StepDownOptions struct {
	// Reason is kept in the history. It must not be empty.
	Reason string

	// To is the owner that gets the lock next. The holder leaves the lock reserved for that
	// owner, which must be waiting for it. Others can take the lock after that owner, or if
	// it has not come within twice the time of a poll and a write, 5 s by default. If To and
	// ToLabel are empty, any process may take the lock.
	To string

	// ToLabel reserves the lock for all processes with that [Options.Label]: the first of
	// them may take it at once. Other processes, with or without a label, may take it only
	// after the same time has passed. It is an error if the holder itself has the label.
	// To and ToLabel exclude each other.
	ToLabel string
}

// request returns the request to a holder, and the name of the operation.
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
	if how.To != "" && how.ToLabel != "" {
		err = text.Invalid("hand-over to both owner %q and label %q: name one of the two", how.To, how.ToLabel)
	}
	return op, q, cmp.Or(err, checkText("owner to hand over to", how.To),
		checkText("label to hand over to", how.ToLabel), text.CheckReason(how.Reason))
}

// StepDown asks the holder of the lock to stop and to release it, or to hand it over, and
// waits until its term has ended. The request is written into the record, where the
// holder finds it with its next heartbeat; its work then has the stop timeout. ctx
// bounds the waiting.
//
// The error matches [ErrNotHeld], [ErrRequested] if the record has another request
// already, [ErrForeign], or [ErrUnanswered] if the request is in the record and the
// holder has not answered. A request does not prolong a dead holder's lease.
func (c *Client) StepDown(ctx context.Context, name string, options *StepDownOptions) error {
	op, q, err := options.request("transfer")
	if err != nil {
		return wrap(op, name, cmp.Or(checkKey(name), err))
	}
	return c.ask(ctx, op, name, q)
}

// StepDown asks the leader to stop, or to hand over: see [Client.StepDown].
func (e *Election) StepDown(ctx context.Context, options *StepDownOptions) error {
	return e.c.StepDown(ctx, e.name, options)
}

func (c *Client) ask(ctx context.Context, op, name string, q driver.Request) error {
	err := checkKey(name)
	if err == nil {
		err = text.CheckReason(q.Reason)
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

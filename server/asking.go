// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/internal/remote"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// ask is POST /v1/requests. Each call by a principal leaves a line in the log, whatever
// became of it.
func (c *call) ask() error {
	var q wire.AskRequest
	if err := c.read(&q); err != nil {
		return err
	}
	err := c.carryOut(q)
	act := access.Act{
		Principal: c.principal.Name(), Via: "api", Action: q.Kind, Lock: q.Name, To: q.To, ToLabel: q.ToLabel,
		Reason: q.Reason, Outcome: "done",
	}
	if err != nil {
		p := problemOf(err)
		act.Outcome, act.Detail = p.name, p.Detail
		if p.cause != nil {
			act.Detail += ": " + p.cause.Error() // the log is the operator's
		}
	}
	c.s.audit(context.WithoutCancel(c.r.Context()), act)
	if err != nil {
		return err
	}
	return c.answer(wire.Empty{})
}

func (c *call) carryOut(q wire.AskRequest) error {
	if err := checkAsk(q); err != nil {
		return err
	}
	kind, right := kindOf(q.Kind), access.Ask
	if kind == tenure.RequestRevoke {
		right = access.Revoke
	}
	if err := c.may(right, q.Name); err != nil {
		return err
	}
	ms := maxWait.Milliseconds()
	if q.WaitMs != nil {
		ms = *q.WaitMs
	}
	wait, err := waitOf(ms)
	if err != nil {
		return err
	}
	ctx, leave, err := c.waitsFor("request", right, q.Name)
	if err != nil {
		return err
	}
	defer leave()
	// To lay a request takes a look and a write.
	ctx, cancel := context.WithTimeoutCause(ctx, max(wait, 3*c.s.client.Options().RequestTimeout), errWaited)
	defer cancel()
	return (&asking{c: c, kind: kind, q: q}).run(ctx)
}

// checkAsk checks what the library does not.
func checkAsk(q wire.AskRequest) error {
	handOver := kindOf(q.Kind) == tenure.RequestHandOver
	switch {
	case kindOf(q.Kind) == "":
		return problemf(badRequest, "kind %.40q is not known: it is one of step-down, hand-over, release-dead, revoke",
			q.Kind)
	case q.Reason == "":
		return problemf(badRequest, "the reason is empty: say why, for those who read the history")
	case len(q.Reason) > driver.MaxReasonLen:
		return problemf(badRequest, "the reason has %d bytes: at most %d are allowed", len(q.Reason), driver.MaxReasonLen)
	case handOver && (q.To == "") == (q.ToLabel == ""):
		return problemf(badRequest, "hand-over needs one of to and to_label: name the owner, or the label of those, "+
			"who are to have the lock next")
	case !handOver && (q.To != "" || q.ToLabel != ""):
		return problemf(badRequest, "%s takes no to and no to_label: they are for hand-over", q.Kind)
	}
	return nil
}

// asking is one request to a holder.
type asking struct {
	c    *call
	kind tenure.RequestKind
	q    wire.AskRequest
}

func (a *asking) run(ctx context.Context) error {
	err := a.lay(ctx)
	var before *tenure.RequestedError
	switch {
	case errors.Is(err, tenure.ErrUnanswered), err == nil:
		return err
	case errors.As(err, &before) && a.same(before.Request):
		return a.follow(ctx) // the same call, sent again
	case errors.Is(err, errDraining), errors.Is(err, errWaited):
		return a.cutShort(err)
	case errors.Is(err, tenure.ErrForeign):
		return a.cannot(ctx, err)
	case a.kind == tenure.RequestHandOver && refusesItself(err):
		return a.cannot(ctx, err)
	}
	if p := problemOf(err); p.kind != unavailable {
		return p
	}
	// The store has failed, and may have done what it was told before.
	return problemf(unknown, "the store cannot be used: whether it was done is not known; "+
		"send the same call again").of(err)
}

func (a *asking) lay(ctx context.Context) error {
	return a.c.s.remote.Ask(ctx, remote.Request{
		Name: a.q.Name, Kind: a.kind, By: a.c.principal.Name(), Reason: a.q.Reason, To: a.q.To, ToLabel: a.q.ToLabel,
	})
}

// same says whether a request is this one, laid by an earlier call, here or by another
// server.
func (a *asking) same(q tenure.Request) bool {
	return q.Kind == a.kind && q.By == a.c.principal.Name() && q.Reason == a.q.Reason && q.To == a.q.To &&
		q.ToLabel == a.q.ToLabel
}

// follow waits until the record shows this request no more: the tenure has ended.
func (a *asking) follow(ctx context.Context) error {
	client := a.c.s.client
	for range client.Election(a.q.Name, nil).Observe(ctx) { //nolint:errcheck // an error is a reason to look, too
		if ctx.Err() != nil {
			break
		}
		st, err := client.Status(ctx, a.q.Name)
		if err == nil && (st.Request == nil || !a.same(*st.Request)) {
			return nil
		}
	}
	return &tenure.Error{Op: a.q.Kind, Key: a.q.Name, Err: fmt.Errorf("%w: %w", tenure.ErrUnanswered, context.Cause(ctx))}
}

// cutShort says what is left undone when the time of the call is up before the request was
// answered by the store, or before what it waits for was seen.
func (a *asking) cutShort(err error) error {
	switch a.kind {
	case tenure.RequestReleaseDead:
		return problemf(unanswered, "whether the holder of %.200q is dead was not seen in time, and nothing was done: "+
			"send the same call again, which goes on with what this server has seen", a.q.Name)
	case tenure.RequestRevoke:
		return problemf(unanswered, "%.200q is not free yet: its holder cannot renew, once the request was written; "+
			"send the same call again, which waits until its lease has run out", a.q.Name)
	}
	return problemf(unknown, "whether the request is in the record of %.200q is not known; send the same call again",
		a.q.Name).of(err)
}

// refusesItself says whether an error is the library's, and none of the store's: the holder
// cannot hand over to itself.
func refusesItself(err error) bool {
	for _, other := range []error{
		tenure.ErrInvalid, tenure.ErrNotHeld, tenure.ErrRequested, tenure.ErrAlive, tenure.ErrUncertain,
		tenure.ErrUnreadable, tenure.ErrPermanent, tenure.ErrClosed,
	} {
		if errors.Is(err, other) {
			return false
		}
	}
	return true
}

// cannot says who holds a lock, where that holder cannot be asked this.
func (a *asking) cannot(ctx context.Context, err error) error {
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	st, looked := a.c.s.client.Status(bound, a.q.Name)
	foreign := errors.Is(err, tenure.ErrForeign)
	mine := st.Owner == a.q.To && a.q.To != "" || st.Label == a.q.ToLabel && a.q.ToLabel != ""
	if looked != nil || st.State != tenure.StateHeld || !foreign && !mine {
		return problemf(unknown, "whether it was done is not known; send the same call again").of(err)
	}
	p := problemf(held, "%v: nothing was asked", err).holding(st.Owner, st.Token)
	free, reserved := ceilMs(st.FreeIn), false
	p.FreeInMs, p.Reserved = &free, &reserved
	return p
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/internal/remote"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// acquire is POST /v1/acquire.
func (c *call) acquire() error {
	began := c.s.remote.Began() // before the body, which its client may send slowly
	var q wire.AcquireRequest
	if err := c.read(&q); err != nil {
		return err
	}
	if err := c.may(access.Hold, q.Name); err != nil {
		return err
	}
	wait, err := waitOf(q.WaitMs)
	if err == nil {
		err = checkSlots(q)
	}
	if err != nil {
		return err
	}
	ctx, leave, err := c.waitsFor("acquire", access.Hold, q.Name)
	if err != nil {
		return err
	}
	defer leave()
	a := &attempt{c: c, of: q, wait: wait, began: began, streams: c.accepts(eventStream)}
	if a.streams {
		return a.stream(ctx)
	}
	g, err := a.take(ctx, nil)
	if err != nil {
		return err
	}
	return a.hand(g, func(g wire.Grant) error { return c.answer(g) })
}

// wait lets a call wait, until leave is called. The context ends with its parent, and with
// errDraining when the server shuts down.
func (s *Server) wait(
	parent context.Context, p access.Principal, what string,
) (ctx context.Context, leave func(), err error) {
	done, err := s.limits.wait(p.Name())
	if err != nil {
		s.meter.refused("limit")
		return nil, nil, err
	}
	ctx, out, err := s.waits.enter(parent)
	if err != nil {
		done()
		return nil, nil, err
	}
	s.meter.waiting(what, 1)
	return ctx, func() {
		s.meter.waiting(what, -1)
		out()
		done()
	}, nil
}

// waitsFor is wait for a call that may write at its end. The context ends with the problem when
// the principal is known no more, or has no such right any more.
func (c *call) waitsFor(what string, right access.Right, name string) (ctx context.Context, leave func(), err error) {
	ctx, out, err := c.s.wait(c.r.Context(), c.principal, what)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(alivePeriod)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := c.still(right, name); err != nil {
					cancel(err)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		ended.Wait()
		out()
	}, nil
}

// still returns a problem if the principal of a call that has waited is known no more, or has
// lost the right: a call may outlive a token.
func (c *call) still(right access.Right, name string) error {
	p, err := c.s.principalOf(c.r)
	switch {
	case err != nil:
		return c.refused("token", problemf(unauthenticated, "the token or certificate is no longer known; "+
			"nothing was done"))
	case !p.May(right, name):
		return c.refused("right", problemf(forbidden, "principal %q no longer has the right %s to %.200q; "+
			"nothing was done", p.Name(), right, name))
	}
	return nil
}

// attempt is one acquire.
type attempt struct {
	c       *call
	of      wire.AcquireRequest
	wait    time.Duration
	began   time.Duration // when the call arrived
	streams bool          // its answer is a stream, for a client that waits

	// Of a slot, a reader or a writer: what was in the way last, nil for nothing, and whether it has
	// waited.
	met    *tenure.HeldError
	waited bool
}

// errWaited is the cause when a wait ends after wait_ms.
var errWaited = errors.New("waited for wait_ms")

// take takes the lock, for the principal and the owner that it names.
func (a *attempt) take(ctx context.Context, waiting func(*tenure.HeldError)) (wire.Grant, error) {
	locks, q := a.c.s.remote, a.of
	q.Host = hostOf(a.c.principal, q.Host)
	switch {
	case q.Slots != nil:
		return a.takeSlot(ctx, q, waiting)
	case q.Shared, q.Exclusive:
		return a.takePart(ctx, q, waiting)
	case a.wait == 0:
		return locks.Acquire(ctx, q, false, waiting)
	}
	bound, cancel := context.WithTimeoutCause(ctx, a.wait, errWaited)
	defer cancel()
	g, err := locks.Acquire(bound, q, true, waiting)
	if errors.Is(err, errWaited) {
		err = a.c.stillHeld(ctx, q.Name)
	}
	return g, err
}

// hostOf returns what the record shows as the host: the principal that has made the call,
// and where it says that the holder runs.
func hostOf(p access.Principal, host string) string {
	if host == "" {
		return p.Name()
	}
	return p.Name() + "@" + host
}

// stillHeld says who has a lock after a wait without success.
func (c *call) stillHeld(ctx context.Context, name string) error {
	st, err := c.s.client.Status(ctx, name)
	if err != nil {
		return err
	}
	e := &tenure.HeldError{Owner: st.Owner, Token: st.Token, FreeIn: st.FreeIn}
	switch st.State {
	case tenure.StateHeld:
	case tenure.StateReserved:
		e.Owner, e.Label, e.Reserved = st.ReservedFor, st.ReservedForLabel, true
	default:
		return problemf(unavailable, "lock %q could not be taken in time, although it has no holder now: send the call again",
			name).after(retrySoon)
	}
	return &tenure.Error{Op: "acquire", Key: name, Err: e}
}

// hand sends a grant. If the grant could not be sent, or the principal was removed during the
// wait, the lock is released; the error is the answer then. A client that closes its connection
// once it has the answer, as curl does, has the lock: so the context of the call means nothing
// after the grant was sent. Nor does an error of sending a grant that the client may count: the
// client may have got it, and only its end frees the lock.
func (a *attempt) hand(g wire.Grant, send func(wire.Grant) error) error {
	c := a.c
	c.s.meter.granted(g)
	removed := c.still(access.Hold, g.Name)
	err := cmp.Or(c.r.Context().Err(), removed)
	if err == nil && !a.streams && !a.waited {
		c.s.remote.Counts(&g, a.began)
	}
	if err == nil {
		err = send(g)
	}
	if err != nil && g.UsableMs == 0 {
		c.s.remote.Discard(g)
		c.s.meter.discarded(g)
	}
	return removed
}

// heartbeat is POST /v1/heartbeat.
func (c *call) heartbeat() error {
	var q wire.HeartbeatRequest
	done, err := c.beats(1)
	if err != nil {
		return err
	}
	defer done()
	if err := c.read(&q); err != nil {
		return err
	}
	r, err := c.renew(q)
	if err != nil {
		return err
	}
	return c.answer(r)
}

func (c *call) beats(n int) (done func(), err error) {
	if done, err = c.s.limits.beats(c.principal.Name(), n); err != nil {
		err = c.refused("limit", err)
	}
	return done, err
}

// renew carries out one heartbeat.
func (c *call) renew(q wire.HeartbeatRequest) (wire.Renewal, error) {
	if err := c.may(access.Hold, q.Name); err != nil {
		return wire.Renewal{}, err
	}
	begun := time.Now()
	r, err := c.s.remote.Heartbeat(c.r.Context(), q)
	c.s.meter.beat(err, time.Since(begun))
	if err != nil {
		return wire.Renewal{}, err
	}
	c.s.meter.used(q.Name, q.Token)
	return r, nil
}

// heartbeats is POST /v1/heartbeats.
func (c *call) heartbeats() error {
	var q wire.HeartbeatsRequest
	if err := c.read(&q); err != nil {
		return err
	}
	if n := len(q.Locks); n < 1 || n > maxBatch {
		return problemf(badRequest, "%d locks: one call has 1 to %d", n, maxBatch)
	}
	done, err := c.beats(len(q.Locks))
	if err != nil {
		return err
	}
	defer done()
	results := make([]wire.HeartbeatResult, len(q.Locks))
	var all sync.WaitGroup
	for i, one := range q.Locks { // the client bounds how many of them are at the store
		all.Go(func() { results[i] = c.result(one) })
	}
	all.Wait()
	return c.answer(wire.HeartbeatsResponse{Results: results})
}

func (c *call) result(q wire.HeartbeatRequest) wire.HeartbeatResult {
	r, err := c.renew(q)
	if err != nil {
		return wire.HeartbeatResult{Name: q.Name, Problem: c.told(err).Problem}
	}
	return wire.HeartbeatResult{Name: q.Name, UsableMs: &r.UsableMs, HeartbeatMs: &r.HeartbeatMs, Asked: r.Asked}
}

// release is POST /v1/release.
func (c *call) release() error {
	var q wire.ReleaseRequest
	done, err := c.beats(1)
	if err != nil {
		return err
	}
	defer done()
	if err := c.read(&q); err != nil {
		return err
	}
	if err := c.may(access.Hold, q.Name); err != nil {
		return err
	}
	if err := checkLeft(q.Name, q.Token, q.Data); err != nil {
		return err
	}
	if err := c.s.remote.Release(c.r.Context(), q, access.IsTrial(q.Name)); err != nil {
		return err
	}
	c.s.released(q.Name, q.Token)
	return c.answer(wire.Empty{})
}

// errDraining is the cause when waiting calls end because the server shuts down.
var errDraining = errors.New("the server is shutting down")

// gate counts the calls that wait, until it is closed.
type gate struct {
	closing context.Context // ends with errDraining
	close   context.CancelCauseFunc

	mu    sync.Mutex // between the last call that enters and the first that closes
	calls sync.WaitGroup
}

func newGate() *gate {
	g := &gate{}
	g.closing, g.close = context.WithCancelCause(context.Background())
	return g
}

func (g *gate) closed() bool { return g.closing.Err() != nil }

// enter lets a call in, and returns a context that ends with it, and with errDraining when
// the gate is closed.
func (g *gate) enter(parent context.Context) (ctx context.Context, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed() {
		return nil, nil, errDraining
	}
	g.calls.Add(1)
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(g.closing, func() { cancel(errDraining) })
	return ctx, func() {
		stop()
		cancel(nil)
		g.calls.Done()
	}, nil
}

// shut closes the gate, and waits until it is empty or ctx ends.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	g.close(errDraining)
	g.mu.Unlock()
	empty := make(chan struct{})
	go func() {
		g.calls.Wait()
		close(empty)
	}()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

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
	// Writing a request takes a read and a write.
	ctx, cancel := context.WithTimeoutCause(ctx, max(wait, 3*c.s.client.Options().RequestTimeout), errWaited)
	defer cancel()
	return (&asking{c: c, kind: kind, q: q}).run(ctx)
}

// checkAsk checks what the library does not.
func checkAsk(q wire.AskRequest) error {
	handOver := kindOf(q.Kind) == tenure.RequestHandOver
	switch {
	case kindOf(q.Kind) == "":
		return problemf(badRequest, "kind %.40q is not known: use step-down, hand-over, release-dead or revoke",
			q.Kind)
	case q.Reason == "":
		return problemf(badRequest, "the reason is empty: write why; the history shows it")
	case len(q.Reason) > driver.MaxReasonLen:
		return problemf(badRequest, "the reason has %d bytes: at most %d are allowed", len(q.Reason), driver.MaxReasonLen)
	case handOver && (q.To == "") == (q.ToLabel == ""):
		return problemf(badRequest, "hand-over needs either to or to_label: the owner, or the label, of "+
			"the next holder")
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
	err := a.c.s.remote.Ask(ctx, remote.Request{Name: a.q.Name, Request: tenure.Request{
		Kind: a.kind, By: a.c.principal.Name(), Reason: a.q.Reason, To: a.q.To, ToLabel: a.q.ToLabel,
	}})
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
	// The store has failed, and may have executed the earlier write.
	return problemf(unknown, "the store cannot be used: it is not known whether the call was carried out; "+
		"send it again").of(err)
}

// same says whether a request is this one, written by an earlier call, here or on another
// server.
func (a *asking) same(q tenure.Request) bool {
	return q.Kind == a.kind && q.By == a.c.principal.Name() && q.Reason == a.q.Reason && q.To == a.q.To &&
		q.ToLabel == a.q.ToLabel
}

// follow waits until the record shows this request no more: the term has ended.
func (a *asking) follow(ctx context.Context) error {
	client := a.c.s.client
	for range client.Election(a.q.Name, nil).Observe(ctx) { //nolint:errcheck // an error is a reason to read, too
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
		return problemf(unanswered, "it was not clear in time whether the holder of %.200q is dead, and nothing was done: "+
			"send the same call again; this server continues its observation", a.q.Name)
	case tenure.RequestRevoke:
		return problemf(unanswered, "%.200q is not free yet, but its holder can no longer renew; "+
			"send the same call again, which waits until the lease has run out", a.q.Name)
	}
	return problemf(unknown, "it is not known whether the request is in the record of %.200q; send the same call again",
		a.q.Name).of(err)
}

// refusesItself says whether an error comes from the library, not the store: the holder
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

// cannot says who holds a lock whose holder cannot be asked this.
func (a *asking) cannot(ctx context.Context, err error) error {
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	st, looked := a.c.s.client.Status(bound, a.q.Name)
	foreign := errors.Is(err, tenure.ErrForeign)
	mine := st.Owner == a.q.To && a.q.To != "" || st.Label == a.q.ToLabel && a.q.ToLabel != ""
	if looked != nil || st.State != tenure.StateHeld || !foreign && !mine {
		return problemf(unknown, "it is not known whether the call was carried out; send it again").of(err)
	}
	p := problemf(held, "%v: nothing was asked", err).holding(st.Owner, st.Token)
	free, reserved := ceilMs(st.FreeIn), false
	p.FreeInMs, p.Reserved = &free, &reserved
	return p
}

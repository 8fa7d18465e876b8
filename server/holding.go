// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
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
	var q wire.AcquireRequest
	if err := c.read(&q); err != nil {
		return err
	}
	if err := c.may(access.Hold, q.Name); err != nil {
		return err
	}
	wait, err := waitOf(q.WaitMs)
	if err != nil {
		return err
	}
	ctx, leave, err := c.waitsFor("acquire", access.Hold, q.Name)
	if err != nil {
		return err
	}
	defer leave()
	a := &attempt{c: c, of: q, wait: wait}
	if c.accepts(eventStream) {
		return a.stream(ctx)
	}
	g, err := a.take(ctx, nil)
	if err != nil {
		return err
	}
	return a.hand(func() error { return c.answer(grantOf(q.Name, g)) }, g)
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
		return c.refused("token", problemf(unauthenticated, "the token or certificate is not known any more, "+
			"and nothing was done"))
	case !p.May(right, name):
		return c.refused("right", problemf(forbidden, "principal %q has no right %s to %.200q any more, "+
			"and nothing was done", p.Name(), right, name))
	}
	return nil
}

// attempt is one acquire.
type attempt struct {
	c    *call
	of   wire.AcquireRequest
	wait time.Duration
}

// errWaited is the cause by which the waiting ends after wait_ms.
var errWaited = errors.New("waited for wait_ms")

// take takes the lock, for the principal and the owner that it names.
func (a *attempt) take(ctx context.Context, waiting func(*tenure.HeldError)) (remote.Grant, error) {
	locks, q := a.c.s.remote, a.of
	o := remote.Options{
		Owner: q.Owner, Host: hostOf(a.c.principal, q.Host), Label: q.Label, Data: q.Data, Waiting: waiting,
	}
	if a.wait == 0 {
		return locks.TryAcquire(ctx, q.Name, o)
	}
	bound, cancel := context.WithTimeoutCause(ctx, a.wait, errWaited)
	defer cancel()
	g, err := locks.Acquire(bound, q.Name, o)
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

// stillHeld says who has a lock that was waited for in vain.
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
		return problemf(unavailable, "lock %q could not be taken in time, although nobody holds it now: ask again",
			name).after(retrySoon)
	}
	return &tenure.Error{Op: "acquire", Key: name, Err: e}
}

// hand sends a grant. If it could not be sent, or the principal was removed while it waited,
// nobody has the lock, and it is released; the error is what to tell then. A client that closes
// its connection once it has the answer, as curl does, has the lock: so after the sending the
// context of the call says nothing.
func (a *attempt) hand(send func() error, g remote.Grant) error {
	c, name := a.c, a.of.Name
	c.s.meter.granted(name, g)
	removed := c.still(access.Hold, name)
	err := cmp.Or(c.r.Context().Err(), removed)
	if err == nil {
		err = send()
	}
	if err != nil {
		c.s.remote.Discard(name, g)
		c.s.meter.discarded(name, g)
	}
	return removed
}

func grantOf(name string, g remote.Grant) wire.Grant {
	return wire.Grant{
		Name: name, Token: g.Token, Beat: g.Beat, Data: g.Data,
		LeaseMs: floorMs(g.Lease), HeartbeatMs: floorMs(g.Heartbeat), FreeAfterMs: floorMs(g.FreeAfter),
	}
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
	beat := remote.Beat{Name: q.Name, Token: q.Token, After: q.After, Next: q.Next}
	r, err := c.s.remote.Heartbeat(c.r.Context(), beat)
	c.s.meter.beat(err, time.Since(begun))
	if err != nil {
		return wire.Renewal{}, err
	}
	c.s.meter.used(q.Name, q.Token)
	return wire.Renewal{UsableMs: floorMs(r.Usable), HeartbeatMs: floorMs(r.Heartbeat), Asked: askedOf(r.Asked)}, nil
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

func askedOf(q *driver.Request) *wire.RequestInfo {
	if q == nil {
		return nil
	}
	kind := tenure.RequestStepDown // what a holder does about all others
	if q.Kind == driver.HandOver {
		kind = tenure.RequestHandOver
	}
	return &wire.RequestInfo{Kind: requestKinds[kind], By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel}
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
	err = c.s.remote.Release(c.r.Context(), remote.Release{
		Name: q.Name, Token: q.Token, After: q.After, Data: q.Data, Failed: q.Failed,
		Delete: access.IsTrial(q.Name),
	})
	if err != nil {
		return err
	}
	c.s.meter.used(q.Name, q.Token)
	return c.answer(wire.Empty{})
}

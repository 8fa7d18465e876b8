// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// newLease returns the lease that was granted, and false if the client is
// closed, so that it must be released again.
func (c *base) newLease(g protocol.Grant, t protocol.Timing, o AcquireOptions) (_ *Lease, open bool) {
	l := c.leaseOf(g, t, o)
	l.prepare(context.Background(), new(sync.Mutex), nil)
	h := protocol.NewHolder(t, c.env, g)
	l.mu.Lock()
	open = l.begin(h)
	l.mu.Unlock()
	l.do(l.h.Step)
	if o.WatchRequests && !t.Manual {
		l.watchRequests()
	}
	return l, l.standing() && open
}

// newLease returns the lease that was granted under the session, and false if the
// session has ended meanwhile, so that no caller may have the lease.
func (p *parent) newLease(g protocol.Grant, o AcquireOptions) (_ *Lease, open bool) {
	l := p.c.leaseOf(g, p.t, o)
	l.under = p
	ctx := p.ctx
	if !p.isOpen() {
		ctx = context.Background() // that of the session may be busy with ending all others
	}
	l.prepare(ctx, p.mu, &p.deadline)
	p.mu.Lock()
	h := protocol.NewTied(p.t, p.c.env, g, p.keeper)
	began := l.begin(h)
	p.c.ringer.lends(p.lock, l.lock)
	p.leases[h] = &l.keeping
	open = p.keeper.Open(p.c.clock.Holder())
	p.mu.Unlock()
	l.do(l.h.Step)
	return l, l.standing() && began && open
}

func (c *base) leaseOf(g protocol.Grant, t protocol.Timing, o AcquireOptions) *Lease {
	l := &Lease{
		id: g.ID, token: g.Record.Token, meter: engine.NewBusyMeter(c.clock.Contender(), o.Capacity),
		former: previous(g, o.Data != nil), past: g.Past(),
	}
	l.c, l.t, l.key, l.since = c, t, g.Record.Key, c.clock.Holder()
	return l
}

// prepare makes all that the lease needs before its machine is stepped.
func (l *Lease) prepare(ctx context.Context, mu *sync.Mutex, parent *engine.Deadline) {
	l.keeping.prepare(context.WithValue(ctx, leaseKey{}, l), l, mu, parent)
	if l.under != nil {
		l.loop.Wake = func(protocol.Machine) { l.under.loop.Act(l.under.m.Step) }
	}
}

// begin begins to run the machine, and makes the lease known to the client, which may
// stop it from then on. It returns false if the client is closed. The caller holds
// the mutex.
func (l *Lease) begin(h *protocol.Holder) (open bool) {
	l.keeping.begin(h, h)
	return l.c.beganLease(&l.keeping, l.key, l.token) == nil
}

func (l *Lease) event(kind EventKind) Event {
	e := Event{Kind: kind, Lock: l.key, Owner: l.Owner(), Token: l.token}
	if l.under != nil {
		e.Session = l.under.id
	}
	return e
}

func (l *Lease) moves() {
	if p := l.progress.Load(); p > 0 {
		l.h.Progress(time.Duration(p))
	}
}

func (l *Lease) after(time.Duration, protocol.Action) {
	if l.left != nil && l.h.Left() {
		select {
		case <-l.left:
		default:
			close(l.left)
		}
	}
}

func (l *Lease) cancelFor(cause error) { l.cancel(cause) }

// followed reports whether the session has ended. The session's context ends this
// one's: to end it here would be to wait for all the others, under the mutex.
func (l *Lease) followed() (yes bool, cause error) {
	if s := l.under; s != nil && s.h.Cause() != protocol.None {
		return true, s.cause
	}
	return false, nil
}

func (l *Lease) done(e Event) Event {
	e.Busy = l.meter.Until(l.c.clock.Contender())
	if e.Kind == EventReleased {
		end, failed := l.h.End()
		if e.End = string(end); failed != nil {
			e.Err = errors.New(failed.Reason)
		}
	}
	l.c.looks.Drop(&l.report)
	if l.under != nil {
		delete(l.under.leases, l.h)
	}
	l.c.released(l.key)
	return e
}

func (l *Lease) isSession() bool { return false }

func (l *Lease) asked() {
	if l.under == nil { // else the requests are in the session's record, and it is rung for that
		l.hurries()
	}
}

func (l *Lease) dropped() {
	l.unwatchRequests()
	l.c.finishedLease(&l.keeping, l.key)
}

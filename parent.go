// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"errors"
	"sync"

	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// parent is a session as its locks see it, and the acquires that wait for one more.
// Everything under a session is stepped under one mutex, that of the session: its
// machine and those of its locks read each other. What to do when is decided there:
// see [protocol.Keeper].
type parent struct {
	keeping // of the session's own record: the heartbeat, and the deadline of all locks
	id      string
	keeper  *protocol.Keeper

	// turn admits one releaser at a time, and is taken before mu, but never by a timer:
	// a burst of releases delays a heartbeat by one of them at most.
	turn sync.Mutex

	waiters map[waiter]struct{}           // not ended; guarded by the client's seeing
	leases  map[*protocol.Holder]*keeping // not over; guarded by mu
}

func (p *parent) name() string { return "session " + p.id }

// wrapped returns err as that of an operation on the session, nil for nil.
func (p *parent) wrapped(op string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(op, p.name(), err)
}

// why says why no lock can be had under the session.
func (p *parent) why() error {
	p.mu.Lock()
	cause := p.cause // not the context's: that may be busy with ending all others
	p.mu.Unlock()
	switch {
	case cause == nil && p.c.isClosed():
		cause = ErrClosed
	case cause == nil:
		cause = ErrExpired // nobody has been told yet
	}
	if errors.Is(cause, ErrSessionClosed) {
		return cause
	}
	return refused("%w: %w", ErrSessionClosed, cause)
}

// admit notes an acquire under the session, unless that has ended. The caller
// holds the trackers.
func (p *parent) admit(a waiter) error {
	if !p.isOpen() {
		return p.why()
	}
	p.waiters[a] = struct{}{}
	return nil
}

// isOpen says that locks may be taken under the session.
func (p *parent) isOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keeper.Open(p.c.clock.Holder())
}

// wake steps the lease whose machine the session's asks to step.
func (p *parent) wake(m protocol.Machine) {
	if h, ok := m.(*protocol.Holder); ok {
		if l := p.leases[h]; l != nil {
			l.loop.Act(h.Step)
		}
		return
	}
	p.loop.Act(m.Step)
}

// drive drives a machine that the session's has begun: it releases a lock that is
// held in the session's name without the session knowing of it.
func (p *parent) drive(m protocol.Machine) {
	run := &engine.Run{Machine: m, Mutex: p.mu, Clock: p.c.contender, Timers: p.c.looks, Send: p.c.last}
	run.Act(m.Step)
}

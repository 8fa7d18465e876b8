// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"

	"github.com/tenurelock/tenure/fence"
)

// resource is what a lock is for: something that its holders write to, behind a
// fence.
type resource struct {
	gate   *fence.Gate
	grants int // so far
	passed int // the latest grant under which a write has passed
}

func newResource() resource {
	return resource{gate: fence.NewGate(nil)}
}

// work writes to the resource now and then for as long as the lease check
// passes. Some writes arrive late, after any pause.
func (m *machine) work() {
	l := m.p.l
	if !m.believes() {
		return
	}
	if m.awaits() {
		m.p.after(m, l.upTo(m.timing().RequestTimeout), m.work)
		return
	}
	m.begins()
	grant, token := m.grant, m.h.Record().Token
	late := l.upTo(l.cfg.Latency)
	if l.fails(Messages) && l.one(4) {
		late = l.upTo(4 * l.t.Lease)
	}
	l.after(late, func() {
		if m.life == l.life { // else its token is of a fence that has begun again
			l.arrives(m, grant, token)
		}
	})
	m.p.after(m, l.t.Lease/16+l.upTo(l.t.Lease), m.work)
}

// arrives has the fence judge a write, and judges the fence.
func (l *lock) arrives(m actor, grant int, token uint64) {
	err := l.gate.Do(context.Background(), l.key, token, func(context.Context) error { return nil })
	switch {
	case err == nil && grant < l.passed:
		l.fail("a write of grant %d passes the fence after one of grant %d, of %s with token %d", grant, l.passed, m, token)
	case err == nil:
		l.passed = grant
	case m.acts(grant):
		l.fail("the fence refuses %s, which holds: %v", m, err)
	default:
		l.tally.Refused++
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"reflect"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/internal/protocol"
)

// resource is what a lock is for: something that its holders write to, behind a
// fence; and what is written down about them.
type resource struct {
	gate   *fence.Gate
	grants int // so far
	passed int // the latest grant under which a write has passed

	past map[uint64]driver.Tenure // the history, by token
	// Tenures that have written down what came before them, and those whose grant
	// did not show it beyond their predecessor: the reply to the claim was lost.
	told, blind map[uint64]bool
}

func newResource() resource {
	return resource{gate: fence.NewGate(nil), past: map[uint64]driver.Tenure{}, told: map[uint64]bool{}, blind: map[uint64]bool{}}
}

// work writes to the resource now and then for as long as the lease check
// passes. Some writes arrive late, after any pause.
func (m *machine) work() {
	l := m.p.l
	if !m.believes() {
		return
	}
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
func (l *lock) arrives(m *machine, grant int, token uint64) {
	err := l.gate.Do(context.Background(), l.key, token, func(context.Context) error { return nil })
	switch {
	case err == nil && grant < l.passed:
		l.fail("a write of grant %d passes the fence after one of grant %d, of %s with token %d", grant, l.passed, m, token)
	case err == nil:
		l.passed = grant
	case m.grant == grant && m.epoch == m.p.epoch && m.believes():
		l.fail("the fence refuses %s, which holds: %v", m, err)
	default:
		l.tally.Refused++
	}
}

// chronicle writes down what a grant shows of the tenures before it, as the
// shell does. A crash comes before it now and then. The work begins after it.
func (m *machine) chronicle(g protocol.Grant) {
	l := m.p.l
	token := g.Record.Token
	past := g.Past()
	l.blind[token] = g.Former.Key == "" && g.Before == nil
	m.writing = m.h != nil
	m.p.after(m, l.upTo(l.cfg.Latency), func() {
		if m.life == l.life {
			for _, t := range past {
				l.keep(t)
			}
			l.told[token] = true
		}
		m.writing = false
		if m.waits {
			m.finish()
		}
	})
}

func (l *lock) keep(t driver.Tenure) {
	if _, ok := l.past[t.Token]; !ok {
		l.past[t.Token] = t
	}
}

// checkHistory sees that all tenures that have ended are in the history as they
// were. What two crashes in a row have hidden may be missing, or a crash and a
// lost reply.
func (l *lock) checkHistory() {
	if l.violation != "" {
		return
	}
	holder := l.holder()
	if holder == nil {
		return // somebody was preferred, and is not yet there
	}
	for token := range holder.h.Record().Token {
		was, ok := l.tenures[token]
		if !ok {
			continue // 0, and what is older than the world
		}
		t, kept := l.past[token]
		if !kept {
			next := l.tenures[token+1]
			// Its successor's record does not show it any more.
			hidden := next.end == driver.EndReleased || next.end == driver.EndSteppedDown || next.end == driver.EndHandedOver ||
				next.end == driver.EndRevoked || l.blind[token+2]
			if l.told[token+1] || l.told[token+2] && !hidden {
				l.fail("the history lacks token %d, which ended: %s", token, was.end)
			}
			l.tally.Holes++
			continue
		}
		asked := (t.Asked == nil) == (was.asked == nil) && (t.Asked == nil || reflect.DeepEqual(*t.Asked, *was.asked))
		if t.Owner != was.owner || t.End != was.end || !asked {
			l.fail("the history has token %d as %+v, it was of %s and ended: %s", token, t, was.owner, was.end)
		}
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"reflect"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/terms"
)

// debt is the duty of a process to write the history entry of a term.
type debt struct {
	by    *host
	epoch int // of its crashes
	tries int // that got no answer, or were refused, or found a former term
}

// leastTries is how often the writing of a term is tried before it may be given
// up: for more than two leases.
const leastTries = 20

// wall is what the wall clocks of people show, whatever those of the processes do.
func (w *World) wall() time.Time { return time.Unix(0, 0).Add(w.now) }

// writeHistory begins to write down what a grant shows of the terms before it. The
// work waits for that: see awaits.
func (m *machine) writeHistory(g protocol.Grant) {
	if m.life != m.l.life {
		return // the tokens have begun again
	}
	m.l.owes(m, g)
	m.wrote = m.on.cont.at(m.l.now)
	begin := protocol.Machine.Step
	if m.h == nil {
		begin = protocol.Machine.GiveUp
	}
	for _, t := range g.Past() {
		m.writes = append(m.writes, m.write(t, begin))
	}
}

// write begins to write the history entry of one term.
func (m *machine) write(t driver.Term, begin func(protocol.Machine, time.Duration) protocol.Action) *machine {
	l, p := m.l, m.p
	c := protocol.NewHistoryWriter(p.t, l.env(p.host), l.key, t, uint64(l.cfg.History))
	e := p.newMachine(recording, m.id+"/past", c)
	e.under = m
	l.writers = append(l.writers, e)
	l.note("%s writes the end of %s with token %d: %s", e, t.Owner, t.Token, t.End)
	e.took(begin(e.is, e.now()))
	return e
}

// historyWriter returns the machine of what writes a term down.
func (m *machine) historyWriter() *protocol.HistoryWriter { return m.is.(*protocol.HistoryWriter) }

// tried counts how often the writing of a term was not answered, or refused, or found a
// former one.
func (m *machine) tried(res protocol.Result) {
	l, token := m.l, m.historyWriter().Token()
	t := l.terms[token]
	answered := res.Outcome == protocol.Applied || res.Outcome == protocol.Conflicted
	if t != nil && (!answered || l.isFormer(token, res.Record)) {
		for _, d := range t.debts {
			if d.by == m.on && d.epoch == m.epoch && m.life == l.life {
				d.tries++
			}
		}
	}
}

// awaits says that the work of a lease may not begin yet.
func (m *machine) awaits() bool {
	return slices.ContainsFunc(m.writes, func(e *machine) bool { return e.historyWriter().Awaited() })
}

// begins judges that the work under a lease begins when the earlier terms are in the
// history, or when it has waited for that as long as it must.
func (m *machine) begins() {
	l, now := m.l, m.on.cont.at(m.l.now)
	before := m.h.Record().Token - 1
	was := l.terms[before]
	if m.life != l.life || was == nil || was.told {
		return
	}
	if s := l.entry(before); s.found && was.is(s.rec) {
		return // of a former life, which a late duplicate of the same claim has brought back
	}
	if now < m.wrote+m.p.t.RequestTimeout {
		l.fail("%s begins its work before it has written, or waited for, the end of token %d", m, before)
	}
}

// awaited lets the work that waited for a history writer go on.
func (m *machine) awaited() {
	if by := m.under; m.role == recording && by.waits && !by.awaits() {
		by.finish()
	}
}

// chronicled says that a live process is writing down a term.
func (l *lock) chronicled() bool {
	l.writers = slices.DeleteFunc(l.writers, func(m *machine) bool { return m.epoch != m.on.epoch || m.is.Over() })
	return len(l.writers) > 0
}

// entered judges what a write has made of the history.
func (l *lock) entered(m *machine, r *protocol.Call, was store) {
	rec := l.storeOf(r.Key).rec
	switch token := m.historyWriter().Token(); {
	case r.Kind == protocol.HistoryPut:
		if r.Key != protocol.HistoryKey(l.key, token) || rec.State != driver.Past {
			l.fail("%s writes %+v under %s", m, rec, r.Key)
		}
		if t := l.terms[token]; t.is(rec) {
			t.told = true
		}
	case !was.found || m.life != l.life:
	case r.Key == protocol.HistoryKey(l.key, token):
		if !l.isFormer(token, was.rec) {
			l.fail("%s deletes token %d from the history, whose entry is right", m, token)
		}
	case token <= uint64(l.cfg.History) || r.Key != protocol.HistoryKey(l.key, token-uint64(l.cfg.History)):
		l.fail("%s deletes %s from a history of %d terms, when token %d has ended", m, r.Key, l.cfg.History, token)
	}
}

// entry returns what the history has of a token.
func (l *lock) entry(token uint64) *store { return l.storeOf(protocol.HistoryKey(l.key, token)) }

// is says that a record is of the term. t may be nil.
func (t *term) is(rec driver.Record) bool {
	return t != nil && t.owner == rec.Owner && t.since.Equal(rec.Since)
}

// isFormer says that an entry is of a term from before the lock's record was deleted.
func (l *lock) isFormer(token uint64, rec driver.Record) bool {
	return slices.ContainsFunc(l.former, func(terms map[uint64]*term) bool {
		return terms[token].is(rec)
	})
}

// owes notes what a process with a new grant has to write: how the previous term has
// ended, and the term before that too, if the record shows it and its entry may be
// missing.
func (l *lock) owes(m *machine, g protocol.Grant) {
	token := g.Record.Token
	l.owe(m, token-1)
	if token < 3 || l.terms[token-1] == nil {
		return
	}
	blind := g.Former.Key == "" && g.Before == nil // the reply to the claim was lost
	switch l.terms[token-1].end {
	case driver.EndReleased, driver.EndFailed, driver.EndSteppedDown, driver.EndHandedOver, driver.EndRevoked:
	default:
		if !blind {
			l.owe(m, token-2)
		}
	}
}

func (l *lock) owe(m *machine, token uint64) {
	if t := l.terms[token]; t != nil {
		t.debts = append(t.debts, &debt{by: m.on, epoch: m.epoch})
	}
}

// owed says that a process that lives was to write down how a term has ended, and
// had the time to do so.
func (t *term) owed() bool {
	return slices.ContainsFunc(t.debts, func(d *debt) bool { return d.epoch == d.by.epoch && d.tries < leastTries })
}

// checkShown judges what a process would read: no token is left out, what was is
// shown as it was, and what is not known as unknown.
func (l *lock) checkShown(now uint64) {
	list := terms.Of(l.store.rec)
	var past []terms.Entry
	for from, to := terms.Older(list, uint64(l.cfg.History)); from > to; from-- {
		s := l.entry(from)
		past = append(past, terms.EntryOf(from, s.rec, s.found))
	}
	list = terms.Whole(list, past)
	if n := uint64(len(list)); n > max(2, uint64(l.cfg.History)) || n < min(2, now) {
		l.fail("the history shows %d terms of %d, and its limit is %d", n, now, l.cfg.History)
	}
	for i, e := range list {
		was, ok := l.terms[e.Token]
		switch {
		case e.Token != now-uint64(i):
			l.fail("the history shows token %d in place %d, after %d", e.Token, i, now)
		case e.Unknown:
			if s := l.entry(e.Token); s.found {
				l.fail("the history shows token %d as unknown, but its entry is %+v", e.Token, s.rec)
			}
		case !ok, l.isFormer(e.Token, driver.Record{Owner: e.Owner, Since: e.Since}):
		case e.Owner != was.owner || e.End != was.end || !e.Since.Equal(was.since):
			l.fail("the history shows token %d as %+v, it was of %s and ended: %q", e.Token, e, was.owner, was.end)
		}
	}
}

// checkHistory sees that all terms that have ended are in the history as they
// were. What two crashes in a row have hidden may be missing, or a crash and a
// lost reply; and what was too many.
func (l *lock) checkHistory() {
	holder := l.holder()
	if holder == nil {
		return // the lock is reserved for an owner that has not come yet
	}
	now := holder.token()
	for token := range now {
		was, ok := l.terms[token]
		if !ok || token+uint64(l.cfg.History) < now {
			continue // 0, and what is older than the world, or than the history
		}
		if l.isFormer(token, driver.Record{Owner: was.owner, Since: was.since}) {
			continue // a late duplicate of a claim: the two cannot be told apart
		}
		s := l.entry(token)
		if !s.found || l.isFormer(token, s.rec) {
			if was.owed() && !was.hidden {
				l.fail("the history lacks token %d, which ended: %s", token, was.end)
			}
			l.tally.Of[Hole]++
			continue
		}
		t := s.rec
		if !was.is(t) || t.End != was.end || !reflect.DeepEqual(t.Asked, was.asked) {
			l.fail("the history has token %d as %+v, it was of %s and ended: %s", token, t, was.owner, was.end)
		}
	}
	l.checkShown(now)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// history is what is written down about the holders of a lock, and what the world
// knows about that. It outlasts the lock's record.
type history struct {
	past    map[string]*store // by key
	writers []*machine        // that may not be over

	// The tenures from before the record was deleted, once for each time.
	former []map[uint64]*tenure
}

// debt is the duty of a process to write down how a tenure has ended, which it knows.
type debt struct {
	by    *host
	epoch int // of its crashes
	tries int // that were not answered, or refused, or found a former tenure
}

// leastTries is how often the writing of a tenure is tried before it may be given
// up: for more than two leases.
const leastTries = 20

// wall is what the wall clocks of people show, whatever those of the processes do.
func (w *World) wall() time.Time { return time.Unix(0, 0).Add(w.now) }

// chronicle begins to write down what a grant shows of the tenures before it. The
// work waits for that: see awaits.
func (m *machine) chronicle(g protocol.Grant) {
	if m.life != m.p.l.life {
		return // the tokens have begun again
	}
	m.p.l.owes(m, g)
	m.wrote = m.p.cont.at(m.p.l.now)
	begin := (*protocol.Chronicler).Step
	if m.h == nil {
		begin = (*protocol.Chronicler).GiveUp
	}
	for _, t := range g.Past() {
		m.writes = append(m.writes, m.write(t, begin))
	}
}

// write begins to write down one tenure.
func (m *machine) write(t driver.Tenure, begin func(*protocol.Chronicler, time.Duration) protocol.Action) *machine {
	l, p := m.p.l, m.p
	e := &machine{p: p, epoch: m.epoch, life: m.life, id: fmt.Sprintf("%s/past%d", m.id, t.Token), under: m, judged: newJudged()}
	e.e = protocol.NewChronicler(p.t, l.env(p.host), l.key, t, uint64(l.cfg.History))
	l.writers = append(l.writers, e)
	l.note("%s is to write that %s with token %d has ended: %s", e, t.Owner, t.Token, t.End)
	e.took(begin(e.e, p.cont.at(l.now)))
	return e
}

// entered hands a chronicler the answer to its call.
func (m *machine) entered(r *protocol.Call, res protocol.Result) {
	l := m.p.l
	if r.Kind == protocol.Enter && (res.Outcome != protocol.Applied && res.Outcome != protocol.Conflicted || l.isFormer(m.e.Token(), res.Record)) {
		for _, d := range l.debts[m.e.Token()] {
			if d.by == m.p.host && d.epoch == m.epoch && m.life == l.life {
				d.tries++
			}
		}
	}
	m.took(m.e.Reply(m.p.cont.at(l.now), res))
	m.awaited()
}

// awaits says that the work of a lease may not begin yet.
func (m *machine) awaits() bool {
	return slices.ContainsFunc(m.writes, func(e *machine) bool { return e.e.Awaited() })
}

// begins judges that the work under a lease begins when the earlier tenures are in the
// history, or when it has waited for that as long as it must.
func (m *machine) begins() {
	l, now := m.p.l, m.p.cont.at(m.p.l.now)
	before := m.h.Record().Token - 1
	was := l.tenures[before]
	if m.life != l.life || was == nil || was.told {
		return
	}
	if s := l.past[protocol.HistoryKey(l.key, before)]; s != nil && s.found && s.rec.Owner == was.owner && s.rec.Since.Equal(was.since) {
		return // of a former life, which a late duplicate of the same claim has brought back
	}
	if now < m.wrote+m.p.t.RequestTimeout {
		l.fail("%s begins its work before it has written, or waited, that token %d has ended", m, before)
	}
}

// awaited lets the work that waited for a chronicler go on.
func (m *machine) awaited() {
	if by := m.under; by.waits && !by.awaits() {
		by.finish()
	}
}

// chronicled says that a live process is writing down a tenure.
func (l *lock) chronicled() bool {
	l.writers = slices.DeleteFunc(l.writers, func(m *machine) bool { return m.epoch != m.p.epoch || m.e.Over() })
	return len(l.writers) > 0
}

// applyHistory has the store carry out a call about the history, and judges
// what it did.
func (l *lock) applyHistory(m *machine, r *protocol.Call, behind int) (rec, former driver.Record, err error) {
	s := l.past[r.Key]
	if s == nil {
		s = &store{key: r.Key}
		l.past[r.Key] = s
	}
	was, found := s.rec, s.found
	rec, former, err = s.do(r, behind)
	if r.Kind.Reads() || err != nil {
		return rec, former, err
	}
	l.note("store: %v of %s: %s %s", r.Kind, m, r.Key, s.rec.Version)
	switch token := m.e.Token(); {
	case r.Kind == protocol.Enter:
		if r.Key != protocol.HistoryKey(l.key, token) || rec.State != driver.Past {
			l.fail("%s writes %+v under %s", m, rec, r.Key)
		}
		if t := l.tenures[token]; t != nil && t.owner == rec.Owner && t.since.Equal(rec.Since) {
			t.told = true
		}
	case !found || m.life != l.life:
	case r.Key == protocol.HistoryKey(l.key, token):
		if !l.isFormer(token, was) {
			l.fail("%s deletes token %d from the history, which is what it was", m, token)
		}
	case token <= uint64(l.cfg.History) || r.Key != protocol.HistoryKey(l.key, token-uint64(l.cfg.History)):
		l.fail("%s deletes %s from a history of %d, when token %d has ended", m, r.Key, l.cfg.History, token)
	}
	return rec, former, err
}

// isFormer says that an entry is of a tenure from before the lock's record was
// deleted.
func (l *lock) isFormer(token uint64, rec driver.Record) bool {
	return slices.ContainsFunc(l.former, func(tenures map[uint64]*tenure) bool {
		t := tenures[token]
		return t != nil && t.owner == rec.Owner && t.since.Equal(rec.Since)
	})
}

// owes notes what a process that has learnt of a grant has to write down: how the
// tenure before it has ended, and the one before that too, if the record shows it and
// its entry may be missing.
func (l *lock) owes(m *machine, g protocol.Grant) {
	token := g.Record.Token
	l.owe(m, token-1)
	if token < 3 || l.tenures[token-1] == nil {
		return
	}
	blind := g.Former.Key == "" && g.Before == nil // the reply to the claim was lost
	switch l.tenures[token-1].end {
	case driver.EndReleased, driver.EndFailed, driver.EndSteppedDown, driver.EndHandedOver, driver.EndRevoked:
	default:
		if !blind {
			l.owe(m, token-2)
		}
	}
}

func (l *lock) owe(m *machine, token uint64) {
	l.debts[token] = append(l.debts[token], &debt{by: m.p.host, epoch: m.epoch})
}

// owed says that a process that lives was to write down how a tenure has ended, and
// had the time to do so.
func (l *lock) owed(token uint64) bool {
	return slices.ContainsFunc(l.debts[token], func(d *debt) bool { return d.epoch == d.by.epoch && d.tries < leastTries })
}

// watchHistory runs the healed world until all that was begun is written down.
func (w *World) watchHistory() {
	end := w.now + w.slowest().Lease
	w.run(func() bool { return w.now > end || !slices.ContainsFunc(w.locks, (*lock).chronicled) })
}

// shows returns the history as a process would read it now.
func (l *lock) shows() []protocol.Entry {
	list := protocol.Present(l.store.rec)
	var past []protocol.Entry
	for from, to := protocol.Older(list, uint64(l.cfg.History)); from > to; from-- {
		var rec driver.Record
		s := l.past[protocol.HistoryKey(l.key, from)]
		if s != nil {
			rec = s.rec
		}
		past = append(past, protocol.EntryOf(from, rec, s != nil && s.found))
	}
	return protocol.Whole(list, past)
}

// checkShown judges what a process would read: no token is left out, what was is
// shown as it was, and what is not known as unknown.
func (l *lock) checkShown(now uint64) {
	list := l.shows()
	if n := uint64(len(list)); n > max(2, uint64(l.cfg.History)) || n < min(2, now) {
		l.fail("the history shows %d tenures of %d, of which it keeps %d", n, now, l.cfg.History)
	}
	for i, e := range list {
		was, ok := l.tenures[e.Token]
		switch {
		case e.Token != now-uint64(i):
			l.fail("the history shows token %d in place %d, after %d", e.Token, i, now)
		case e.Unknown:
			if s := l.past[protocol.HistoryKey(l.key, e.Token)]; s != nil && s.found {
				l.fail("the history shows token %d as unknown, of which is written: %+v", e.Token, s.rec)
			}
		case !ok, l.isFormer(e.Token, driver.Record{Owner: e.Owner, Since: e.Since}):
		case e.Owner != was.owner || e.End != was.end || !e.Since.Equal(was.since):
			l.fail("the history shows token %d as %+v, it was of %s and ended: %q", e.Token, e, was.owner, was.end)
		}
	}
}

// checkHistory sees that all tenures that have ended are in the history as they
// were. What two crashes in a row have hidden may be missing, or a crash and a
// lost reply; and what was too many.
func (l *lock) checkHistory() {
	if l.violation != "" {
		return
	}
	holder := l.holder()
	if holder == nil {
		return // the lock is reserved for an owner that has not come yet
	}
	now := holder.token()
	for token := range now {
		was, ok := l.tenures[token]
		if !ok || token+uint64(l.cfg.History) < now {
			continue // 0, and what is older than the world, or than the history
		}
		if l.isFormer(token, driver.Record{Owner: was.owner, Since: was.since}) {
			continue // a late duplicate of a claim: nobody can tell the two apart
		}
		var t driver.Record
		if s := l.past[protocol.HistoryKey(l.key, token)]; s != nil && s.found && !l.isFormer(token, s.rec) {
			t = s.rec
		}
		if t.Key == "" {
			if l.owed(token) && !was.hidden {
				l.fail("the history lacks token %d, which ended: %s", token, was.end)
			}
			l.tally.Holes++
			continue
		}
		asked := (t.Asked == nil) == (was.asked == nil) && (t.Asked == nil || reflect.DeepEqual(*t.Asked, *was.asked))
		if t.Owner != was.owner || t.End != was.end || !t.Since.Equal(was.since) || !asked {
			l.fail("the history has token %d as %+v, it was of %s and ended: %s", token, t, was.owner, was.end)
		}
	}
	l.checkShown(now)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/internal/protocol"
)

// checks is what the world knows of a lock beyond its processes, to judge them. It starts
// afresh when the record is deleted.
type checks struct {
	// The protected resource: its holders write to it, behind a fence.
	gate      *fence.Gate
	grants    int              // so far
	passed    int              // the latest grant under which a write has passed
	last      uint64           // the token of the latest grant
	kept      uint64           // the newest data that were confirmed
	lain      uint64           // the newest data in the store
	terms     map[uint64]*term // by token
	delivered map[string]bool  // requests that were written, by id
	again     bool             // it has been held since the faults ended
	// The beat of a lock that a living session does not know of, and since when.
	haunted      string
	hauntedSince time.Duration
}

func newChecks() checks {
	return checks{gate: fence.NewGate(nil), terms: map[uint64]*term{}, delivered: map[string]bool{}}
}

// serial numbers the data that a holder stores in the record, by its token and a number of its own.
func serial(token, number uint64) uint64 { return token<<32 | number }

// write is a write that was sent, whatever its outcome.
type write struct {
	by      *machine
	beat    string
	hold    time.Duration    // when it was sent, by the holder's clock
	cont    time.Duration    // and by the acquirer's
	at      time.Duration    // in real time
	end     driver.EndReason // of a release or abdication: how the sender ends its term
	asked   *driver.Request  // and what it was asked
	want    driver.Request   // of an operator
	unknown bool             // its sender was told that the outcome is unknown
}

// beat is a sign of life of a holder, or of a session.
type beat struct {
	number        int           // among those of its token
	first, stored time.Duration // when it was stored the first time, and the latest, in real time
	by            *machine      // the replica's machine that has written it, for a client
	life          int           // of the lock's record then
	of            *visit        // that has made it
	sent          time.Duration // before it sent it the first time, by its clock
}

// beat returns what is known of a beat.
func (w *World) beat(id string) *beat {
	if w.beats[id] == nil {
		w.beats[id] = &beat{}
	}
	return w.beats[id]
}

// beaten notes that the store has a beat, the number-th of its token.
func (w *World) beaten(id string, number int) {
	b := w.beat(id)
	if b.number == 0 {
		b.first = w.now
	}
	if b.number == 0 || w.engine == nil { // a server that did not have it shows no life by it
		b.stored = w.now
	}
	b.number = number
}

// sent notes a write before it is sent.
func (l *lock) sent(m *machine, r *protocol.Call) {
	if m.role == recording {
		return // an entry keeps its version, however often it is sent
	}
	if by, used := l.written[r.Next.Version]; used && m.repeats(by, r) {
		return
	} else if used && r.Kind != protocol.Delete {
		l.fail("%s sends version %s again", m, r.Next.Version)
	}
	if r.Kind == protocol.Delete {
		return // nothing is written
	}
	l.judgeCall(m, r)
	l.judgeData(m, r)
	if r.Kind == protocol.Heartbeat && m.h != nil && m.h.Quiet() {
		l.fail("%s has abdicated, but sends heartbeats", m)
	}
	if r.Kind == protocol.Request && m.role != asking && !confirms(r) {
		m.wishes()
	}
	l.written[r.Next.Version] = l.writeOf(m, r)
}

// confirms says that a call asks a session whether it holds a lock.
func confirms(r *protocol.Call) bool {
	return r.Kind == protocol.Request && r.Next.Requests[len(r.Next.Requests)-1].Kind == driver.Confirm
}

// writeOf returns what the world records of a write.
func (l *lock) writeOf(m *machine, r *protocol.Call) write {
	by := write{
		by: m, beat: r.Next.Beat, want: m.want,
		hold: m.clock(), cont: m.on.cont.at(l.now), at: l.now,
	}
	switch r.Kind {
	case protocol.Release, protocol.Abdicate:
		if m.role != opening {
			by.end, by.asked = ending(m, r)
		}
	case protocol.Request:
		by.want = r.Next.Requests[len(r.Next.Requests)-1]
	case protocol.ForceRelease:
		if a := r.Next.Asked; a != nil {
			by.want.ID = a.ID
		} else if p := r.Next.Prev; p != nil && p.Asked != nil {
			by.want.ID = p.Asked.ID
		}
	}
	if m.role == asking && by.want.ID != "" {
		m.request = by.want.ID
	}
	return by
}

// granted judges a grant at the instant at which its process believes in it. It counts
// from the sending of its write. Its beat is the version of that write, whatever was
// written since.
func (l *lock) granted(m *machine, g protocol.Grant) {
	by, f := l.written[g.Record.Beat], g.Former
	switch {
	case by.by != m:
		l.fail("%s is granted what another acquire wrote", m)
	case by.hold != g.Sent:
		l.fail("%s counts its lease from %v, and sent what was granted at %v", m, g.Sent, by.hold)
	case m.left:
		l.fail("%s is granted after it was given up", m)
	case f.Key != "" && !bytes.Equal(f.Data, g.Record.Data):
		l.fail("%s is granted data %q after %q", m, g.Record.Data, f.Data)
	}
}

// believes judges the first instant at which a process believes in a grant, and numbers
// that.
func (l *lock) believes(who fmt.Stringer, rec driver.Record) int {
	if rec.Token <= l.last {
		l.fail("%s is granted token %d after %d", who, rec.Token, l.last)
	}
	l.last = max(l.last, rec.Token)
	l.grants++
	l.tally.Of[Grant]++
	if p := rec.Prev; p != nil && p.End == driver.EndExpired {
		l.tally.Of[Takeover]++
	}
	l.grantedAt(rec.Token)
	if is := l.store.rec; is.Token == rec.Token && len(is.Requests) > 0 {
		l.heeds(rec.Token)
	}
	return l.grants
}

// actor is what acts under a lock: a lease of a process, or a visit of a client.
type actor interface {
	fmt.Stringer
	believes() bool
	token() uint64        // of the record
	lost() (string, bool) // why it no longer believes, if that is unexpected
	stands() *standing
}

// standing is the part that machines and visits share.
type standing struct {
	id     string
	l      *lock
	on     *host  // its process, or the client
	epoch  int    // of that
	life   int    // of the lock's record when it began
	grant  int    // its number among the grants of the lock
	unfit  bool   // its check has failed once
	claims func() // applies its claim again
}

func (s *standing) stands() *standing { return s }

func (s *standing) String() string { return s.id }

// after calls do when d has passed, unless its process has crashed.
func (s *standing) after(d time.Duration, do func()) { s.on.later(s.epoch, d, do) }

// clock returns the instant by which the lease is counted.
func (s *standing) clock() time.Duration { return s.on.hold.at(s.l.now) }

// believes says whether the lease check of m passes now.
func (m *machine) believes() bool {
	if m.h == nil || m.h.Expired() || m.h.Quiet() || m.clock() >= m.h.Deadline() || m.epoch != m.on.epoch {
		return false
	}
	return !m.done && !m.h.Over()
}

func (m *machine) token() uint64 { return m.h.Record().Token }

// actors are all that may act under the lock.
func (l *lock) actors(yield func(actor) bool) {
	for _, p := range l.procs {
		for _, m := range p.machines {
			if m.h != nil && !yield(m) {
				return
			}
		}
	}
	for _, v := range l.visits {
		if v.stage >= visitHolds && !yield(v) {
			return
		}
	}
}

// holder returns the actor whose check passes, nil without one.
func (l *lock) holder() actor {
	for a := range l.actors {
		if a.believes() {
			return a
		}
	}
	return nil
}

// check judges the lock after a step.
func (l *lock) check() {
	var holder actor
	for a := range l.actors {
		switch is := a.stands(); {
		case !a.believes():
			is.unfit = true
		case is.unfit:
			l.fail("%s passes its check again", a)
		case holder != nil:
			l.fail("%s and %s both hold", holder, a)
		default:
			holder = a
		}
		switch is := a.(type) {
		case *machine:
			if is.life == l.life {
				l.checkLease(is)
			}
		case *visit:
			if s := is.under; (is.deadline > is.most || s != nil && s.deadline > s.most) && !l.cfg.Harm {
				l.fail("%s has its deadline at %v, later than any applied write gives it", is, is.ends())
			}
		}
	}
	if l.final && holder != nil {
		l.again = true
	}
	l.checkFamilies(holder)
	l.checkOrphan()
	if l.lain < l.kept && l.engine == nil {
		l.fail("the store has data %q, but %d.%d was confirmed", l.store.rec.Data, l.kept>>32, uint32(l.kept))
	}
}

// checkCalm checks, where nothing fails, that no lease is lost, that a lock whose work
// does not stop is free in time although its session lives on, and that a lock ends soon
// after its session.
func (l *lock) checkCalm(m *machine) {
	revoked := l.terms[m.token()].end == driver.EndRevoked
	if c := m.h.Cause(); !l.t.Manual && !revoked && (c == protocol.Expired || c == protocol.Superseded) {
		l.fail("%s is %v although nothing fails", m, c)
	}
	if m.h.Over() || m.under == nil {
		return
	}
	most := l.slow(m.timing.Lease + 4*m.timing.RequestTimeout)
	lapses := !m.done && m.h.Quiet() && m.under.h.Cause() == protocol.None
	if quiet := l.now - m.quietSince; lapses && quiet > most {
		l.fail("%s is quiet for %v, and its session keeps the lock from others", m, quiet)
	}
	if over := l.now - m.under.overSince; m.under.h.Over() && over > most {
		l.fail("%s is not over, though its session is for %v", m, over)
	}
}

func (l *lock) checkLease(m *machine) {
	if !l.cfg.Faults {
		l.checkCalm(m)
	}
	rec := m.h.Record()
	latest := l.terms[rec.Token].applied
	if m.under != nil {
		latest = m.under.applied
	}
	if m.h.Deadline() > latest+m.timing.Usable() {
		l.fail("%s has its deadline at %v, later than any applied write gives it", m, m.h.Deadline())
	}
	is := l.store.rec
	if m.h.Cause() == protocol.Superseded && is.Token == rec.Token && is.State == driver.Held && l.engine == nil {
		l.fail("%s is superseded by its own term", m)
	}
	switch {
	case m.deadline > 0 && (!m.h.Expired() || m.h.Deadline() != m.deadline):
		l.fail("%s expired, and its deadline moves", m)
	case m.h.Expired():
		m.deadline = m.h.Deadline()
	}
	if m.h.DataKept() >= m.lays {
		m.kept = m.number
	}
	if n := m.h.DataKept(); n > 0 {
		l.kept = max(l.kept, serial(rec.Token, n))
	}
}

// sees wraps the judgement of a reply: a write that is not a sign of life must not count
// as one.
func (p *process) sees() func(*machine) {
	l, view := p.l, p.view
	was, seen := view.Record()
	since := view.Since()
	return func(m *machine) {
		is, found := view.Record()
		same := seen && found && is.Token == was.Token && is.State == was.State && is.Life == was.Life &&
			l.written[is.Version].beat == l.written[was.Version].beat
		if same && view.Since() != since {
			l.fail("%s takes a record for a sign of life whose beat stands: %+v", m, is)
		}
	}
}

// recognised judges that a machine knows its own writes when it sees them, also when
// a request was written on top of them.
func (l *lock) recognised(m *machine, res protocol.Result) {
	by, wrote := l.written[res.Record.Beat]
	if !wrote || by.by != m || !by.unknown || m.h == nil && m.done {
		return
	}
	if m.h == nil {
		if now := m.on.cont.at(l.now); now < by.cont+m.timing.Usable() {
			l.fail("%s does not see that it holds what it wrote as %s", m, res.Record.Beat)
		}
		return
	}
	if m.under != nil || l.engine != nil {
		return // its deadline is the session's; or another server has shown an earlier beat since
	}
	mine := res.Outcome == protocol.Conflicted && res.Record.Token == m.h.Record().Token
	if mine && !m.h.Expired() && m.h.Deadline() < by.hold+m.timing.Usable() {
		l.fail("%s does not see that its heartbeat %s was applied", m, res.Record.Beat)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// process is what one process has to do with one lock: one view of its
// record, and the machines of its acquires and leases.
type process struct {
	*host
	l        *lock
	view     *protocol.View
	hinted   bool // and has read nothing since
	machines []*machine
	acquires int

	observer *machine // of the lock, nil without one

	offers      map[uint64]*machine // what is offered to clients, by token
	recordCache driver.Record       // of a client, as this process has seen it last

	rests    time.Duration // its user does not want the lock until then
	priority int
	wished   int           // requests for priority
	wish     time.Duration // when the latest was sent, by its clock; 0 if it lost to another write
}

// machine is one machine of the core that a process drives, and what the world knows of it.
type machine struct {
	standing
	p      *process
	role   phase            // what it does; waiting stands for all that an acquire and its lease do
	is     protocol.Machine // that is driven: one of these, or another one
	c      *protocol.Acquirer
	h      *protocol.Holder        // of a lease; of a session, that of its record
	s      *protocol.SessionHolder // of a session that is open
	under  *machine                // the session under which the lock is taken
	want   driver.Request          // of a requester
	timing protocol.Timing         // that it counts with: an acquire and a session may have one of their own
	wake   int                     // number of the latest wake-up; older ones are void

	sentCont   time.Duration   // the contender's clock when its call was sent
	sentAt     time.Duration   // the same in real time
	begun      time.Duration   // real time
	unsure     bool            // the outcome of a write was unknown
	left       bool            // the user gave the acquire up
	writes     []*machine      // what came before its lease
	wrote      time.Duration   // since when, by the contender's clock
	waits      bool            // for that, and then its work returns
	offered    *driver.Request // of its own, by which it hands over, or steps down
	noHandOver bool            // it no longer hands over
	unwanted   bool            // nothing is done under its lease, which was over before it began
	unheard    time.Duration   // until then nothing is heard of what the acquire has sent
	unless     bool            // the acquire gives up at the first sign of life
	first      driver.Record   // that it has seen, by a strong answer; no key before that
	done       bool            // the work has returned, or a client was offered the lock
	failed     bool            // by itself

	polled                time.Duration // of an observer: when it sent its latest poll, by its clock
	seen                  uint64        // and the latest token that it has seen
	request               string        // of a requester, that it has written
	applied               time.Duration // of a session: when the latest applied write was sent
	lays                  uint64        // the latest data
	number, kept          uint64        // that those have in the record, and the highest that was confirmed
	deadline              time.Duration // once expired
	quietSince, overSince time.Duration // of a lease

	conn  *conn                    // by which a client has asked for what a replica does
	keeps bool                     // the grant, since its client may count it
	of    protocol.RemoteHeartbeat // of a remote write

	family *family // of a guardian
}

// standing returns what is common to all that begin now, with a number after their name.
func (l *lock) standing(on *host, name string) standing {
	return standing{id: fmt.Sprintf("%s%d", name, l.number()), l: l, on: on, epoch: on.epoch, life: l.life}
}

// newMachine returns a machine that a process is to drive.
func (p *process) newMachine(role phase, name string, is protocol.Machine) *machine {
	return &machine{standing: p.l.standing(p.host, name), p: p, role: role, is: is, timing: p.t, begun: p.l.now}
}

// look begins with no view of the record, as a new process does.
func (p *process) look() {
	p.hinted = false
	p.view, p.wish = protocol.NewView(p.t, p.w.env(p.host)), 0
	p.offers, p.recordCache = map[uint64]*machine{}, driver.Record{}
}

var outcomes = [...]string{"", "applied", "conflicted", "not applied", "unknown"}

// reply hands the answer to a call to its machine.
func (m *machine) reply(number int, r *protocol.Call, res protocol.Result) {
	l := m.l
	l.note("%s: %v of %s is %s: %s", m, r.Kind, r.Next.Version, outcomes[res.Outcome], shown(res.Record))
	shows := res.Found && (res.Outcome == protocol.Applied || res.Outcome == protocol.Conflicted)
	m.traceResult(trace.Reply, number, res, res.Record, shows)
	kind := r.Kind
	if r.OfSession() && m.role != opening {
		kind += ofSession
	}
	l.tally.Seen[transition{m.phase(), kind, res.Outcome}]++
	m.unsure = m.unsure || res.Outcome == protocol.Unknown || m.role == offering && res.Outcome == protocol.NotApplied
	if by := l.written[r.Next.Version]; res.Outcome == protocol.Unknown && by.by == m {
		by.unknown = true
		l.written[r.Next.Version] = by
	}
	m.peeked(r, res)
	m.showsLife(res.Record.Life)
	switch {
	case r.Kind == protocol.HistoryPut:
		m.tried(res)
	case r.Kind == protocol.Request && res.Outcome == protocol.Conflicted && !confirms(r):
		m.p.wish = 0
	}
	saw := m.p.sees()
	a := m.is.Reply(m.now(), res)
	m.undisturbed(r, res)
	m.took(a)
	saw(m)
	if m.role == waiting && !m.left && res.Record.State == driver.Held {
		l.recognised(m, res)
	}
}

// counts is the clock that the machine counts by.
func (m *machine) counts() *clock {
	if m.h != nil {
		return &m.on.hold
	}
	return &m.on.cont
}

func (m *machine) now() time.Duration { return m.counts().at(m.l.now) }

// took does what a machine asks for.
func (m *machine) took(a protocol.Action) {
	if m.became() {
		return
	}
	for _, n := range a.Notes {
		m.noted(n)
	}
	if a.Call != nil {
		m.looks(a.Call)
		m.done = m.done || m.s != nil && a.Call.Kind == protocol.Release
		m.send(a.Call)
	}
	m.sleep()
	for _, is := range a.Begin {
		m.releasesOrphan(is.(*protocol.OrphanReleaser))
	}
	for _, other := range a.Wake {
		m.wakes(other)
	}
	m.awaited()
}

// became sees what a machine has come to. It returns true if it has become another one.
func (m *machine) became() bool {
	switch is := m.is.(type) {
	case *protocol.Requester:
		m.told(is)
	case *protocol.RemoteWrite:
		m.relayed(is)
	case *protocol.Observer:
		m.saw()
	case *protocol.SessionLook:
		m.looked(is)
	case *protocol.SessionOpener:
		g, open := is.Granted()
		switch {
		case open && m.conn != nil:
			m.l.granted(m, g)
			m.conn.answer(reply{status: okay, rec: g.Record})
		case open:
			m.opened(g)
		}
		return open
	case *protocol.Acquirer:
		g, granted := is.Granted()
		switch {
		case granted && m.conn != nil:
			m.offers(g)
		case granted:
			m.hold(g)
		case is.Refused() != nil && !m.left:
			m.refused(is.Refused())
		}
		return granted
	}
	return false
}

// refused ends an acquire that does not get the lock.
func (m *machine) refused(r *protocol.Refusal) {
	m.l.note("%s is refused: %+v", m, r.Err)
	m.l.judgeRefused(m, r)
	m.l.judgeOrphan(m, r)
	m.traced(trace.Leave, trace.Event{})
	m.left = true
	switch {
	case m.conn == nil:
	case r.Held:
		m.conn.answer(reply{status: isHeld})
	default:
		m.conn.answer(reply{status: unknown})
	}
}

// noted takes a note of a holder.
func (m *machine) noted(n protocol.Note) {
	m.l.note("%s: %v", m, n)
	switch n {
	case protocol.NoteEnded:
		cause := m.h.Cause().String()
		if m.offered != nil {
			cause = "offered"
		}
		m.traced(trace.End, trace.Event{Cause: cause})
		if m.s != nil {
			m.each(func(t *machine) {
				if t.h == nil {
					t.step() // it learns that no lock is to be had
				}
			})
		} else if !m.done {
			m.after(m.l.drain(m.token()), m.finish)
		}
	case protocol.NoteQuiet:
		m.traced(trace.Quiet, trace.Event{})
		m.quietSince = m.l.now
	case protocol.NoteOver:
		m.overSince = m.l.now
		if m.p.session == m {
			m.p.session = nil
		}
	}
}

// sleep has the machine stepped when it says.
func (m *machine) sleep() {
	l, p := m.l, m.p
	if m.is.Over() {
		if m.c != nil {
			if g, ok := m.c.StrayGrant(); ok && m.writes == nil {
				m.writeHistory(g)
			}
		}
		if i := slices.Index(p.machines, m); i >= 0 && (m.h == nil || m.done) {
			p.machines = slices.Delete(p.machines, i, i+1)
		}
		return
	}
	at, due := m.is.Next()
	at = m.counts().when(at, l.now)
	m.wake++
	if !due {
		return
	}
	wake := m.wake
	late := time.Duration(0)
	if l.fails(Late) && l.one(16) {
		late = l.upTo(l.t.Lease / 20) // timers are late
	}
	m.after(at-l.now+late, func() {
		if wake == m.wake {
			m.step()
		}
	})
}

// step lets time pass for the machine, and judges that one which does nothing is not due
// again in the same instant: it would spin.
func (m *machine) step() {
	now := m.now()
	a := m.is.Step(now)
	if a.Call == nil && len(a.Notes)+len(a.Wake)+len(a.Begin) == 0 && !m.is.Over() {
		if at, due := m.is.Next(); due && at <= now {
			m.l.fail("%s does nothing and is due again in the same instant", m)
		}
	}
	m.took(a)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// checks is what the world knows beyond its processes, to judge them.
type checks struct {
	written map[string]write // by version
	last    uint64           // the token of the latest grant
	kept    [2]uint64        // token and number of the newest confirmed data
	lain    [2]uint64        // the same of what the store has

	tenures  map[uint64]*tenure       // by token
	tied     []tiedAsk                // what was asked through sessions
	debts    map[uint64][]*debt       // the duties to write one down, by token
	beats    map[uint64]int           // how many the store has seen, by token
	number   map[string]int           // of a beat, among those of its token
	stored   map[string]time.Duration // when a beat was, in real time
	first    map[string]time.Duration // the same, when it was stored the first time
	beatOf   map[string]string        // by version
	ids      map[*machine]string      // of the requests of askers
	laid     map[string]time.Duration // when a request was, by its id
	askedIn  map[uint64]laid          // the request in the record of a lock, by its token
	beatenBy map[string]*machine      // the relay whose write of a client's beat was applied

	again    bool // it has been held since the faults ended
	haunt    haunt
	leaders  []*process // all processes that were granted the lock
	ledSince []time.Duration
}

// write is a write that was sent, whatever became of it.
type write struct {
	by      *machine
	acquire int
	hold    time.Duration    // when it was sent, by the holder's clock
	cont    time.Duration    // and by the contender's
	at      time.Duration    // in real time
	end     driver.EndReason // of a release or quit: how the sender leaves
	asked   *driver.Request  // and what it was asked
	want    driver.Request   // of an operator
	unknown bool             // its sender was told that the outcome is
}

// judged is what the world remembers of one lease.
type judged struct {
	applied  map[uint64]time.Duration // when the latest applied write of a token was sent
	lays     uint64
	unfit    bool // its check has failed once
	expired  bool
	deadline time.Duration // once expired

	quietSince time.Duration
	overSince  time.Duration
}

func newChecks() checks {
	return checks{
		written: map[string]write{}, tenures: map[uint64]*tenure{}, debts: map[uint64][]*debt{}, beats: map[uint64]int{}, number: map[string]int{}, stored: map[string]time.Duration{}, first: map[string]time.Duration{},
		beatOf: map[string]string{}, ids: map[*machine]string{}, laid: map[string]time.Duration{}, askedIn: map[uint64]laid{}, beatenBy: map[string]*machine{},
	}
}

func newJudged() judged { return judged{applied: map[uint64]time.Duration{}} }

// sent notes a write before it is sent.
func (l *lock) sent(m *machine, r *protocol.Call) {
	if m.e != nil {
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
	if r.Kind == protocol.Heartbeat && m.h != nil && m.h.Quiet() {
		l.fail("%s has said that it is quiet, and beats", m)
	}
	if r.Kind == protocol.Ask && m.k == nil && !confirms(r) {
		m.wishes()
	}
	by := write{by: m, acquire: m.acquire, hold: m.clock(), cont: m.p.cont.at(l.now), at: l.now, want: m.want}
	switch r.Kind {
	case protocol.Release, protocol.Quit:
		if m.o == nil {
			by.end, by.asked = ending(m, r)
		}
	case protocol.Ask:
		by.want = r.Next.Requests[len(r.Next.Requests)-1]
	case protocol.Free:
		if a := r.Next.Asked; a != nil {
			by.want.ID = a.ID
		} else if p := r.Next.Prev; p != nil && p.Asked != nil {
			by.want.ID = p.Asked.ID
		}
	}
	if m.k != nil && by.want.ID != "" {
		l.ids[m] = by.want.ID
	}
	l.written[r.Next.Version] = by
}

// confirms says that an Ask puts the question whether a session holds a lock.
func confirms(r *protocol.Call) bool {
	return r.Next.Requests[len(r.Next.Requests)-1].Kind == driver.Confirm
}

// apply has the store carry out a call, and judges what it did.
func (l *lock) apply(m *machine, r *protocol.Call, behind int) (rec, former driver.Record, err error) {
	if strings.HasPrefix(r.Key, driver.SessionPrefix) {
		return l.applySession(m, r, behind)
	}
	if m.e != nil {
		return l.applyHistory(m, r, behind)
	}
	before, found := l.store.rec, l.store.found
	rec, former, err = l.store.do(r, behind)
	if r.Kind == protocol.Look || err != nil {
		return rec, former, err
	}
	if l.cfg.Trace != nil {
		l.note("store: %v of %s: %s", r.Kind, m, shown(l.store.rec))
	}
	l.counted(r)
	if r.Kind == protocol.Takeover && !protocol.Readable(before) {
		l.fail("%s takes over an unreadable record", m)
	}
	if l.store.rec.Token != before.Token && l.recorder() != nil {
		l.traceBeliefs()
	}
	if l.store.rec.Token < before.Token {
		l.fail("the stored token falls from %d to %d", before.Token, l.store.rec.Token)
	}
	if r.Kind == protocol.Release && m.d != nil {
		l.tally.Ghosts++
	}
	if r.Kind == protocol.Release && m.c != nil && m.h == nil && !m.left {
		l.tally.Disowned++
	}
	l.wrote(m, r, before, found)
	l.carried(m, r, before)
	if l.store.rec.Token != before.Token && found && !bytes.Equal(before.Data, l.store.rec.Data) {
		l.fail("the data changed from %q to %q with the holder", before.Data, l.store.rec.Data)
	}
	if _, err := fmt.Sscanf(string(rec.Data), "%d.%d", &l.lain[0], &l.lain[1]); err != nil {
		l.lain = [2]uint64{}
	}
	switch sent := l.written[r.Next.Version].hold; r.Kind {
	case protocol.Claim, protocol.Takeover, protocol.Heartbeat: // and nothing else counts
		m.applied[rec.Token] = max(m.applied[rec.Token], sent)
	}
	return rec, former, nil
}

func (l *lock) counted(r *protocol.Call) {
	if r.Kind == protocol.Ask && !confirms(r) || r.Kind == protocol.Free && !r.OfSession() {
		l.tally.Asked++
	}
}

// granted judges a grant at the instant at which its process believes in it.
func (l *lock) granted(m *machine, g protocol.Grant) {
	if by := l.written[g.Record.Beat]; by.by != m || by.acquire != m.acquire {
		l.fail("%s is granted what another acquire wrote", m)
	}
	if m.left {
		l.fail("%s is granted after it was given up", m)
	}
	if f := g.Former; f.Key != "" && !bytes.Equal(f.Data, g.Record.Data) {
		l.fail("%s is granted data %q after %q", m, g.Record.Data, f.Data)
	}
}

// believed judges the first instant at which a process believes in a grant.
func (l *lock) believed(m *machine, g protocol.Grant) {
	m.grant = l.believes(m, g.Record)
	l.leaders, l.ledSince = append(l.leaders, m.p), append(l.ledSince, l.now)
	m.traceGrant(g.Record)
}

// believes judges the first instant at which somebody believes in a grant, and numbers
// that.
func (l *lock) believes(who fmt.Stringer, rec driver.Record) int {
	if rec.Token <= l.last {
		l.fail("%s is granted token %d after %d", who, rec.Token, l.last)
	}
	l.last = max(l.last, rec.Token)
	l.grants++
	l.tally.Grants++
	if p := rec.Prev; p != nil && p.End == driver.EndExpired {
		l.tally.Takeovers++
	}
	return l.grants
}

// believes says whether the lease check of m passes now.
func (m *machine) believes() bool {
	if m.h == nil || m.h.Expired() || m.h.Quiet() || m.clock() >= m.h.Deadline() {
		return false
	}
	return !m.done && !m.h.Over()
}

// actor is what acts under a lock: a lease of a process, or a visit of a client.
type actor interface {
	fmt.Stringer
	believes() bool
	acts(grant int) bool  // it lives, and believes in that grant
	token() uint64        // of the record
	lost() (string, bool) // why it does not believe any more, if that is to be wondered at
}

func (m *machine) acts(grant int) bool {
	return m.grant == grant && m.epoch == m.p.epoch && m.believes()
}

func (m *machine) token() uint64 { return m.h.Record().Token }

// check judges every lease of the lock after a step.
func (l *lock) check() {
	var holder actor
	for _, p := range l.procs {
		for _, m := range p.machines {
			if m.h == nil {
				continue
			}
			if m.believes() {
				if m.unfit {
					l.fail("%s passes its check again", m)
				}
				if holder != nil {
					l.fail("%s and %s both hold", holder, m)
				}
				holder = m
			} else {
				m.unfit = true
			}
			if m.life == l.life {
				l.checkLease(m)
			}
		}
	}
	holder = l.checkVisits(holder)
	l.checkFamilies()
	if l.final && holder != nil {
		l.again = true
	}
	l.checkOffers()
	l.checkGhost()
	l.checkRequests()
	if len(l.store.rec.Data) > 0 || l.kept[1] > 0 {
		have := l.lain
		if have[0] < l.kept[0] || have[0] == l.kept[0] && have[1] < l.kept[1] {
			l.fail("the store has data %q, but %d.%d was confirmed", l.store.rec.Data, l.kept[0], l.kept[1])
		}
	}
}

// checkUnder sees, where nothing fails, that the lock of work which does not stop is free
// in time although its session lives on, and that a lock is soon over when its session is.
func (l *lock) checkUnder(m *machine) {
	if l.cfg.Faults || m.h.Over() || m.under == nil {
		return
	}
	most := time.Duration(float64(m.timing().Lease+4*m.timing().RequestTimeout) / (1 - l.cfg.Skew))
	lapses := !m.done && m.h.Quiet() && m.under.h.Cause() == protocol.None
	if quiet := l.now - m.quietSince; lapses && quiet > most {
		l.fail("%s is quiet for %v, and its session keeps the lock from others", m, quiet)
	}
	if over := l.now - m.under.overSince; m.under.h.Over() && over > most {
		l.fail("%s is not over, though its session is for %v", m, over)
	}
}

func (l *lock) checkLease(m *machine) {
	l.checkUnder(m)
	rec := m.h.Record()
	latest := m.applied[rec.Token]
	if m.under != nil {
		latest = m.under.applied[1]
	}
	if m.h.Deadline() > latest+m.timing().Usable() {
		l.fail("%s has its deadline at %v, later than any applied write gives it", m, m.h.Deadline())
	}
	revoked := l.tenures[rec.Token].end == driver.EndRevoked
	if c := m.h.Cause(); !l.cfg.Faults && !l.t.Manual && !revoked && (c == protocol.Expired || c == protocol.Superseded) {
		l.fail("%s is %v although nothing fails", m, c)
	}
	if is := l.store.rec; m.h.Cause() == protocol.Superseded && is.Token == rec.Token && is.State == driver.Held {
		l.fail("%s is superseded by its own tenure", m)
	}
	switch {
	case m.expired && (!m.h.Expired() || m.h.Deadline() != m.deadline):
		l.fail("%s expired, and its deadline moves", m)
	case m.h.Expired() && !m.expired:
		m.expired, m.deadline = true, m.h.Deadline()
	}
	if n := m.h.DataKept(); n > 0 && (rec.Token > l.kept[0] || rec.Token == l.kept[0] && n > l.kept[1]) {
		l.kept = [2]uint64{rec.Token, n}
	}
}

// sees returns what has a reply judged: a write that is no sign of life must not
// count as one.
func (p *process) sees() func(*machine) {
	l, sight := p.l, p.sight
	was, seen := sight.Record()
	since := sight.Since()
	return func(m *machine) {
		is, found := sight.Record()
		same := seen && found && is.Token == was.Token && is.State == was.State && l.beatOf[is.Version] == l.beatOf[was.Version]
		if same && sight.Since() != since {
			l.fail("%s takes a record for a sign of life whose beat stands: %+v", m, is)
		}
	}
}

// checkIdle judges that a machine which did nothing is not due again in the same instant: it
// would spin.
func (m *machine) checkIdle(is protocol.Machine, now time.Duration, a protocol.Action) {
	if a.Call != nil || len(a.Notes)+len(a.Wake)+len(a.Begin) > 0 || is.Over() {
		return
	}
	if at, due := is.Next(); due && at <= now {
		m.p.l.fail("%s does nothing, and is due again in the same instant", m)
	}
}

// recognised judges that a machine knows its own writes when it sees them, also when
// a request was written on top of them.
func (l *lock) recognised(m *machine, res protocol.Result) {
	by, wrote := l.written[res.Record.Beat]
	if !wrote || by.by != m || by.acquire != m.acquire || !by.unknown || m.left || m.h == nil && m.done || res.Record.State != driver.Held {
		return
	}
	if m.h == nil {
		if now := m.p.cont.at(l.now); now < by.cont+m.timing().Usable() {
			l.fail("%s does not see that it holds what it wrote as %s", m, res.Record.Beat)
		}
		return
	}
	if m.under != nil {
		return // its deadline is the session's
	}
	mine := res.Outcome == protocol.Conflicted && res.Record.Token == m.h.Record().Token
	if mine && !m.h.Expired() && m.h.Deadline() < by.hold+m.timing().Usable() {
		l.fail("%s does not see that its heartbeat %s was applied", m, res.Record.Beat)
	}
}

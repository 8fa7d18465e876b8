// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// checks is what the world knows beyond its processes, to judge them.
type checks struct {
	violation string
	written   map[string]write // by version
	last      uint64           // the token of the latest grant
	kept      [2]uint64        // token and number of the newest confirmed data
	lain      [2]uint64        // the same of what the store has

	tenures  map[uint64]*tenure       // by token
	beats    map[uint64]int           // how many the store has seen, by token
	stored   map[string]time.Duration // when a beat was, in real time
	beatOf   map[string]string        // by version
	ids      map[*machine]string      // of the requests of askers
	laid     map[string]time.Duration // when a request was, by its id
	answered []protocol.Answer

	leaders       []*process // all who were granted the lock
	ledSince      []time.Duration
	firstTakeover time.Duration // when it was sent
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
}

func newChecks() checks {
	return checks{
		written: map[string]write{}, tenures: map[uint64]*tenure{}, beats: map[uint64]int{}, stored: map[string]time.Duration{},
		beatOf: map[string]string{}, ids: map[*machine]string{}, laid: map[string]time.Duration{},
	}
}

func newJudged() judged { return judged{applied: map[uint64]time.Duration{}} }

func (w *World) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf("at %v: %s", w.now, fmt.Sprintf(format, args...))
		w.note("VIOLATION: %s", w.violation)
	}
}

// sent notes a write before it is sent.
func (w *World) sent(m *machine, r *protocol.Request) {
	if _, used := w.written[r.Next.Version]; used {
		w.fail("%s sends version %s again", m, r.Next.Version)
	}
	if r.Kind == protocol.Takeover && w.firstTakeover == 0 {
		w.firstTakeover = w.now
	}
	if r.Kind == protocol.Heartbeat && m.h.Quiet() {
		w.fail("%s has said that it is quiet, and beats", m)
	}
	if r.Kind == protocol.Ask && m.k == nil {
		m.wishes()
	}
	by := write{by: m, acquire: m.acquire, hold: m.clock(), cont: m.p.cont.at(w.now), at: w.now, want: m.want}
	switch r.Kind {
	case protocol.Release, protocol.Quit:
		by.end, by.asked = ending(m, r)
	case protocol.Ask:
		by.want = r.Next.Requests[len(r.Next.Requests)-1]
	case protocol.Free:
		if a := r.Next.Asked; a != nil {
			by.want.ID = a.ID
		} else if p := r.Next.Prev; p != nil && p.Asked != nil {
			by.want.ID = p.Asked.ID
		}
	}
	if m.k != nil {
		w.ids[m] = by.want.ID
	}
	w.written[r.Next.Version] = by
}

// apply has the store carry out a request, and judges what it did.
func (w *World) apply(m *machine, r *protocol.Request, behind int) (rec, former driver.Record, err error) {
	before, found := w.store.rec, w.store.found
	rec, former, err = w.store.do(r, behind)
	if r.Kind == protocol.Look || err != nil {
		return rec, former, err
	}
	w.note("store: %v of %s: %s", r.Kind, m, shown(w.store.rec))
	if r.Kind == protocol.Takeover && !protocol.Readable(before) {
		w.fail("%s takes over an unreadable record", m)
	}
	if w.store.rec.Token < before.Token {
		w.fail("the stored token falls from %d to %d", before.Token, w.store.rec.Token)
	}
	w.wrote(m, r, before, found)
	if w.store.rec.Token != before.Token && found && !bytes.Equal(before.Data, w.store.rec.Data) {
		w.fail("the data changed from %q to %q with the holder", before.Data, w.store.rec.Data)
	}
	if _, err := fmt.Sscanf(string(rec.Data), "%d.%d", &w.lain[0], &w.lain[1]); err != nil {
		w.lain = [2]uint64{}
	}
	switch sent := w.written[r.Next.Version].hold; r.Kind {
	case protocol.Claim, protocol.Takeover, protocol.Heartbeat: // and nothing else counts
		m.applied[rec.Token] = max(m.applied[rec.Token], sent)
	}
	return rec, former, nil
}

// granted judges a grant at the instant at which its process believes in it.
func (w *World) granted(m *machine, g protocol.Grant) {
	if g.Record.Token <= w.last {
		w.fail("%s is granted token %d after %d", m, g.Record.Token, w.last)
	}
	w.last = max(w.last, g.Record.Token)
	w.leaders, w.ledSince = append(w.leaders, m.p), append(w.ledSince, w.now)
	if by := w.written[g.Record.Beat]; by.by != m || by.acquire != m.acquire {
		w.fail("%s is granted what another acquire wrote", m)
	}
	if m.left {
		w.fail("%s is granted after it was given up", m)
	}
	if f := g.Former; f.Key != "" && !bytes.Equal(f.Data, g.Record.Data) {
		w.fail("%s is granted data %q after %q", m, g.Record.Data, f.Data)
	}
}

// believes says whether the lease check of m passes now.
func (m *machine) believes() bool {
	if m.h == nil || m.h.Expired() || m.h.Quiet() || m.clock() >= m.h.Deadline() {
		return false
	}
	if m.p.w.cfg.Wrong == WorkAfterRelease {
		return true
	}
	_, over := m.h.Over()
	return !m.done && !over
}

// checkAll judges every lease after a step.
func (w *World) checkAll() {
	var holder *machine
	for _, p := range w.procs {
		for _, m := range p.machines {
			if m.h == nil {
				continue
			}
			if m.believes() {
				if m.unfit {
					w.fail("%s passes its check again", m)
				}
				if holder != nil {
					w.fail("%s and %s both hold", holder, m)
				}
				holder = m
			} else {
				m.unfit = true
			}
			w.checkLease(m)
		}
	}
	w.checkRequests()
	if len(w.store.rec.Data) > 0 || w.kept[1] > 0 {
		have := w.lain
		if have[0] < w.kept[0] || have[0] == w.kept[0] && have[1] < w.kept[1] {
			w.fail("the store has data %q, but %d.%d was confirmed", w.store.rec.Data, w.kept[0], w.kept[1])
		}
	}
}

func (w *World) checkLease(m *machine) {
	rec := m.h.Record()
	if m.h.Deadline() > m.applied[rec.Token]+w.t.Usable() {
		w.fail("%s has its deadline at %v, later than any applied write gives it", m, m.h.Deadline())
	}
	revoked := w.tenures[rec.Token].end == driver.EndRevoked
	if c := m.h.Cause(); !w.cfg.Faults && !w.t.Manual && !revoked && (c == protocol.Expired || c == protocol.Superseded) {
		w.fail("%s is %v although nothing fails", m, c)
	}
	if is := w.store.rec; m.h.Cause() == protocol.Superseded && is.Token == rec.Token && is.State == driver.Held {
		w.fail("%s is superseded by its own tenure", m)
	}
	switch {
	case m.expired && (!m.h.Expired() || m.h.Deadline() != m.deadline):
		w.fail("%s expired, and its deadline moves", m)
	case m.h.Expired() && !m.expired:
		m.expired, m.deadline = true, m.h.Deadline()
	}
	if n := m.h.DataKept(); n > 0 && (rec.Token > w.kept[0] || rec.Token == w.kept[0] && n > w.kept[1]) {
		w.kept = [2]uint64{rec.Token, n}
	}
}

// sees returns what has a reply judged: a write that is no sign of life must not
// count as one.
func (p *process) sees() func(*machine) {
	w, sight := p.w, p.sight
	was, seen := sight.Record()
	since := sight.Since()
	return func(m *machine) {
		is, found := sight.Record()
		same := seen && found && is.Token == was.Token && is.State == was.State && w.beatOf[is.Version] == w.beatOf[was.Version]
		if same && sight.Since() != since {
			w.fail("%s takes a record for a sign of life whose beat stands: %+v", m, is)
		}
	}
}

// recognised judges that a machine knows its own writes when it sees them, also
// under a request that was laid on top of them.
func (w *World) recognised(m *machine, res protocol.Result) {
	by, wrote := w.written[res.Record.Beat]
	if !wrote || by.by != m || by.acquire != m.acquire || !by.unknown || m.left || res.Record.State != driver.Held {
		return
	}
	if m.h == nil {
		if now := m.p.cont.at(w.now); now < by.cont+w.t.Usable() {
			w.fail("%s does not see that it holds what it wrote as %s", m, res.Record.Beat)
		}
		return
	}
	mine := res.Outcome == protocol.Conflicted && res.Record.Token == m.h.Record().Token
	if mine && !m.h.Expired() && m.h.Deadline() < by.hold+w.t.Usable() {
		w.fail("%s does not see that its heartbeat %s was applied", m, res.Record.Beat)
	}
}

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
	stored    [2]uint64        // the same of what the store has
}

// write is a write that was sent, whatever became of it.
type write struct {
	by      *machine
	acquire int
	hold    time.Duration // when it was sent, by the holder's clock
}

// judged is what the world remembers of one lease.
type judged struct {
	applied  map[uint64]time.Duration // when the latest applied write of a token was sent
	lays     uint64
	unfit    bool // its check has failed once
	expired  bool
	deadline time.Duration // once expired
}

func newChecks() checks { return checks{written: map[string]write{}} }
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
	w.written[r.Next.Version] = write{m, m.acquire, m.clock()}
}

// apply has the store carry out a request, and judges what it did.
func (w *World) apply(m *machine, r *protocol.Request, behind int) (rec, former driver.Record, err error) {
	before, found := w.store.rec, w.store.found
	rec, former, err = w.store.do(r, behind)
	if r.Kind == protocol.Look || err != nil {
		return rec, former, err
	}
	w.note("store: %v of %s: %s", r.Kind, m, shown(w.store.rec))
	if r.Kind != protocol.Claim && found && before.State == driver.Released {
		w.fail("%v of %s changes a released record", r.Kind, m)
	}
	if r.Kind == protocol.Takeover && (before.Lease <= 0 || before.State != driver.Held) {
		w.fail("%s takes over an unreadable record", m)
	}
	if r.Kind == protocol.Release && (rec.State != driver.Released || rec.End != driver.EndReleased) {
		w.fail("%s leaves the record %v, ended %q", m, shown(rec), rec.End)
	}
	if p := rec.Prev; r.Kind == protocol.Takeover && (p == nil || p.Token != before.Token || p.End != driver.EndExpired) {
		w.fail("%s takes over from token %d, and writes down %+v", m, before.Token, p)
	}
	if w.store.rec.Token < before.Token {
		w.fail("the stored token falls from %d to %d", before.Token, w.store.rec.Token)
	}
	if w.store.rec.Token != before.Token && found && !bytes.Equal(before.Data, w.store.rec.Data) {
		w.fail("the data changed from %q to %q with the holder", before.Data, w.store.rec.Data)
	}
	if _, err := fmt.Sscanf(string(rec.Data), "%d.%d", &w.stored[0], &w.stored[1]); err != nil {
		w.stored = [2]uint64{}
	}
	if sent := w.written[r.Next.Version].hold; r.Kind != protocol.Release {
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
	if by := w.written[g.Record.Version]; by.by != m || by.acquire != m.acquire {
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
	if len(w.store.rec.Data) > 0 || w.kept[1] > 0 {
		have := w.stored
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
	if c := m.h.Cause(); !w.cfg.Faults && !w.t.Manual && (c == protocol.Expired || c == protocol.Superseded) {
		w.fail("%s is %v although nothing fails", m, c)
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"crypto/sha256"
	"slices"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// rings has messages of a bell come, at random and without a reason, as those do that are
// late, doubled or forged. They tell contenders that the lock is free, and its holder, or the
// session of it, that a request is in the record.
func (l *lock) rings() {
	for _, p := range l.procs {
		if !p.up || l.now < p.paused {
			continue
		}
		for _, m := range slices.Clone(p.machines) {
			switch {
			case m.epoch != p.epoch || !l.one(2):
			case m.h != nil && m.done, m.h == nil && (m.c == nil || m.c.Over()):
			case m.h == nil:
				l.tally.Rung++
				l.note("%s is rung", m)
				m.took(m.c.Rung(p.cont.at(l.now)))
			case m.under != nil:
				if s := m.under; s.s != nil && !s.s.Over() {
					l.tally.Hurried++
					s.took(s.s.Renew(s.clock()))
				}
			default:
				l.tally.Hurried++
				l.note("%s is told of a request", m)
				m.took(m.h.Renew(m.clock()))
			}
		}
	}
	if !l.final {
		l.after(l.upTo(2*l.t.Refresh), l.rings)
	}
}

// hears has messages come that tell of heartbeats, as a holder sends them once they are
// confirmed, and as whoever reads the store can forge them: of the beat that is stored, of
// one that was, of none. They go on when the faults are over.
func (l *lock) hears() {
	for _, p := range l.procs {
		if !p.up || l.now < p.paused || l.one(4) {
			continue
		}
		beat := l.store.rec.Beat
		if s := l.sessions[driver.SessionKey(l.store.rec.Session)]; s != nil {
			beat = s.rec.Beat
		}
		switch l.src.Intn(8) {
		case 0:
			beat = l.id("never %d", l.src.Intn(1<<10))
		case 1:
			if n := len(l.named); n > 0 {
				beat = l.named[l.src.Intn(n)]
			}
		}
		l.tally.Heard++
		p.sight.Heard(p.cont.at(l.now), tagOf(beat), tagOf)
		for _, m := range slices.Clone(p.machines) {
			if m.epoch == p.epoch && m.h == nil && m.c != nil && !m.c.Over() {
				m.took(protocol.Action{}) // it may have less, or more, time until its next look
			}
		}
	}
	l.after(l.upTo(2*l.t.Refresh), l.hears)
}

func tagOf(beat string) (tag protocol.Tag) {
	sum := sha256.Sum256([]byte(beat))
	copy(tag[:], sum[:])
	return tag
}

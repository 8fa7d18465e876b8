// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "slices"

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
				m.took(m.c.Hint(p.cont.at(l.now)))
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

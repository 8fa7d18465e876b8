// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"
)

// Led is how candidates with different priorities led.
type Led struct {
	Leaders []int           // the priorities of the leaders, in order
	Since   []time.Duration // when
	Asks    int             // to make way that were sent
}

// Preference has candidates with the given priorities join one after the other,
// and campaign again whenever they lose the lead. With flaky the candidate with
// the highest priority has a bad link as long as it does not lead.
func Preference(src Source, cfg Config, priorities []int, gap, length time.Duration, flaky bool) (Led, error) {
	cfg.Processes = len(priorities)
	l := newLock(src, cfg)
	l.final = true
	best := l.procs[0]
	for i, p := range l.procs {
		p.priority = priorities[i]
		if p.priority > best.priority {
			best = p
		}
		l.after(time.Duration(i)*gap, p.act)
	}
	best.flaky = flaky
	l.after(length, func() {})
	l.run(func() bool { return l.now >= length })
	led := Led{Since: l.ledSince}
	for _, p := range l.leaders {
		led.Leaders = append(led.Leaders, p.priority)
	}
	for _, p := range l.procs {
		led.Asks += p.wished
	}
	return led, l.failure()
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/chaos/replica"
)

// noise is by how much readings of clocks that were moved may differ from what
// the move explains. The least move is many times that.
const noise = 25 * time.Millisecond

// lossy says that a replica's word for the end of its tenancy means a loss.
func lossy(end string) bool {
	return strings.Contains(end, "expired") || strings.Contains(end, "superseded") || strings.Contains(end, "stalled")
}

// judgePlace sees that a process was started in the time namespace that it was
// to be, and that its time stamps are good there.
func (r *round) judgePlace(v *verdict, p *process, ready replica.Line) {
	var want timespace
	if p.where != nil {
		want = *p.where
		v.Namespaces++
	}
	at := violation{From: ready.At, To: ready.At}
	boot := time.Duration(ready.RawBoot - ready.At)
	// The two clocks of the machine differ by its suspends.
	slept := time.Duration(r.bootAhead)
	mono := time.Duration(ready.RawMono-ready.At) + slept
	if (boot-time.Duration(want.Boot)*time.Second).Abs() > time.Second ||
		(mono-time.Duration(want.Monotonic)*time.Second).Abs() > time.Second {
		v.sin(hook, at, "%s was to have a boot clock %d s and a monotonic clock %d s ahead; they are %v and %v",
			p.name, want.Boot, want.Monotonic, boot, mono)
	}
	if ready.At < p.began || p.end > 0 && ready.At > p.end {
		v.sin(hook, at, "%s was started at %d and says that it runs at %d", p.name, p.began, ready.At)
	}
}

// judgeClocks sees from what each replica said that its clocks were moved as
// the nemesis meant it, at the rate that it has, and that the clock of its locks drew the right
// conclusions: a suspend counts, for a holder a step forward of the wall clock
// counts as well, and a step back counts for nobody.
func (r *round) judgeClocks(v *verdict) {
	lives := map[string]*process{}
	for _, s := range r.seats {
		for _, p := range s.lives {
			lives[p.name] = p
		}
	}
	for _, e := range r.events {
		if e.Change == 0 {
			continue
		}
		before, after := around(lives[e.On].lines, e.Change)
		if before == nil || after == nil {
			continue // it was killed before it had looked
		}
		at := violation{From: e.From, To: e.To, Seat: e.Seat}
		mono, boot, wall := after.Mono-before.Mono, after.Boot-before.Boot, after.Wall-before.Wall
		real := after.RealMono - before.RealMono
		wrong := func(what string, got, want time.Duration) bool {
			if (got - want).Abs() <= noise {
				return false
			}
			v.sin(hook, at, "%s: %s says that its %s went on by %v while %v passed; %v was to be", e.Text, e.On,
				what, got, real, want)
			return true
		}
		own := func(d time.Duration) time.Duration { return time.Duration(float64(d) * (1 + lives[e.On].rate)) }
		bad := wrong("monotonic clock", mono, own(real-e.Shift.MonoBack))
		bad = wrong("boot clock", boot, own(real-e.Shift.BootBack)) || bad
		bad = wrong("wall clock", wall, own(real+e.Shift.WallOn)) || bad
		bad = wrong("holder's time", after.Holder-before.Holder, boot+max(0, wall-boot)) || bad
		bad = wrong("contender's time", after.Contender-before.Contender, boot) || bad
		if !bad {
			v.Proved[e.Kind]++
		}
	}
}

// around returns the last reading before a change of the clocks, and the first
// one after it.
func around(lines []replica.Line, change int64) (before, after *replica.Reading) {
	for _, l := range lines {
		switch c := l.Clocks; {
		case c == nil:
		case c.Change == change-1:
			before = c
		case c.Change == change && after == nil:
			after = c
		}
	}
	return before, after
}

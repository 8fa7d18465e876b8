// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
)

// judge reads what the replicas have said, and the resource has seen.
func (r *round) judge() *verdict {
	v := &verdict{counts: counts{Faults: map[kind]int{}, Proved: map[kind]int{}, Lost: r.lost}}
	for _, p := range r.problems {
		v.sin(unexpected, violation{}, "%s", p)
	}
	told := map[string]*trial.Told{}
	for _, s := range r.seats {
		for _, p := range s.lives {
			v.Lives++
			r.readLife(v, s, p, told)
		}
	}
	for _, e := range r.events {
		v.Faults[e.Kind]++
		switch e.Kind {
		case kill, namespace:
			v.Kills++
		case stop, suspend, pauseVM, lateVM:
			v.Stops++
		}
	}
	slices.SortFunc(v.Tenancies, func(a, b tenancy) int { return cmp.Compare(a.To, b.To) })
	v.Log = r.log(v.Tenancies, told)
	for _, f := range v.Log.Judge() {
		seat := slices.IndexFunc(r.seats, func(s *seat) bool { return s.name == life(f.Owner) })
		v.sin(f.Sin, violation{From: f.From, To: f.To, Seat: seat}, "%s", f.Text)
		if f.Sin == trial.Overlap {
			v.Overlaps++
		}
	}
	if r.record.Token < r.highest {
		v.sin(trial.Tokens, violation{From: r.ended, To: r.ended, Seat: -1},
			"the record has token %d in the end, but %d was granted", r.record.Token, r.highest)
	}
	r.judgeClocks(v)
	r.measure(v)
	if r.recovery < 0 || r.recovery > r.bound {
		v.sin(noLeader, violation{From: r.healed, To: r.ended, Seat: -1},
			"time until somebody led after the last kill: %s; at most %s are allowed", shown(r.recovery), shown(r.bound))
	}
	return v
}

// readLife takes the tenancies of a process, and what it was told of its operations.
func (r *round) readLife(v *verdict, s *seat, p *process, told map[string]*trial.Told) {
	terms := map[uint64]*tenancy{}
	var order []*tenancy
	passed := func(l replica.Line) {
		v.Checks++
		if r.blind(p.name, l.From) {
			v.Blind++
		} else if t := terms[l.Token]; t != nil && l.From > t.Last {
			t.Last = l.From
		}
	}
	for _, l := range p.lines {
		at := violation{From: l.At, To: l.At, Seat: s.index}
		switch l.Kind {
		case replica.Ready:
			r.judgePlace(v, p, l)
		case replica.Trouble:
			v.sin(unexpected, at, "%s says: %s", p.name, l.Text)
		case replica.Blank:
			v.Blanks++
		case replica.Granted:
			if terms[l.Token] != nil {
				v.sin(trial.Tokens, at, "token %d was granted to %s twice", l.Token, p.name)
			}
			terms[l.Token] = &tenancy{Token: l.Token, Process: p.name, Seat: s.index, From: l.From, To: l.To}
			order = append(order, terms[l.Token])
			passed(l)
		case replica.Held:
			passed(l)
		case replica.Ended:
			if t := terms[l.Token]; t != nil {
				t.End, t.ended = l.Text, l.At
			}
		case replica.Begin:
			passed(l)
			v.Operations++
			told[l.Op.ID] = nil
		case replica.End:
			switch l.Op.Result {
			case replica.Done, replica.Refused:
				told[l.Op.ID] = &trial.Told{
					Refused: l.Op.Result == replica.Refused, Highest: l.Op.Highest,
					Value: l.Op.Value,
				}
			case replica.Unknown:
				v.Unknown++
			case replica.Unsent:
				v.Unsent++
			}
		}
	}
	for _, t := range order {
		v.Tenancies = append(v.Tenancies, *t)
	}
}

// log returns the log of the round.
func (r *round) log(tenancies []tenancy, told map[string]*trial.Told) *trial.Log {
	l := &trial.Log{Effects: r.effects}
	for _, t := range tenancies {
		l.Holds = append(l.Holds, trial.Hold{
			Lock: replica.LockName, Owner: t.Process, Token: t.Token, Begin: t.To, Last: t.Last, Killed: t.ended == 0,
		})
	}
	for i := range l.Effects {
		e := &l.Effects[i]
		e.Told = told[e.ID]
		if !r.blind(e.Owner, e.Checked) {
			continue
		}
		for _, h := range l.Holds { // its check is one that no clock could stop
			if h.Token == e.Token && h.Owner == e.Owner {
				e.Checked = h.Last
			}
		}
	}
	return l
}

// blind says that nothing that the process could ask showed the pause that it
// had just been through.
func (r *round) blind(process string, at int64) bool {
	return slices.ContainsFunc(r.events, func(e event) bool {
		return e.On == process && e.Blind[0] <= at && at < e.Blind[1]
	})
}

// measure counts what the resource saw, and how close tenancies came to each
// other.
func (r *round) measure(v *verdict) {
	v.Late = v.Log.Late()
	v.LatePast = len(v.Late)
	for _, e := range v.Late {
		if r.blind(e.Owner, e.Came) {
			v.LateGap++
		}
		if e.Entered > 0 {
			v.LateIn++
		}
	}
	for _, e := range v.Log.Effects {
		if e.Refused {
			v.Refused++
		}
	}
	v.counts.Tenancies = len(v.Tenancies)
	v.Margin = -1
	for i := range v.Tenancies {
		t := &v.Tenancies[i]
		t.Lost = t.ended == 0 || lossy(t.End)
		if i == 0 {
			continue
		}
		before := v.Tenancies[i-1]
		gap := time.Duration(t.From - before.Last)
		v.Leaderless = max(v.Leaderless, gap)
		if before.Lost {
			v.Takeovers++
			if v.Margin < 0 || gap < v.Margin {
				v.Margin = gap
			}
		}
	}
}

// life returns the seat of a process, whose name begins with that.
func life(process string) string {
	seat, _, _ := strings.Cut(process, ".")
	return seat
}

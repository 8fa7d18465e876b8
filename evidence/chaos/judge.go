// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenurelock/tenure/evidence/chaos/replica"
)

// judge reads what the replicas have said.
func (r *round) judge() *verdict {
	v := &verdict{counts: counts{Faults: map[kind]int{}, Proved: map[kind]int{}}}
	for _, p := range r.problems {
		v.sin(unexpected, violation{}, "%s", p)
	}
	for _, id := range r.registers.twice {
		v.sin(unexpected, violation{}, "operation %s came twice", id)
	}
	var passes []pass
	var history []porcupine.Operation
	for _, s := range r.seats {
		for _, p := range s.lives {
			v.Lives++
			ps, ops := r.readLife(v, s, p)
			passes, history = append(passes, ps...), append(history, ops...)
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
	r.judgeTokens(v)
	r.judgePasses(v, passes)
	r.judgeClocks(v)
	r.measure(v)
	v.Lost = r.lost

	switch result := checkFenced(history); result {
	case porcupine.Illegal:
		v.sin(unlinear, violation{From: r.began, To: r.ended, Seat: -1}, "no order explains the %d operations on the fenced register", len(history))
	case porcupine.Unknown:
		v.sin(undecidable, violation{}, "the search for an order of %d operations took too long", len(history))
	}
	if r.recovery < 0 || r.recovery > r.bound {
		v.sin(noLeader, violation{From: r.healed, To: r.ended, Seat: -1},
			"time until somebody led after the last kill: %s; at most %s are allowed", shown(r.recovery), shown(r.bound))
	}
	return v
}

// readLife takes the tenancies of a process, its checks that passed, and its
// operations on the fenced register.
func (r *round) readLife(v *verdict, s *seat, p *process) (passes []pass, history []porcupine.Operation) {
	if text := p.outcome(); text != "" {
		v.sin(unexpected, violation{}, "%s", text)
	}
	terms := map[uint64]*tenancy{}
	open := map[string]replica.Line{}
	var order []uint64
	passed := func(l replica.Line) {
		passes = append(passes, pass{l.Token, p.name, s.index, l.From, l.To})
		if t := terms[l.Token]; t != nil && l.From > t.Last {
			t.Last, t.LastTo = l.From, l.To
		}
	}
	for _, l := range p.lines {
		switch l.Kind {
		case replica.Ready:
			r.judgePlace(v, p, l)
		case replica.Trouble:
			v.sin(unexpected, violation{From: l.At, To: l.At, Seat: s.index}, "%s says: %s", p.name, l.Text)
		case replica.Blank:
			v.Blanks++
		case replica.Granted:
			if terms[l.Token] != nil {
				v.sin(tokens, violation{From: l.At, To: l.At, Seat: s.index}, "token %d was granted to %s twice", l.Token, p.name)
			}
			terms[l.Token] = &tenancy{Token: l.Token, Process: p.name, Seat: s.index, From: l.From, To: l.To}
			order = append(order, l.Token)
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
			open[l.Op.ID] = l
		case replica.End:
			history = r.took(v, history, open[l.Op.ID], l.Op, l.At)
			delete(open, l.Op.ID)
		}
	}
	for _, begun := range open { // killed meanwhile
		lost := *begun.Op
		lost.Result = replica.Unknown
		history = r.took(v, history, begun, &lost, p.end)
	}
	for _, token := range order {
		v.Tenancies = append(v.Tenancies, *terms[token])
	}
	v.Checks += len(passes)
	return passes, history
}

// took takes an operation that has ended into the history, if it is one on the
// fenced register that has, or may have, happened.
func (r *round) took(v *verdict, history []porcupine.Operation, begun replica.Line, op *replica.Op, end int64) []porcupine.Operation {
	if op.Do == replica.Plain {
		v.Plain++
	} else {
		v.Fenced++
	}
	seen, came := r.registers.visits[op.ID]
	switch op.Result {
	case replica.Unsent:
		v.Unsent++
		return history
	case replica.Unknown:
		v.Unknown++
		// What its caller does not know, the register does: whether it let the
		// operation in, and until when.
		if !came || !seen.Ran {
			return history
		}
		if end = r.ended; seen.To > 0 {
			end = seen.To
		}
	}
	if op.Do == replica.Plain {
		return history
	}
	return append(history, porcupine.Operation{
		ClientId: 0, Call: begun.At, Return: end,
		Input:  asked{op.Do, begun.Token, begun.Op.Value},
		Output: told{op.Result, op.Value, op.Highest},
	})
}

// judgeTokens looks at the order of grants. The tenancies are in the order of
// their grants.
func (r *round) judgeTokens(v *verdict) {
	by := map[uint64]string{}
	for _, t := range v.Tenancies {
		if other, twice := by[t.Token]; twice && other != t.Process {
			v.sin(tokens, violation{From: t.From, To: t.To, Seat: t.Seat}, "token %d was granted to %s and to %s", t.Token, other, t.Process)
		}
		by[t.Token] = t.Process
	}
	if r.record.Token < r.highest {
		v.sin(tokens, violation{From: r.ended, To: r.ended, Seat: -1}, "the record has token %d in the end, but %d was granted", r.record.Token, r.highest)
	}
}

// judgePasses looks for checks that passed after another was granted the lock.
// A check that passed may have looked at the clock at any time between its begin
// and its end, and so may the first one of a tenancy: only what is so in any case
// counts.
func (r *round) judgePasses(v *verdict, passes []pass) {
	slices.SortFunc(passes, func(a, b pass) int { return cmp.Compare(a.from, b.from) })
	type pair struct {
		process string
		token   uint64
	}
	found := map[pair]int{} // in v.Violations
	rival := map[pair]tenancy{}
	next := 0
	var newest tenancy // with the highest token of all that were granted by then
	for _, p := range passes {
		for next < len(v.Tenancies) && v.Tenancies[next].To < p.from {
			if t := v.Tenancies[next]; t.Token > newest.Token {
				newest = t
			}
			next++
		}
		if newest.Token <= p.token {
			continue
		}
		if r.blind(p) {
			v.Blind++
			continue
		}
		key := pair{p.process, p.token}
		i, seen := found[key]
		if !seen {
			i = len(v.Violations)
			found[key] = i
			v.Overlaps++
			v.sin(overlap, violation{From: newest.To, Seat: p.seat}, "")
			rival[key] = newest
		}
		x := &v.Violations[i]
		x.To = p.from
		x.Text = fmt.Sprintf("a check of %s under token %d passed %v after %s was granted token %d",
			p.process, p.token, shown(time.Duration(x.To-x.From)), rival[key].Process, rival[key].Token)
	}
}

// blind says that nothing that the process could ask showed the pause that it
// had just been through.
func (r *round) blind(p pass) bool {
	return slices.ContainsFunc(r.events, func(e event) bool {
		return e.On == p.process && e.Blind[0] <= p.from && p.from < e.Blind[1]
	})
}

// late says that another had been granted the lock when an operation came.
func (v *verdict) late(seen visit) bool {
	for _, t := range v.Tenancies {
		if t.To < seen.From && t.Token > seen.Token {
			return true
		}
	}
	return false
}

// measure counts what the registers saw, and how close tenancies came to each
// other.
func (r *round) measure(v *verdict) {
	for id, seen := range r.registers.visits {
		late := v.late(seen)
		if late && r.blind(pass{process: owner(id), from: seen.From}) {
			v.LateGap++
		}
		switch {
		case seen.Refused:
			v.Refused++
		case late && seen.Ran && seen.Do == replica.Plain:
			v.LatePast++
		case late && seen.Ran:
			v.LateIn++
		}
	}
	v.counts.Tenancies = len(v.Tenancies)
	v.Margin = -1
	for i := range v.Tenancies {
		t := &v.Tenancies[i]
		t.Lost = t.ended == 0 || t.ended > 0 && lossy(t.End)
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

// owner returns the process that an operation is of: its id begins with that.
func owner(id string) string {
	name, _, _ := strings.Cut(id, "-")
	return name
}

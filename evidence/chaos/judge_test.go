// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenurelock/tenure/evidence/chaos/replica"
)

func TestJudgePasses(t *testing.T) {
	// Token 1 was granted at 10, token 2, to another process, from 100 to 110.
	grants := []tenancy{
		{Token: 1, Process: "a", From: 9, To: 10},
		{Token: 2, Process: "b", From: 100, To: 110, Seat: 1},
	}
	for _, test := range []struct {
		name            string
		pass            pass
		overlaps, blind int
	}{
		{"before", pass{1, "a", 0, 90, 91}, 0, 0},
		{"begun before, ended after", pass{1, "a", 0, 109, 200}, 0, 0},
		{"begun at the same time", pass{1, "a", 0, 110, 111}, 0, 0},
		{"begun after", pass{1, "a", 0, 111, 112}, 1, 0},
		{"begun after, where no clock showed the pause", pass{1, "a", 0, 150, 151}, 0, 1},
		{"begun when the clocks showed it", pass{1, "a", 0, 160, 161}, 1, 0},
		{"of the new holder", pass{2, "b", 1, 150, 151}, 0, 0},
		{"of a third one", pass{1, "c", 2, 150, 151}, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &round{events: []event{{On: "a", Blind: [2]int64{140, 160}}}}
			v := &verdict{Tenancies: grants}
			r.judgePasses(v, []pass{{2, "b", 1, 112, 113}, test.pass})
			if v.Overlaps != test.overlaps || v.Blind != test.blind || v.has(overlap) != (test.overlaps > 0) {
				t.Errorf("%d overlaps, %d blind, %v", v.Overlaps, v.Blind, v.Violations)
			}
		})
	}
}

func TestJudgeTokens(t *testing.T) {
	for _, test := range []struct {
		name   string
		grants []tenancy
		last   uint64
		sin    bool
	}{
		{"rising", []tenancy{{Token: 1, Process: "a"}, {Token: 2, Process: "b"}}, 2, false},
		{"one that nobody believed in", []tenancy{{Token: 1, Process: "a"}, {Token: 3, Process: "b"}}, 4, false},
		{"twice", []tenancy{{Token: 1, Process: "a"}, {Token: 1, Process: "b"}}, 1, true},
		{"the record has fallen", []tenancy{{Token: 1, Process: "a"}, {Token: 2, Process: "b"}}, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, v := &round{}, &verdict{Tenancies: test.grants}
			r.record.Token = test.last
			for _, g := range test.grants {
				r.highest = max(r.highest, g.Token)
			}
			r.judgeTokens(v)
			if v.has(tokens) != test.sin {
				t.Errorf("%v", v.Violations)
			}
		})
	}
}

func TestJudgeClocks(t *testing.T) {
	const d = time.Second
	before := replica.Reading{}
	after := func(mono, boot, wall, holder, contender time.Duration) replica.Reading {
		return replica.Reading{
			Change: 1, Mono: mono, Boot: boot, Wall: wall, Holder: holder, Contender: contender,
			RealMono: 2 * d, RealBoot: 2 * d, RealWall: 2 * d,
		}
	}
	for _, test := range []struct {
		name  string
		shift replica.Shift
		saw   replica.Reading
		sin   bool
	}{
		{"suspend", replica.Shift{MonoBack: d}, after(d, 2*d, 2*d, 2*d, 2*d), false},
		{"suspend that did not reach the clock", replica.Shift{MonoBack: d}, after(2*d, 2*d, 2*d, 2*d, 2*d), true},
		{"suspend that the holder did not count", replica.Shift{MonoBack: d}, after(d, 2*d, 2*d, d, 2*d), true},
		{"suspend that the contender did not count", replica.Shift{MonoBack: d}, after(d, 2*d, 2*d, 2*d, d), true},
		{"paused machine", replica.Shift{MonoBack: d, BootBack: d}, after(d, d, 2*d, 2*d, d), false},
		{"paused machine that the contender counted", replica.Shift{MonoBack: d, BootBack: d}, after(d, d, 2*d, 2*d, 2*d), true},
		{"wall clock forward", replica.Shift{WallOn: d}, after(2*d, 2*d, 3*d, 3*d, 2*d), false},
		{"wall clock forward, not counted", replica.Shift{WallOn: d}, after(2*d, 2*d, 3*d, 2*d, 2*d), true},
		{"wall clock back", replica.Shift{WallOn: -d}, after(2*d, 2*d, d, 2*d, 2*d), false},
		{"wall clock back, counted", replica.Shift{WallOn: -d}, after(2*d, 2*d, d, d, 2*d), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &process{name: "a", lines: []replica.Line{{Clocks: &before}, {Clocks: &test.saw}}}
			r := &round{
				seats:  []*seat{{lives: []*process{p}}},
				events: []event{{Kind: suspend, On: "a", Change: 1, Shift: test.shift}},
			}
			v := &verdict{counts: counts{Proved: map[kind]int{}}}
			r.judgeClocks(v)
			if v.has(hook) != test.sin || (v.Proved[suspend] == 1) == test.sin {
				t.Errorf("proved %v, %v", v.Proved, v.Violations)
			}
		})
	}
}

func TestJudgePlace(t *testing.T) {
	const now = 1e12
	for _, test := range []struct {
		name  string
		where *timespace
		ready replica.Line
		sin   bool
	}{
		{"nowhere", nil, replica.Line{At: now, RawBoot: now, RawMono: now}, false},
		{"in a namespace", &timespace{Monotonic: 70, Boot: 50}, replica.Line{At: now, RawBoot: now + 50e9, RawMono: now + 70e9}, false},
		{"not in the namespace", &timespace{Monotonic: 70, Boot: 50}, replica.Line{At: now, RawBoot: now, RawMono: now}, true},
		{"with the wrong time", &timespace{Monotonic: 70, Boot: 50}, replica.Line{At: now + 50e9, RawBoot: now + 50e9, RawMono: now + 70e9}, true},
		{"before its start", nil, replica.Line{At: now - 10, RawBoot: now, RawMono: now}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := &verdict{}
			(&round{}).judgePlace(v, &process{where: test.where, began: now - 1, end: now + 1e9}, test.ready)
			if v.has(hook) != test.sin {
				t.Errorf("%v", v.Violations)
			}
		})
	}
}

func TestFencedModel(t *testing.T) {
	const write, read = replica.Write, replica.Read
	type op struct {
		do       replica.Do
		token    uint64
		value    string // written, or read
		result   replica.Result
		highest  uint64
		from, to int64
	}
	first, second := op{write, 1, "x", replica.Done, 0, 1, 2}, op{write, 2, "y", replica.Done, 0, 3, 4}
	for _, test := range []struct {
		name string
		ops  []op
		good bool
	}{
		{"in order", []op{first, second, {read, 2, "y", replica.Done, 0, 5, 6}}, true},
		{"a stale write is refused", []op{first, second, {write, 1, "z", replica.Refused, 2, 5, 6}}, true},
		{"a stale write is let in", []op{first, second, {write, 1, "z", replica.Done, 0, 5, 6}}, false},
		{"a stale read is let in", []op{first, second, {read, 1, "y", replica.Done, 0, 5, 6}}, false},
		{"a good write is refused", []op{first, {write, 1, "z", replica.Refused, 2, 3, 4}}, false},
		{"refused by a token that was never there", []op{first, second, {write, 1, "z", replica.Refused, 3, 5, 6}}, false},
		{"a write is lost", []op{first, second, {read, 2, "x", replica.Done, 0, 5, 6}}, false},
		{"a write under way", []op{first, {write, 1, "z", replica.Unknown, 0, 3, 9}, {read, 1, "x", replica.Done, 0, 5, 6}}, true},
		{"a write of unknown outcome is seen", []op{first, {write, 1, "z", replica.Unknown, 0, 3, 9}, {read, 1, "z", replica.Done, 0, 5, 6}}, true},
		{"a stale write of unknown outcome is seen", []op{first, second, {write, 1, "z", replica.Unknown, 0, 5, 9}, {read, 2, "z", replica.Done, 0, 10, 11}}, false},
		{"a read raises the fence", []op{first, {read, 2, "x", replica.Done, 0, 3, 4}, {write, 1, "z", replica.Done, 0, 5, 6}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var history []porcupine.Operation
			for _, o := range test.ops {
				history = append(history, porcupine.Operation{
					Input: asked{o.do, o.token, o.value}, Output: told{o.result, o.value, o.highest}, Call: o.from, Return: o.to,
				})
			}
			if got := checkFenced(history); (got == porcupine.Ok) != test.good {
				t.Errorf("%v", got)
			}
		})
	}
}

// What a caller does not know of an operation, the register does.
func TestTook(t *testing.T) {
	r := &round{ended: 99, registers: &registers{visits: map[string]visit{
		"in": {Ran: true, To: 7}, "under way": {Ran: true}, "out": {Refused: true, To: 7},
	}}}
	for _, test := range []struct {
		id     string
		do     replica.Do
		result replica.Result
		end    int64 // 0 if it is not in the history
	}{
		{"in", replica.Write, replica.Done, 50},
		{"in", replica.Write, replica.Unknown, 7},
		{"under way", replica.Write, replica.Unknown, 99},
		{"out", replica.Write, replica.Unknown, 0},
		{"out", replica.Write, replica.Refused, 50},
		{"never came", replica.Write, replica.Unknown, 0},
		{"never came", replica.Write, replica.Unsent, 0},
		{"in", replica.Plain, replica.Done, 0},
	} {
		begun := replica.Line{Op: &replica.Op{ID: test.id, Do: test.do}}
		history := r.took(&verdict{}, nil, begun, &replica.Op{ID: test.id, Do: test.do, Result: test.result}, 50)
		if got := slices.Collect(func(yield func(int64) bool) {
			for _, o := range history {
				if !yield(o.Return) {
					return
				}
			}
		}); test.end == 0 && len(got) > 0 || test.end > 0 && !slices.Equal(got, []int64{test.end}) {
			t.Errorf("%s, %s, %s: ends at %v, want %d", test.id, test.do, test.result, got, test.end)
		}
	}
}

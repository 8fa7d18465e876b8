// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/service"
)

// The log of a round has the checks that clocks could stop, and the answers to callers.
func TestJudge(t *testing.T) {
	line := func(kind replica.Kind, token uint64, from, to int64) replica.Line {
		return replica.Line{Kind: kind, Hold: trial.Hold{Token: token}, From: from, To: to, At: to}
	}
	for _, test := range []struct {
		name            string
		pass            replica.Line // of a, which has token 1, after b was granted token 2 from 100 to 110
		refused         bool
		overlaps, blind int
		sin             trial.Sin
	}{
		{"before", line(replica.Held, 1, 90, 91), false, 0, 0, ""},
		{"begun before, ended after", line(replica.Held, 1, 109, 200), false, 0, 0, ""},
		{"begun at the same time", line(replica.Held, 1, 110, 111), false, 0, 0, ""},
		{"begun after", line(replica.Held, 1, 111, 112), false, 1, 0, trial.Overlap},
		{"begun after, where no clock showed the pause", line(replica.Held, 1, 150, 151), false, 0, 1, ""},
		{"begun when the clocks showed it", line(replica.Held, 1, 160, 161), false, 1, 0, trial.Overlap},
		{"wrong answer", line(replica.Held, 1, 90, 91), true, 0, 0, trial.Fence},
		{"granted again", line(replica.Granted, 1, 90, 91), false, 0, 0, trial.Tokens},
	} {
		name := func(owner string, lines ...replica.Line) *process {
			for i := range lines {
				lines[i].Owner, lines[i].Lock = owner, replica.LockName
			}
			return &process{name: owner, lines: lines}
		}
		begin, end := line(replica.Begin, 1, 20, 21), line(replica.End, 1, 0, 30)
		end.ID, end.Told = "a.1-1", &trial.Told{Refused: test.refused, Highest: 2}
		a := name("a.1", line(replica.Granted, 1, 9, 10), begin, end, test.pass)
		b := name("b.1", line(replica.Granted, 2, 100, 110), line(replica.Held, 2, 112, 113))
		r := &round{
			seats:  []*seat{{name: "a", lives: []*process{a}}, {name: "b", index: 1, lives: []*process{b}}},
			events: []event{{On: "a.1", Blind: [2]int64{140, 160}}},
			effects: []trial.Effect{{
				ID: "a.1-1", Lock: replica.LockName, Owner: "a.1", Token: 1, Checked: 20,
				Came: 22, Entered: 23, Left: 24,
			}, { // allowed where no clock showed the pause
				Lock: replica.LockName, Owner: "a.1", Token: 1, Checked: 150, Came: 152, Entered: 153, Left: 154,
			}},
		}
		w := &replicas{round: r, highest: map[string]uint64{replica.LockName: 2}, record: driver.Record{Token: 2}}
		r.work = w
		v := r.judge(1)
		if v.Counts.Overlaps != test.overlaps || v.Counts.Blind != test.blind || v.Counts.Operations != 1 || test.sin != "" &&
			!v.has(test.sin) || test.sin == "" && len(v.violations) > 0 {
			t.Errorf("%s: %d overlaps, %d blind, %v", test.name, v.Counts.Overlaps, v.Counts.Blind, v.violations)
		}
		w.highest[replica.LockName] = 3
		if !r.judge(1).has(trial.Tokens) {
			t.Errorf("%s: the record has a lower token than was granted", test.name)
		}
	}
}

func TestJudgeClocks(t *testing.T) {
	const d = time.Second
	before := replica.Reading{}
	after := func(mono, boot, wall, holder, contender time.Duration) replica.Reading {
		return replica.Reading{
			Change: 1, Mono: mono, Boot: boot, Wall: wall, Holder: holder, Contender: contender, RealMono: 2 * d,
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
		{
			"paused machine that the contender counted",
			replica.Shift{MonoBack: d, BootBack: d},
			after(d, d, 2*d, 2*d, 2*d), true,
		},
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
			v := newVerdict(nil)
			(&replicas{round: r}).judgeClocks(v)
			if v.has(hook) != test.sin || (v.Counts.Proved[suspend] == 1) == test.sin {
				t.Errorf("proved %v, %v", v.Counts.Proved, v.violations)
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
		{
			"in a namespace", &timespace{Monotonic: 70, Boot: 50},
			replica.Line{At: now, RawBoot: now + 50e9, RawMono: now + 70e9},
			false,
		},
		{
			"not in the namespace", &timespace{Monotonic: 70, Boot: 50},
			replica.Line{At: now, RawBoot: now, RawMono: now},
			true,
		},
		{
			"with the wrong time", &timespace{Monotonic: 70, Boot: 50},
			replica.Line{At: now + 50e9, RawBoot: now + 50e9, RawMono: now + 70e9},
			true,
		},
		{"before its start", nil, replica.Line{At: now - 10, RawBoot: now, RawMono: now}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := &verdict{}
			(&replicas{round: &round{}}).judgePlace(v, &process{where: test.where, began: now - 1, end: now + 1e9}, test.ready)
			if v.has(hook) != test.sin {
				t.Errorf("%v", v.violations)
			}
		})
	}
}

// What a reader has read is torn, but where no clock showed the pause.
func TestJudgeTorn(t *testing.T) {
	p := &process{name: "r1.1", lines: []replica.Line{{Kind: replica.Torn, From: 10, At: 20, Text: "half"}}}
	r := &round{seats: []*seat{{name: "r1", lives: []*process{p}}}}
	w := &replicas{round: r, ends: []string{"whole", "written"}, came: map[string]int{"whole": 1, "written": 1}}
	r.work = w
	if v := r.judge(1); !v.has(torn) || len(v.violations) != 1 {
		t.Errorf("%v", v.violations)
	}
	r.events = []event{{Kind: lateVM, On: "r1.1", Blind: [2]int64{15, 18}}}
	if v := r.judge(1); len(v.violations) > 0 {
		t.Errorf("in a gap: %v", v.violations)
	}
	w.came["whole"] = 0
	if v := r.judge(1); !v.has(unexpected) {
		t.Errorf("nothing was read: %v", v.violations)
	}
}

// The holds of clients are what they have written, their effects, and the history of the
// service.
func TestJudgeClients(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	of := func(lock string, terms ...service.Tenure) map[string][]service.Tenure {
		return map[string][]service.Tenure{lock: terms}
	}
	plain := func(second, first service.Tenure) map[string][]service.Tenure { return of(serviceLock, second, first) }
	gate := rwlock.GateName(serviceLock)
	const locks, writes = 0, 2 // the first seat writes, and the second reads
	for _, c := range []struct {
		name          string
		seed          uint64
		first, second uint64
		terms         map[string][]service.Tenure
		want          trial.Sin
	}{
		{"as it is", locks, 1, 2, plain(service.Tenure{Token: 2, Owner: "java-2.1"}, service.Tenure{Token: 1, Owner: "java-1.1"}), ""},
		{"a crash hides the owner", locks, 1, 2, plain(service.Tenure{Token: 2, Owner: "java-2.1"}, service.Tenure{Token: 1}), ""},
		{"a hold without a tenure", locks, 1, 2, of(serviceLock, service.Tenure{Token: 2, Owner: "java-2.1"}), history},
		{"a tenure of another", locks, 1, 2, plain(service.Tenure{Token: 2, Owner: "c"}, service.Tenure{Token: 1}), history},
		{"a gap", locks, 1, 2, plain(service.Tenure{Token: 2, Owner: "java-2.1"}, service.Tenure{Token: 1}), noLeader},
		{"a writer and a reader", writes, 2, 3, of(gate, service.Tenure{Token: 1, Owner: "java-1.1"}), ""},
		{"a writer without a tenure", writes, 4, 5, of(gate, service.Tenure{Token: 1, Owner: "java-1.1"}), history},
		{"a reader with the writer's token", writes, 2, 2, of(gate, service.Tenure{Token: 1, Owner: "java-1.1"}), trial.Tokens},
	} {
		log := fmt.Sprintf("begin java-1.1 10 %d %[3]s\nbegin java-2.1 50 %[2]d %[3]s\nend java-2.1 60\n", c.first, c.second, serviceLock)
		if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		holds, err := (&clients{log: file}).written()
		if err != nil {
			t.Fatal(err)
		}
		killed := &process{name: "java-1.1", killed: true}
		java := &peers.Program{Kind: service.Java}
		r := &round{
			plan: plan{Lease: time.Second, Seed: c.seed}, calmed: 100,
			seats: []*seat{{name: "java-1", lives: []*process{killed}}, {name: "java-2", index: 1}},
			effects: []trial.Effect{
				{Lock: serviceLock, Owner: "java-1.1", Token: c.first, Checked: 40, Came: 41, Entered: 42, Left: 43},
				{Lock: serviceLock, Owner: "java-2.1", Token: c.second, Checked: 51, Came: 52, Entered: 53, Left: 54},
			},
		}
		if c.want == noLeader {
			r.calmed += int64(9 * time.Second)
		}
		r.work = &clients{
			round: r, holds: holds, terms: c.terms, service: &lockService{}, programs: []*peers.Program{java, java},
		}
		v := r.judge(1)
		if c.want == "" && len(v.violations) > 0 || c.want != "" && (len(v.violations) != 1 || !v.has(c.want)) ||
			v.Counts.Of["java"] != 2 {
			t.Errorf("%s: %v, want %q", c.name, v.violations, c.want)
		}
		killed.killed = false
		if !r.judge(1).has(unexpected) {
			t.Errorf("%s: a live process did not report the end of its hold", c.name)
		}
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// goodLog makes the log of a run in which nothing was wrong: holders of a few locks, one after
// the other, some of them killed, and their effects, of which some are late.
func goodLog(random *rand.Rand) *Log {
	l := &Log{}
	for lock := range 1 + random.IntN(3) {
		name := fmt.Sprint("lock-", lock)
		type late struct {
			Effect
			at int64
		}
		var waiting []late
		now, highest, value := int64(1000), uint64(0), ""
		enter := func(e Effect, at int64) {
			e.Came, e.Left = at, at+4
			if e.Token < highest {
				e.Refused, e.Told = true, &Told{Refused: true, Highest: highest}
			} else {
				highest, e.Entered = e.Token, at+2
				if e.Read {
					e.Value = value
				}
				value = e.Value
				e.Told = &Told{Value: e.Value}
			}
			if random.IntN(5) == 0 {
				e.Told = nil // its caller is gone
			}
			l.Effects = append(l.Effects, e)
		}
		token := uint64(0)
		for range 4 + random.IntN(6) {
			token += 1 + random.Uint64N(2) // some grants nobody learns of
			h := Hold{
				Lock: name, Owner: fmt.Sprint("p", random.IntN(4)), Token: token, Begin: now, Last: now,
				Killed: random.IntN(4) == 0,
			}
			for n := range 2 + random.IntN(8) {
				now += 10 + random.Int64N(50)
				h.Last = now
				e := Effect{
					ID: fmt.Sprint(name, "-", token, "-", n), Lock: name, Owner: h.Owner, Token: token, Checked: now,
					Read: random.IntN(3) == 0, Value: fmt.Sprint(token, "/", n),
				}
				if e.Read {
					e.Value = ""
				}
				if random.IntN(9) == 0 {
					e.Blind, e.Checked = true, e.Checked+1e9
				}
				if random.IntN(6) == 0 {
					waiting = append(waiting, late{e, now + random.Int64N(2000)})
					continue
				}
				now += 10
				enter(e, now)
			}
			l.Holds = append(l.Holds, h)
			now += 20 + random.Int64N(500)
			waiting = slices.DeleteFunc(waiting, func(w late) bool {
				if w.at < now {
					now += 10
					enter(w.Effect, now)
					return true
				}
				return false
			})
			now += 10
		}
	}
	return l
}

// doctored are ways to spoil a log: two holds of one lock that follow each other, or an effect of
// a kind. Each says what the judge must find; it is in no log that has no place for it.
var doctored = []struct {
	name  string
	want  Sin
	holds func(a, b *Hold)
	of    func(*Effect) bool
	spoil func(*Effect)
}{
	{name: "a check passes after the next grant", want: Overlap, holds: func(a, b *Hold) { a.Last = b.Begin + 1 }},
	{name: "a grant comes before the last check", want: Overlap, holds: func(a, b *Hold) { b.Begin = a.Last - 1 }},
	{name: "a token is granted twice", want: Tokens, holds: func(a, b *Hold) { b.Token = a.Token }},
	{name: "tokens fall", want: Overlap, holds: func(a, b *Hold) { a.Token, b.Token = b.Token, a.Token }},

	{"an effect after its hold", Outside, nil, seeing, func(e *Effect) { e.Checked += 1e9 }},
	{"an effect before its hold", Outside, nil, seeing, func(e *Effect) { e.Checked = 0 }},
	{"an effect of another's token", Outside, nil, all, func(e *Effect) { e.Owner += "x" }},
	{"the fence lets a late one in", Fence, nil, refused, func(e *Effect) {
		e.Refused, e.Entered, e.Told = false, e.Came+1, nil
	}},
	{"the fence refuses a good one", Fence, nil, writes, func(e *Effect) {
		e.Refused, e.Entered, e.Told = true, 0, nil
	}},
	{"a refusal for a token that was never there", Fence, nil, refused, func(e *Effect) {
		e.Told = &Told{Refused: true, Highest: 1000}
	}},
	{"a caller is told that a refused one is done", Fence, nil, refused, func(e *Effect) { e.Told = &Told{} }},
	{"a caller is told that a good one is refused", Fence, nil, entered, func(e *Effect) {
		e.Told = &Told{Refused: true, Highest: e.Token + 1}
	}},
	{"a write is lost", Fence, nil, reads, func(e *Effect) { e.Value += "old" }},
	{"a caller reads what is not there", Fence, nil, reads, func(e *Effect) { e.Told = &Told{Value: e.Value + "old"} }},
}

func seeing(e *Effect) bool  { return !e.Blind }
func all(*Effect) bool       { return true }
func refused(e *Effect) bool { return e.Refused }
func entered(e *Effect) bool { return e.Entered > 0 }
func writes(e *Effect) bool  { return e.Entered > 0 && !e.Read }
func reads(e *Effect) bool   { return e.Entered > 0 && e.Read }

// spoil does what a doctor does somewhere, and says whether there was a place for it.
func (l *Log) spoil(n int, random *rand.Rand) bool {
	d := doctored[n]
	if d.holds == nil {
		for _, i := range random.Perm(len(l.Effects)) {
			if e := &l.Effects[i]; d.of(e) {
				d.spoil(e)
				return true
			}
		}
		return false
	}
	for _, i := range random.Perm(len(l.Holds) - 1) {
		if a, b := &l.Holds[i], &l.Holds[i+1]; a.Lock == b.Lock && a.Owner != b.Owner && a.Last > a.Begin {
			d.holds(a, b)
			return true
		}
	}
	return false
}

// TestJudge: the judge finds nothing in a good log, and what was done to a doctored one.
func TestJudge(t *testing.T) {
	spoiled := map[string]int{}
	for seed := range uint64(100) {
		if found := goodLog(rand.New(rand.NewPCG(seed, 0))).Judge(); len(found) > 0 {
			t.Fatalf("seed %d: in a good log: %v", seed, found)
		}
		for n, d := range doctored {
			random := rand.New(rand.NewPCG(seed, 0))
			l := goodLog(random)
			if !l.spoil(n, random) {
				continue
			}
			spoiled[d.name]++
			if found := l.Judge(); !slices.ContainsFunc(found, func(f Finding) bool { return f.Sin == d.want }) {
				t.Errorf("seed %d: %s: %v, want %s", seed, d.name, found, d.want)
			}
		}
	}
	for _, d := range doctored {
		if spoiled[d.name] < 20 {
			t.Errorf("%s: in %d logs alone", d.name, spoiled[d.name])
		}
	}
}

// TestBounds are the cases at the edges, by hand.
func TestBounds(t *testing.T) {
	hold := func(owner string, token uint64, begin, last int64) Hold {
		return Hold{Lock: "l", Owner: owner, Token: token, Begin: begin, Last: last}
	}
	reader := func(h Hold) Hold { h.Shared = true; return h }
	for _, c := range []struct {
		name  string
		holds []Hold
		want  string
	}{
		{"one after the other", []Hold{hold("a", 1, 10, 20), hold("b", 2, 20, 30)}, ""},
		{
			"two at once",
			[]Hold{hold("b", 2, 20, 30), hold("a", 1, 10, 21)},
			"a check of a of l under token 1 passed 1ns after b",
		},
		{
			"another in between",
			[]Hold{hold("a", 1, 10, 50), hold("b", 2, 60, 70), hold("c", 3, 65, 90)},
			"a check of b of l under token 2",
		},
		{
			"a token before",
			[]Hold{hold("a", 1, 10, 90), hold("b", 2, 11, 12), hold("c", 3, 80, 95)},
			"a check of a of l under token 1",
		},
		{"a grant that is told late", []Hold{hold("a", 2, 20, 30), hold("b", 1, 21, 19)}, ""},
		{"another lock", []Hold{hold("a", 1, 10, 90), {Lock: "m", Owner: "b", Token: 2, Begin: 20, Last: 30}}, ""},
		{
			"readers at once",
			[]Hold{reader(hold("a", 2, 10, 90)), reader(hold("b", 2, 20, 30)), hold("c", 3, 91, 92)},
			"",
		},
		{"a writer beside a reader", []Hold{
			reader(hold("a", 2, 10, 90)), reader(hold("b", 2, 20, 30)),
			hold("c", 3, 50, 92),
		}, "a check of a of l under token 2"},
		{"a reader beside a writer", []Hold{
			hold("a", 1, 10, 21), reader(hold("b", 2, 20, 30)),
			reader(hold("c", 2, 22, 30)),
		}, "a check of a of l under token 1"},
	} {
		l := &Log{Holds: c.holds}
		var text []string
		for _, f := range l.Judge() {
			text = append(text, f.Text)
		}
		if got := strings.Join(text, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	l := &Log{Holds: []Hold{hold("a", 1, 10, 20), hold("b", 2, 200, 240)}}
	if d, before, after := l.Gap(0, 300); d != 180 || before != "the end of token 1 of a" || after != "token 2 of b" {
		t.Errorf("the longest gap is %v, from %s to %s", d, before, after)
	}
	if d, _, after := l.Gap(0, 900); d != 660 || after != "the end" {
		t.Errorf("the longest gap is %v, to %s", d, after)
	}
}

// TestOccasions: the judge finds nothing in the log of jobs that ran as their rules have it, and
// what was done to a doctored one.
func TestOccasions(t *testing.T) {
	for want, spoil := range map[string]func(*Log){
		"": func(*Log) {},
		"b ran occasion 1 of in-order under token 2 after the run of a": func(l *Log) { l.Holds[1].Occasion = 1 },
		"b ran occasion 2 of in-order under token 2 after the later one": func(l *Log) {
			l.Holds[0].Occasion = 5
		},
		"b ran occasion 1 of redo under token 2 after the run of a":    func(l *Log) { l.Holds[2].Finished = true },
		"a ran occasion 2 of every under token 1 only 99ns after that": func(l *Log) { l.Holds[5].Begin-- },
		"a ran occasion 2 of every under token 1 after the run of a":   func(l *Log) { l.Holds[4].Occasion = 2 },
		"b acted twice for occasion 2 of in-order":                     func(l *Log) { l.Effects = append(l.Effects, l.Effects[1]) },
		"an effect of b under token 2 of in-order was allowed at 95": func(l *Log) {
			l.Effects[1].Checked = 95 // when the next one had begun
		},
		"a check of b of in-order under token 2 passed 5ns after a": func(l *Log) {
			l.Holds[1].Last, l.Effects[1].Checked = 95, 95
		},
		"c was told of occasion 7 of redo": func(l *Log) { l.Answers[0].Occasion = 7 },
		"c was told of occasion 1 of redo": func(l *Log) { l.Answers[0].Ended = false },
	} {
		run := func(rule Rule, owner string, token uint64, occasion, begin int64) Hold {
			return Hold{
				Lock: string(rule), Owner: owner, Token: token, Begin: begin, Last: begin + 10, Rule: rule, Occasion: occasion,
			}
		}
		l := &Log{
			Holds: []Hold{
				run(InOrder, "a", 1, 1, 10), run(InOrder, "b", 2, 2, 50), // a had not finished
				run(Redo, "a", 1, 1, 10), run(Redo, "b", 2, 1, 50),
				run(Every, "a", 1, 1, 10), run(Every, "a", 1, 2, 110), run(InOrder, "a", 3, 4, 90),
			},
			Answers: []Answer{{Lock: "redo", Owner: "c", Occasion: 1, Token: 2, Ended: true}},
			Apart:   100,
		}
		l.Holds[3].Finished = true
		for _, h := range l.Holds {
			l.Effects = append(l.Effects, Effect{
				Lock: h.Lock, Owner: h.Owner, Token: h.Token, Occasion: h.Occasion, Checked: h.Begin + 1, Came: h.Begin + 2,
				Entered: h.Begin + 3, Left: h.Begin + 4,
			})
		}
		spoil(l)
		if found := l.Judge(); want == "" && len(found) > 0 ||
			want != "" && !slices.ContainsFunc(found, func(f Finding) bool { return strings.Contains(f.Text, want) }) {
			t.Errorf("%v; want %q", found, want)
		}
	}
}

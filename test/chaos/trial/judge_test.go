// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"slices"
	"strings"
	"testing"
)

// goodLog makes the log of a run in which nothing was wrong: holders of a lock, one after the
// other, one of them killed, and a reader; and their effects, some late.
func goodLog() *Log {
	l := &Log{Holds: []Hold{
		{Lock: "l", Owner: "a", Token: 1, Begin: 100, Last: 190, Killed: true},
		{Lock: "l", Owner: "b", Token: 2, Begin: 200, Last: 290},
		{Lock: "l", Owner: "a", Token: 4, Begin: 300, Last: 390}, // no process learnt of token 3
		{Lock: "l", Owner: "r", Token: 5, Shared: true, Begin: 400, Last: 490},
		{Lock: "l", Owner: "r", Token: 5, Shared: true, Begin: 500, Last: 590}, // once more after the same writer
		{Lock: "m", Owner: "c", Token: 1, Begin: 100, Last: 990},
	}}
	for _, e := range []Effect{
		{Owner: "a", Token: 1, Checked: 110, Entered: 115, Value: "one"},
		{Owner: "a", Token: 1, Checked: 120, Entered: 125, Read: true, Value: "one"},
		{Owner: "b", Token: 2, Checked: 210, Entered: 215, Value: "two", Told: &Told{}},
		{
			Owner: "a", Token: 1, Checked: 130, Came: 220, Refused: true, Read: true, Value: "two",
			Told: &Told{Refused: true, Highest: 2},
		},
		{Owner: "b", Token: 2, Checked: 230, Entered: 235, Read: true, Value: "two", Told: &Told{Value: "two"}},
		{Owner: "b", Token: 2, Checked: 310, Entered: 315, Blind: true, Value: "blind"},
		{Owner: "a", Token: 4, Checked: 320, Entered: 325, Read: true, Value: "blind"},
		{Owner: "r", Token: 5, Checked: 410, Entered: 415, Read: true, Value: "blind"},
		{Owner: "r", Token: 5, Checked: 510, Entered: 515, Read: true, Value: "blind"},
	} {
		e.Lock, e.Came = "l", max(e.Came, e.Checked+1)
		e.Left = max(e.Came, e.Entered) + 1
		l.Effects = append(l.Effects, e)
	}
	return l
}

// doctored are ways to spoil a log: the first two holds, or an effect of a kind. Each says what the
// judge must find.
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
	{"the fence refuses a good one", Fence, nil, entered, func(e *Effect) {
		e.Refused, e.Entered, e.Told = true, 0, nil
	}},
	{"a refusal for a token that was never there", Fence, nil, refused, func(e *Effect) {
		e.Told = &Told{Refused: true, Highest: 1000}
	}},
	{"a refused effect is answered as done", Fence, nil, refused, func(e *Effect) { e.Told = &Told{Highest: 2} }},
	{"a good effect is answered as refused", Fence, nil, entered, func(e *Effect) {
		e.Told = &Told{Refused: true, Highest: e.Token + 1}
	}},
	{"a write is lost", Fence, nil, reads, func(e *Effect) { e.Value += "old" }},
	{"a caller reads what is not there", Fence, nil, reads, func(e *Effect) { e.Told = &Told{Value: e.Value + "old"} }},
}

func seeing(e *Effect) bool  { return !e.Blind }
func all(*Effect) bool       { return true }
func refused(e *Effect) bool { return e.Refused }
func entered(e *Effect) bool { return e.Entered > 0 }
func reads(e *Effect) bool   { return e.Entered > 0 && e.Read }

// TestJudge: the judge finds nothing in a good log, and what was done to a doctored one, whichever
// effect that was.
func TestJudge(t *testing.T) {
	if found := goodLog().Judge(); len(found) > 0 {
		t.Fatalf("in a good log: %v", found)
	}
	for _, d := range doctored {
		spoiled := 0
		for n := range goodLog().Effects {
			l := goodLog()
			switch e := &l.Effects[n]; {
			case d.holds != nil:
				d.holds(&l.Holds[0], &l.Holds[1])
			case d.of(e):
				d.spoil(e)
			default:
				continue
			}
			spoiled++
			if found := l.Judge(); !slices.ContainsFunc(found, func(f Finding) bool { return f.Sin == d.want }) {
				t.Errorf("%s, effect %d: %v, want %s", d.name, n, found, d.want)
			}
		}
		if spoiled == 0 {
			t.Errorf("%s: in no log", d.name)
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
		{"a grant that is reported late", []Hold{hold("a", 2, 20, 30), hold("b", 1, 21, 19)}, ""},
		{"another lock", []Hold{hold("a", 1, 10, 90), {Lock: "m", Owner: "b", Token: 2, Begin: 20, Last: 30}}, ""},
		{
			"readers at once",
			[]Hold{reader(hold("a", 2, 10, 90)), reader(hold("b", 2, 20, 30)), hold("c", 3, 91, 92)},
			"",
		},
		{"a writer during a reader", []Hold{
			reader(hold("a", 2, 10, 90)), reader(hold("b", 2, 20, 30)),
			hold("c", 3, 50, 92),
		}, "a check of a of l under token 2"},
		{"a reader during a writer", []Hold{
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
		"b acted twice for occasion 2 of in-order": func(l *Log) {
			l.Effects = append(l.Effects, l.Effects[1])
		},
		"an effect of b under token 2 of in-order was allowed at 95": func(l *Log) {
			l.Effects[1].Checked = 95 // when the next one had begun
		},
		"a check of b of in-order under token 2 passed 5ns after a": func(l *Log) {
			l.Holds[1].Last, l.Effects[1].Checked = 95, 95
		},
		"c learned of occasion 7 of redo": func(l *Log) { l.Answers[0].Occasion = 7 },
		"c learned of occasion 1 of redo": func(l *Log) { l.Answers[0].Ended = false },
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

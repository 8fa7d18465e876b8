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

// doctored are ways to spoil a log. Each says what the judge must find, or nothing if the log
// has no place for it.
var doctored = map[string]func(l *Log, random *rand.Rand) Sin{
	"a check passes after the next grant": func(l *Log, random *rand.Rand) Sin {
		return l.pair(random, func(a, b *Hold) Sin { a.Last = b.Begin + 1 + random.Int64N(100); return Overlap })
	},
	"a grant comes before the last check": func(l *Log, random *rand.Rand) Sin {
		return l.pair(random, func(a, b *Hold) Sin {
			if a.Last == a.Begin {
				return ""
			}
			b.Begin = a.Last - 1
			return Overlap
		})
	},
	"a token is granted twice": func(l *Log, random *rand.Rand) Sin {
		return l.pair(random, func(a, b *Hold) Sin { b.Token = a.Token; return Tokens })
	},
	"tokens fall": func(l *Log, random *rand.Rand) Sin {
		return l.pair(random, func(a, b *Hold) Sin { a.Token, b.Token = b.Token, a.Token; return Overlap })
	},
	"an effect after its hold": func(l *Log, random *rand.Rand) Sin {
		h := &l.Holds[random.IntN(len(l.Holds))]
		return l.one(random, func(e *Effect) bool { return e.Lock == h.Lock && e.Token == h.Token },
			func(e *Effect) Sin {
				e.Checked = h.Last + 1
				return Outside
			})
	},
	"an effect of another's token": func(l *Log, random *rand.Rand) Sin {
		return l.one(random, func(*Effect) bool { return true },
			func(e *Effect) Sin { e.Owner += "x"; return Outside })
	},
	"the fence lets a late one in": func(l *Log, random *rand.Rand) Sin {
		return l.one(random, func(e *Effect) bool { return e.Refused }, func(e *Effect) Sin {
			e.Refused, e.Entered, e.Told = false, e.Came+1, nil
			return Fence
		})
	},
	"the fence refuses a good one": func(l *Log, random *rand.Rand) Sin {
		return l.one(random, func(e *Effect) bool { return e.Entered > 0 && !e.Read }, func(e *Effect) Sin {
			e.Refused, e.Entered, e.Told = true, 0, nil
			return Fence
		})
	},
	"a refusal for a token that was never there": func(l *Log, random *rand.Rand) Sin {
		return l.one(random, func(e *Effect) bool { return e.Refused && e.Told != nil }, func(e *Effect) Sin {
			e.Told = &Told{Refused: true, Highest: 1000}
			return Fence
		})
	},
	"a caller is told that a refused one is done": func(l *Log, random *rand.Rand) Sin {
		return l.one(random, func(e *Effect) bool { return e.Refused },
			func(e *Effect) Sin { e.Told = &Told{}; return Fence })
	},
	"a caller is told that a good one is refused": func(l *Log, random *rand.Rand) Sin {
		return l.one(random, func(e *Effect) bool { return e.Entered > 0 }, func(e *Effect) Sin {
			e.Told = &Told{Refused: true, Highest: e.Token + 1}
			return Fence
		})
	},
	"a write is lost": func(l *Log, random *rand.Rand) Sin {
		return l.one(random, func(e *Effect) bool { return e.Read && e.Entered > 0 }, func(e *Effect) Sin {
			e.Value += "old"
			return Fence
		})
	},
	"a caller reads what is not there": func(l *Log, random *rand.Rand) Sin {
		return l.one(random, func(e *Effect) bool { return e.Read && e.Entered > 0 }, func(e *Effect) Sin {
			e.Told = &Told{Value: e.Value + "old"}
			return Fence
		})
	},
}

// pair does something to two holds of one lock that follow each other.
func (l *Log) pair(random *rand.Rand, do func(a, b *Hold) Sin) Sin {
	for range 20 {
		i := random.IntN(max(1, len(l.Holds)-1))
		if a, b := &l.Holds[i], &l.Holds[i+1]; a.Lock == b.Lock && a.Owner != b.Owner {
			return do(a, b)
		}
	}
	return ""
}

// one does something to one of the effects of a kind.
func (l *Log) one(random *rand.Rand, of func(*Effect) bool, do func(*Effect) Sin) Sin {
	for _, i := range random.Perm(len(l.Effects)) {
		if of(&l.Effects[i]) {
			return do(&l.Effects[i])
		}
	}
	return ""
}

// TestJudge: the judge finds nothing in a good log, and what was done to a doctored one.
func TestJudge(t *testing.T) {
	refused := map[string]int{}
	for seed := range uint64(100) {
		if found := goodLog(rand.New(rand.NewPCG(seed, 0))).Judge(); len(found) > 0 {
			t.Fatalf("seed %d: in a good log: %v", seed, found)
		}
		for name, doctor := range doctored {
			random := rand.New(rand.NewPCG(seed, 0))
			l := goodLog(random)
			want := doctor(l, random)
			if want == "" {
				continue
			}
			refused[name]++
			if found := l.Judge(); !slices.ContainsFunc(found, func(f Finding) bool { return f.Sin == want }) {
				t.Errorf("seed %d: %s: %v, want %s", seed, name, found, want)
			}
		}
	}
	for name := range doctored {
		if refused[name] < 20 {
			t.Errorf("%s: in %d logs alone", name, refused[name])
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package trial judges the workloads of chaos: it has the resource that holders write to, and
// the judge of a run's log.
package trial

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Log is the log of a run: who held which lock, and the effects meanwhile. All instants are
// of one clock, in nanoseconds.
type Log struct {
	Holds   []Hold   `json:"holds"`
	Effects []Effect `json:"effects"`
	Answers []Answer `json:"answers,omitempty"`
	// Apart is the least time between two runs by the rule [Every].
	Apart time.Duration `json:"apart,omitempty"`
}

// Hold is a time in which a process has held a lock, as far as its checks show.
type Hold struct {
	Lock   string `json:"lock,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Token  uint64 `json:"token,omitempty"`
	Shared bool   `json:"shared,omitempty"` // by readers at once
	// Begin is an instant after the first check that passed, and Last an instant before the
	// last one: a process may be stopped between a check and its reading of the clock.
	Begin  int64 `json:"begin,omitempty"`
	Last   int64 `json:"last,omitempty"`
	Killed bool  `json:"killed,omitempty"` // its last check may be missing

	// Of a run for an occasion, by the rule of its lock: Finished says that the store has its
	// end.
	Rule     Rule  `json:"rule,omitempty"`
	Occasion int64 `json:"occasion,omitempty"`
	Finished bool  `json:"finished,omitempty"`
}

// Rule says when a job may begin.
type Rule string

// The rules, besides a lock's, which is empty. The numbers of occasions rise.
const (
	InOrder Rule = "in-order" // at most once for each occasion, and for none after a later one
	Redo    Rule = "redo"     // once for each, and again if it has not finished
	Every   Rule = "every"    // as InOrder, and never too soon after the run before
)

// Answer is what a caller learned that asked for an occasion that was begun: by which run, and
// whether that has ended.
type Answer struct {
	Lock     string `json:"lock"`
	Owner    string `json:"owner"` // who asked
	Occasion int64  `json:"occasion"`
	Token    uint64 `json:"token"` // of the run
	Ended    bool   `json:"ended"`
	At       int64  `json:"at"`
}

// Effect is a holder's effect on the resource. Each one reaches the resource without a
// fence; accepted effects reach the resource behind it.
type Effect struct {
	ID    string `json:"id,omitempty"` // of those whose caller says what came of it
	Lock  string `json:"lock"`
	Owner string `json:"owner"`
	Token uint64 `json:"token"`
	// Occasion is the run's, 0 without a run.
	Occasion int64  `json:"occasion,omitempty"`
	Checked  int64  `json:"checked"`           // the instant before the check that allowed it
	Blind    bool   `json:"blind,omitempty"`   // that no clock could stop that check
	Came     int64  `json:"came"`              // to the resource
	Entered  int64  `json:"entered,omitempty"` // behind the fence; 0 if it did not
	Refused  bool   `json:"refused,omitempty"` // by the fence
	Left     int64  `json:"left,omitempty"`    // with an answer; 0 if it is still there
	Read     bool   `json:"read,omitempty"`    // it reads what was written last; others write
	Value    string `json:"value,omitempty"`   // that was read or written
	// Told is what its caller knows of the end, nil if nothing.
	Told *Told `json:"told,omitempty"`
}

// Told is the answer to the caller of an effect.
type Told struct {
	Refused bool   `json:"refused,omitempty"`
	Highest uint64 `json:"highest,omitempty"` // that a refusal names
	Value   string `json:"value,omitempty"`   // that was read
}

// Finding is a violation.
type Finding struct {
	Sin  Sin
	Text string
	// Of an overlap: the hold that began too early, and for how long.
	Next  Hold
	Early time.Duration
}

// Sin is a kind of finding.
type Sin string

// The sins.
const (
	Overlap Sin = "overlap" // a check passed after another was granted the lock
	Tokens  Sin = "tokens"  // a token twice
	Outside Sin = "outside" // an effect that no hold allows
	Fence   Sin = "fence"   // the fence does not do what the tokens say, or loses what was written
	Once    Sin = "once"    // an occasion whose run begins again, too late or too soon, or is lost
)

// Judge compares the log with the rules:
//
//   - no check passes after another process has been granted the lock, and no two processes
//     have one token, except readers, which hold it at once;
//   - each effect was allowed within a hold of its owner and token;
//   - the fence accepts no effect after one with a higher token, and refuses no other;
//   - what is read behind the fence is what was written last, and callers get true answers;
//   - a job begins by the rule of its lock, acts once in a run, and a caller that asks for an
//     occasion learns of a run that was begun.
func (l *Log) Judge() []Finding {
	var found findings
	l.overlaps(&found)
	l.fence(&found)
	l.occasions(&found)
	return found
}

type findings []Finding

func (f *findings) add(sin Sin, format string, args ...any) {
	*f = append(*f, Finding{Sin: sin, Text: fmt.Sprintf(format, args...)})
}

// byToken returns the holds in the order of their locks and tokens.
func (l *Log) byToken() []Hold {
	return slices.SortedFunc(slices.Values(l.Holds), func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Lock, b.Lock), cmp.Compare(a.Token, b.Token), cmp.Compare(a.Begin, b.Begin))
	})
}

// overlaps compares each hold with all of lower tokens.
func (l *Log) overlaps(found *findings) {
	all := l.byToken()
	for i, h := range all {
		// The one whose check passed last, of the lower tokens of this lock.
		var longest *Hold
		for j := i - 1; j >= 0 && all[j].Lock == h.Lock; j-- {
			switch before := &all[j]; {
			case before.Shared && h.Shared:
			case before.Token == h.Token && (h.Rule != Every || before.Owner != h.Owner): // else another period
				found.add(Tokens, "token %d of %s was granted to %s and to %s", h.Token, h.Lock, before.Owner, h.Owner)
			case longest == nil || before.Last > longest.Last:
				longest = before
			}
		}
		if longest != nil && longest.Last > h.Begin {
			early := time.Duration(longest.Last - h.Begin)
			found.add(Overlap, "a check of %s of %s under token %d passed %v after %s was granted token %d",
				longest.Owner, h.Lock, longest.Token, early, h.Owner, h.Token)
			last := &(*found)[len(*found)-1]
			last.Next, last.Early = h, early
		}
	}
}

// fence judges the effects, in the order in which the fence accepted them.
func (l *Log) fence(found *findings) {
	holds := map[Term][]Hold{} // who reads twice has the same token
	for _, h := range l.Holds {
		holds[h.Term()] = append(holds[h.Term()], h)
	}
	let := map[string]Effect{} // by the lock: the effect that entered last
	written := map[string]string{}
	all := slices.Clone(l.Effects)
	// A refused effect is compared with all that had entered before its refusal.
	at := func(e Effect) int64 { return cmp.Or(e.Entered, e.Left) }
	slices.SortStableFunc(all, func(a, b Effect) int { return cmp.Compare(at(a), at(b)) })
	for _, e := range all {
		effect := fmt.Sprintf("%s under token %d of %s", e.Owner, e.Token, e.Lock)
		if !slices.ContainsFunc(holds[e.term()], func(h Hold) bool {
			return e.Blind || h.Begin <= e.Checked && e.Checked <= h.Last
		}) {
			found.add(Outside, "an effect of %s was allowed at %d, which is in no hold of it", effect, e.Checked)
		}
		before := let[e.Lock]
		switch told := e.Told; {
		case e.Refused && before.Token <= e.Token:
			found.add(Fence, "the fence refused %s, and no later token had come", effect)
		case e.Refused && told != nil && (!told.Refused || told.Highest <= e.Token || told.Highest > before.Token):
			found.add(Fence, "the fence refused %s after token %d, and answered %+v", effect, before.Token, *told)
		case e.Entered == 0: // refused, or its caller was gone before
		case e.Token < before.Token:
			found.add(Fence, "the fence let %s in after token %d", effect, before.Token)
		case e.Read && e.Value != written[e.Lock]:
			found.add(Fence, "%q was read by %s, where %q was written", e.Value, effect, written[e.Lock])
		case told != nil && (told.Refused || e.Read && told.Value != e.Value):
			found.add(Fence, "the fence accepted %s, and answered %+v", effect, *told)
		}
		if e.Entered > 0 && e.Token >= before.Token {
			let[e.Lock] = e
		}
		if e.Entered > 0 && !e.Read {
			written[e.Lock] = e.Value
		}
	}
}

// occasions looks at the runs of each job, in the order in which they were granted.
func (l *Log) occasions(found *findings) {
	begun, runs, acted := map[Term]Hold{}, map[Term]Hold{}, map[Term]bool{}
	var last Hold
	for _, h := range l.byToken() {
		if h.Rule == "" {
			continue
		}
		say := func(what string, of Hold) {
			found.add(Once, "%s ran occasion %d of %s under token %d %s of %s, occasion %d under token %d",
				h.Owner, h.Occasion, h.Lock, h.Token, what, of.Owner, of.Occasion, of.Token)
		}
		of := Term{lock: h.Lock, occasion: h.Occasion}
		before, again := begun[of]
		switch sooner := time.Duration(h.Begin - last.Begin); {
		case again && (h.Rule != Redo || before.Finished):
			say("after the run", before)
		case last.Lock != h.Lock || h.Rule == Redo:
		case last.Occasion > h.Occasion:
			say("after the later one", last)
		case h.Rule == Every && sooner < l.Apart && last.Last > 0: // else no clock showed that it came late
			say(fmt.Sprintf("only %v after that", sooner), last)
		}
		begun[of], runs[Term{h.Lock, "", h.Token, h.Occasion}], last = h, h, h
	}
	for _, e := range l.Effects {
		if e.Occasion != 0 && acted[e.term()] {
			found.add(Once, "%s acted twice for occasion %d of %s under token %d", e.Owner, e.Occasion, e.Lock, e.Token)
		}
		acted[e.term()] = true
	}
	for _, a := range l.Answers {
		// A run that has not finished, as far as the log shows, may have ended right before a kill.
		if run, began := runs[Term{a.Lock, "", a.Token, a.Occasion}]; a.Ended && !began || !a.Ended && run.Finished {
			found.add(Once, "%s learned of occasion %d of %s, run under token %d and ended: %v; "+
				"it was begun: %v, and ended: %v", a.Owner, a.Occasion, a.Lock, a.Token, a.Ended, began, run.Finished)
		}
	}
}

// EndKilled ends each hold in which the process was killed with the last of its effects, if
// that is later: the process acts all the time, and the log does not show how long it had been
// stopped when it was killed.
func (l *Log) EndKilled() {
	last := map[Term]int64{}
	for _, e := range l.Effects {
		if !e.Blind {
			last[e.term()] = max(last[e.term()], e.Checked)
		}
	}
	for i := range l.Holds {
		if h := &l.Holds[i]; h.Killed {
			h.Last = max(h.Last, last[h.Term()])
		}
	}
}

// Term is what one owner has done under one token, for one occasion.
type Term struct {
	lock, owner string
	token       uint64
	occasion    int64
}

// Term returns the term of the hold.
func (h Hold) Term() Term   { return Term{h.Lock, h.Owner, h.Token, h.Occasion} }
func (e Effect) term() Term { return Term{e.Lock, e.Owner, e.Token, e.Occasion} }

// Effect returns an effect that a check allowed, which began at an instant.
func (h Hold) Effect(checked int64) Effect {
	return Effect{Lock: h.Lock, Owner: h.Owner, Token: h.Token, Occasion: h.Occasion, Checked: checked}
}

// Late returns the effects that came after another process had been granted the lock.
func (l *Log) Late() []Effect {
	return slices.DeleteFunc(slices.Clone(l.Effects), func(e Effect) bool {
		return !slices.ContainsFunc(l.Holds,
			func(h Hold) bool { return h.Lock == e.Lock && h.Token > e.Token && h.Begin < e.Came })
	})
}

// Gap is the longest time in which no process held the lock, from one instant to another, with what
// was before and after it.
func (l *Log) Gap(from, to int64) (longest time.Duration, before, after string) {
	holds := slices.Clone(l.Holds)
	slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Begin, b.Begin) })
	free, since := from, "the beginning"
	gap := func(until int64, what string) {
		if d := time.Duration(until - free); d > longest {
			longest, before, after = d, since, what
		}
	}
	for _, h := range holds {
		gap(h.Begin, fmt.Sprintf("token %d of %s", h.Token, h.Owner))
		if h.Last > free {
			free, since = h.Last, fmt.Sprintf("the end of token %d of %s", h.Token, h.Owner)
		}
	}
	gap(to, "the end")
	return longest, before, after
}

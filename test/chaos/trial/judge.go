// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package trial is what the workloads of chaos are judged by: the resource that holders write
// to, and the judge of the log that a run leaves.
package trial

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Log is what a run has left: who held which lock, and what was done meanwhile. All instants
// are of one clock, in nanoseconds.
type Log struct {
	Holds   []Hold   `json:"holds"`
	Effects []Effect `json:"effects"`
}

// Hold is a time in which a process has held a lock, as far as its checks show.
type Hold struct {
	Lock   string `json:"lock"`
	Owner  string `json:"owner"`
	Token  uint64 `json:"token"`
	Shared bool   `json:"shared,omitempty"` // by readers at once
	// Begin is an instant after the first check that passed, and Last one before the last
	// one: a process may be stopped between a check and its look at the clock.
	Begin  int64 `json:"begin"`
	Last   int64 `json:"last"`
	Killed bool  `json:"killed,omitempty"` // its last check may not have been told
}

// Effect is what a holder has done to the resource. Each one reaches the resource that has no
// fence; those that the fence lets in reach the one behind it.
type Effect struct {
	ID      string `json:"id,omitempty"` // of those whose caller says what came of it
	Lock    string `json:"lock"`
	Owner   string `json:"owner"`
	Token   uint64 `json:"token"`
	Checked int64  `json:"checked"`           // the instant before the check that allowed it
	Blind   bool   `json:"blind,omitempty"`   // that check is one that no clock could stop
	Came    int64  `json:"came"`              // to the resource
	Entered int64  `json:"entered,omitempty"` // behind the fence; 0 if it did not
	Refused bool   `json:"refused,omitempty"` // by the fence
	Left    int64  `json:"left,omitempty"`    // with an answer; 0 if it is still there
	Read    bool   `json:"read,omitempty"`    // it reads what was written last; others write
	Value   string `json:"value,omitempty"`   // that was read or written
	// Told is what its caller knows of the end, nil if nothing.
	Told *Told `json:"told,omitempty"`
}

// Told is what the caller of an effect was told.
type Told struct {
	Refused bool   `json:"refused,omitempty"`
	Highest uint64 `json:"highest,omitempty"` // that a refusal names
	Value   string `json:"value,omitempty"`   // that was read
}

// Finding is what must not be.
type Finding struct {
	Sin      Sin
	Text     string
	Owner    string
	From, To int64
}

// Sin is a kind of finding.
type Sin string

// The sins.
const (
	Overlap Sin = "overlap" // a check passed after another was granted the lock
	Tokens  Sin = "tokens"  // a token twice
	Outside Sin = "outside" // an effect that no hold allows
	Fence   Sin = "fence"   // the fence does not do what the tokens say, or loses what was written
)

// Judge holds what has happened to what must be:
//
//   - no check passes after another process has been granted the lock, and no two have one
//     token: but for readers, which hold it at once;
//   - each effect was allowed within a hold of its owner and token;
//   - the fence lets no effect in after one with a higher token, and refuses none but for one;
//   - what is read behind the fence is what was written last, and callers are told the truth.
func (l *Log) Judge() []Finding {
	return append(l.overlaps(), l.fence()...)
}

// overlaps compares each hold with all of lower tokens.
func (l *Log) overlaps() (found []Finding) {
	all := slices.Clone(l.Holds)
	slices.SortFunc(all, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Lock, b.Lock), cmp.Compare(a.Token, b.Token), cmp.Compare(a.Begin, b.Begin))
	})
	for i, h := range all {
		// The one whose check passed last, of the lower tokens of this lock.
		var longest *Hold
		for j := i - 1; j >= 0 && all[j].Lock == h.Lock; j-- {
			switch before := &all[j]; {
			case before.Shared && h.Shared:
			case before.Token == h.Token:
				found = append(found, Finding{
					Tokens, fmt.Sprintf("token %d of %s was granted to %s and to %s", h.Token, h.Lock,
						before.Owner, h.Owner),
					h.Owner, h.Begin, h.Begin,
				})
			case longest == nil || before.Last > longest.Last:
				longest = before
			}
		}
		if longest != nil && longest.Last > h.Begin {
			found = append(found, Finding{
				Overlap, fmt.Sprintf("a check of %s of %s under token %d passed %v after %s was granted token %d",
					longest.Owner, h.Lock, longest.Token, time.Duration(longest.Last-h.Begin), h.Owner, h.Token),
				longest.Owner, h.Begin, longest.Last,
			})
		}
	}
	return found
}

// fence looks at the effects, in the order in which they were let in.
func (l *Log) fence() (found []Finding) {
	say := func(sin Sin, e *Effect, format string, args ...any) {
		found = append(found, Finding{sin, fmt.Sprintf(format, args...), e.Owner, e.Came, e.Came})
	}
	holds := map[term]Hold{}
	for _, h := range l.Holds {
		holds[term{h.Lock, h.Owner, h.Token}] = h
	}
	let := map[string]Effect{} // by the lock: the one that entered last
	written := map[string]string{}
	all := slices.Clone(l.Effects)
	// One that was refused is compared with all that had entered until it was.
	at := func(e Effect) int64 { return cmp.Or(e.Entered, e.Left) }
	slices.SortStableFunc(all, func(a, b Effect) int { return cmp.Compare(at(a), at(b)) })
	for _, e := range all {
		h, held := holds[term{e.Lock, e.Owner, e.Token}]
		if !held || !e.Blind && (e.Checked < h.Begin || e.Checked > h.Last) {
			say(Outside, &e, "an effect of %s under token %d of %s was allowed at %d, which is in no hold of it",
				e.Owner, e.Token, e.Lock, e.Checked)
		}
		before := let[e.Lock]
		switch told := e.Told; {
		case e.Refused && before.Token <= e.Token:
			say(Fence, &e, "the fence refused %s under token %d of %s, and no later token had come", e.Owner,
				e.Token, e.Lock)
		case e.Refused && told != nil && (!told.Refused || told.Highest <= e.Token || told.Highest > before.Token):
			say(Fence, &e, "the fence refused %s under token %d of %s after token %d, and it was told %+v",
				e.Owner, e.Token, e.Lock, before.Token, *told)
		case e.Entered == 0: // refused, or its caller was gone before
		case e.Token < before.Token:
			say(Fence, &e, "the fence let %s in under token %d of %s after token %d", e.Owner, e.Token, e.Lock,
				before.Token)
		case e.Read && e.Value != written[e.Lock]:
			say(Fence, &e, "%s read %q under token %d of %s, where %q was written", e.Owner, e.Value, e.Token,
				e.Lock, written[e.Lock])
		case told != nil && (told.Refused || e.Read && told.Value != e.Value):
			say(Fence, &e, "the fence let %s in under token %d of %s, and it was told %+v", e.Owner, e.Token,
				e.Lock, *told)
		}
		if e.Entered > 0 && e.Token >= before.Token {
			let[e.Lock] = e
		}
		if e.Entered > 0 && !e.Read {
			written[e.Lock] = e.Value
		}
	}
	return found
}

// EndKilled ends each hold of a process that was killed in it with the last of its effects, if
// that is later: it acts all the time, and how long it had stood still when it was killed
// nobody knows.
func (l *Log) EndKilled() {
	last := map[term]int64{}
	for _, e := range l.Effects {
		if of := (term{e.Lock, e.Owner, e.Token}); !e.Blind {
			last[of] = max(last[of], e.Checked)
		}
	}
	for i := range l.Holds {
		if h := &l.Holds[i]; h.Killed {
			h.Last = max(h.Last, last[term{h.Lock, h.Owner, h.Token}])
		}
	}
}

// term is what one owner has done under one token.
type term struct {
	lock, owner string
	token       uint64
}

// Late returns the effects that came after another process had been granted the lock.
func (l *Log) Late() []Effect {
	return slices.DeleteFunc(slices.Clone(l.Effects), func(e Effect) bool {
		return !slices.ContainsFunc(l.Holds,
			func(h Hold) bool { return h.Lock == e.Lock && h.Token > e.Token && h.Begin < e.Came })
	})
}

// Gap is the longest time in which nobody held the lock, from one instant to another, with what
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

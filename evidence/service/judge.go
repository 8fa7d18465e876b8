// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure/evidence/peers/holds"
	"github.com/tenurelock/tenure/evidence/peers/service"
)

// past is all that is known of a round.
type past struct {
	Holds   []holds.Hold     // as the clients have written them down
	Effects []effect         // as the resource has, in the order in which they came
	Tenures []service.Tenure // as the service has
	Began   int64
	Ended   int64
	// Gap is for how long nobody may hold the lock while somebody waits for it.
	Gap time.Duration
}

// endKilled ends the hold of a process that was killed in it with the last of its effects: it
// writes to the resource all the time, and how long it had stood still when it was killed
// nobody knows.
func (p *past) endKilled() {
	for i := range p.Holds {
		h := &p.Holds[i]
		if !h.Killed {
			continue
		}
		h.End = h.Begin
		for _, e := range p.Effects {
			if e.Owner == h.Owner && e.Token == h.Token {
				h.End = max(h.End, e.Checked)
			}
		}
	}
}

// verdict is what a round has shown.
type verdict struct {
	Wrong []string `json:"wrong,omitempty"`

	Holds   int            `json:"holds"`
	Of      map[string]int `json:"of"` // by the client
	Effects int            `json:"effects"`
	Refused int            `json:"refused"` // by the fence
	Late    int            `json:"late"`    // came after an effect of a later tenure
	Gap     time.Duration  `json:"gapNs"`   // the longest in which nobody held the lock
	Tokens  uint64         `json:"tokens"`  // the last one

	Recovery time.Duration  `json:"recoveryNs"` // from the last kill to the next hold
	Faults   map[string]int `json:"faults"`     // of the nemesis
	Weather  map[string]int `json:"weather"`    // of the proxies
	Errors   map[string]int `json:"errors"`     // that clients' work came to
}

func (v *verdict) say(format string, args ...any) {
	v.Wrong = append(v.Wrong, fmt.Sprintf(format, args...))
}

// judge holds what happened to what must be:
//
//   - no two clients hold the lock at once, and tokens rise from one hold to the next;
//   - each effect lies within a hold, by the instant before the check that allowed it, so
//     that the resource's own log shows one holder after the other;
//   - the fence lets no effect in after one of a later tenure;
//   - each hold is a tenure of the service's history, of the same owner;
//   - the lock is not free for long while others wait.
func judge(p *past) *verdict {
	v := &verdict{Holds: len(p.Holds), Of: map[string]int{}, Effects: len(p.Effects), Wrong: holds.Wrong(p.Holds)}
	for _, h := range p.Holds {
		v.Of[kindOf(h.Owner)]++
		v.Tokens = max(v.Tokens, h.Token)
	}
	v.judgeEffects(p)
	v.judgeHistory(p)
	v.judgeGaps(p)
	return v
}

// judgeEffects looks at the effects as they were allowed, and as they came.
func (v *verdict) judgeEffects(p *past) {
	within := func(e effect) bool {
		return slices.ContainsFunc(p.Holds, func(h holds.Hold) bool {
			return h.Owner == e.Owner && h.Token == e.Token && h.Begin <= e.Checked && e.Checked <= h.End
		})
	}
	came, let := uint64(0), uint64(0)
	for _, e := range p.Effects {
		if !within(e) {
			v.say("an effect of %s under token %d was allowed at %d, which is in no hold of it", e.Owner, e.Token, e.Checked)
		}
		if e.Token < came {
			v.Late++
		} else if e.Refused {
			v.say("the fence refused %s under token %d, and no later token had come", e.Owner, e.Token)
		}
		came = max(came, e.Token)
		if e.Refused {
			v.Refused++
			continue
		}
		if e.Token < let {
			v.say("the fence let %s in under token %d after token %d", e.Owner, e.Token, let)
		}
		let = max(let, e.Token)
	}
	allowed := slices.Clone(p.Effects)
	slices.SortStableFunc(allowed, func(a, b effect) int { return cmp.Compare(a.Checked, b.Checked) })
	last := effect{}
	said := map[[2]uint64]bool{} // once for two tokens
	for _, e := range allowed {
		if two := [2]uint64{e.Token, last.Token}; e.Token < last.Token && !said[two] {
			said[two] = true
			v.say("%s acted under token %d after %s had acted under token %d", e.Owner, e.Token, last.Owner, last.Token)
		}
		if e.Token >= last.Token {
			last = e
		}
	}
}

// judgeHistory compares the holds with what the service says of them.
func (v *verdict) judgeHistory(p *past) {
	owners := map[uint64]string{}
	for _, t := range p.Tenures {
		owners[t.Token] = t.Owner
	}
	for _, h := range p.Holds {
		switch owner, found := owners[h.Token]; {
		case !found:
			v.say("token %d of %s is in no tenure of the history", h.Token, h.Owner)
		case owner != "" && owner != h.Owner: // a crash can hide who it was
			v.say("token %d was held by %s, and the history says by %s", h.Token, h.Owner, owner)
		}
	}
}

// judgeGaps looks for times in which nobody held the lock.
func (v *verdict) judgeGaps(p *past) {
	free, before := p.Began, "the beginning"
	gap := func(until int64, who string) {
		d := time.Duration(until - free)
		v.Gap = max(v.Gap, d)
		if d > p.Gap {
			v.say("nobody held the lock for %v, from %s to %s; at most %v are allowed", d.Round(time.Millisecond), before, who, p.Gap)
		}
	}
	for _, h := range p.Holds {
		gap(h.Begin, fmt.Sprintf("token %d of %s", h.Token, h.Owner))
		if h.End > free {
			free, before = h.End, fmt.Sprintf("the end of token %d of %s", h.Token, h.Owner)
		}
	}
	gap(p.Ended, "the end")
}

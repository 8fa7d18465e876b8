// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"fmt"
	"math"
	"slices"
)

// maxSpans is how many spans a ledger keeps above its floor: each heartbeat writes
// the ledger again.
const maxSpans = 16

// span is the slots from the first to the last one, both included. Numbers in it
// that are no slots of the schedule count as begun, too.
type span struct{ First, Last int64 }

// begun is the set of slots that count as begun: disjoint spans in order, with at least
// one number between two neighbours. If the first span begins at the lowest number of
// all, its end is the floor, which the next span may touch: slots above the floor were
// begun, slots below it may have been given up.
type begun []span

// joins reports whether two spans overlap or touch. Span a begins first.
func joins(a, b span) bool {
	return b.First <= a.Last || b.First-1 == a.Last && a.First != math.MinInt64
}

func (b begun) has(slot int64) bool {
	return slices.ContainsFunc(b, func(s span) bool { return s.First <= slot && slot <= s.Last })
}

// highest returns the highest slot of the set.
func (b begun) highest() (int64, bool) {
	if len(b) == 0 {
		return 0, false
	}
	return b[len(b)-1].Last, true
}

// below returns the highest slot of the set that is below a slot outside of it.
func (b begun) below(slot int64) (int64, bool) {
	for _, s := range slices.Backward(b) {
		if s.Last < slot {
			return s.Last, true
		}
	}
	return 0, false
}

// floor returns the slot up to which all count as begun.
func (b begun) floor() (int64, bool) {
	if len(b) == 0 || b[0].First != math.MinInt64 {
		return 0, false
	}
	return b[0].Last, true
}

// spans returns what is above the floor.
func (b begun) spans() []span {
	if _, ok := b.floor(); ok {
		return b[1:]
	}
	return b
}

// with returns the set with a span, which joins those that it touches.
func (b begun) with(s span) begun {
	var all begun
	for _, other := range b {
		if low, high := other, s; other.First <= s.First && joins(low, high) || other.First > s.First && joins(high, low) {
			s = span{min(s.First, other.First), max(s.Last, other.Last)}
		} else {
			all = append(all, other)
		}
	}
	all = append(all, s)
	slices.SortFunc(all, func(a, b span) int {
		if a.First < b.First {
			return -1
		}
		return 1
	})
	return all
}

// without returns the set without a slot.
func (b begun) without(slot int64) begun {
	var all begun
	for _, s := range b {
		if slot < s.First || slot > s.Last {
			all = all.with(s) // it may touch what was the floor
			continue
		}
		if s.First < slot {
			all = all.with(span{s.First, slot - 1})
		}
		if slot < s.Last {
			all = all.with(span{slot + 1, s.Last})
		}
	}
	return all
}

// bounded returns the set with at most maxSpans spans above its floor. The floor rises
// over the lowest gap: what was not begun there counts as begun from then on. The
// gap that contains the slot *open is skipped.
func (b begun) bounded(open *int64) begun {
	for len(b.spans()) > maxSpans {
		low := span{First: math.MinInt64, Last: b.spans()[0].Last}
		if open != nil && *open < low.Last && !b.has(*open) {
			low = span{First: b.spans()[0].First, Last: b.spans()[1].Last}
		}
		b = b.with(low)
	}
	return b
}

// givenUp reports whether a floor covers a number that is not in the set.
func (b begun) givenUp(floor int64) bool {
	up, ok := b.floor()
	for _, s := range b.spans() {
		if !ok || s.First-1 != up {
			break
		}
		up = s.Last
	}
	return !ok || floor > up
}

// check returns what is wrong with a set read from the store.
func (b begun) check() error {
	if n := len(b.spans()); n > maxSpans {
		return fmt.Errorf("it has %d spans of slots: at most %d are kept", n, maxSpans)
	}
	for i, s := range b {
		if s.First > s.Last || i > 0 && (s.First <= b[i-1].Last || joins(b[i-1], s)) {
			return fmt.Errorf("its slots from %d to %d are out of order", s.First, s.Last)
		}
	}
	return nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A set of slots equals a map of the numbers that were added and not removed, around each
// end of the range. The bound of its spans loses no begun slot.
func TestBegun(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		base := []int64{0, math.MinInt64, math.MaxInt64 - 99}[seed%3]
		draw := func() int64 { return base + random.Int64N(100) }
		var set begun
		want := map[int64]bool{}
		for step := range 100 {
			first, last := draw(), draw()
			switch {
			case random.IntN(4) == 0:
				set = set.without(first)
				delete(want, first)
			default:
				if random.IntN(3) > 0 {
					last = first
				}
				if last < first {
					first, last = last, first
				}
				set = set.with(span{first, last})
				for slot := first; ; slot++ {
					want[slot] = true
					if slot == last {
						break
					}
				}
			}
			if n := len(set.spans()); n > maxSpans { // the bound is for the ledger
				open := draw()
				set = set.without(open)
				delete(want, open)
				set = set.bounded(&open)
				if len(set.spans()) > maxSpans || set.has(open) {
					t.Fatalf("seed %d, step %d: %v, and %d is to stay open", seed, step, set, open)
				}
				for slot := range want {
					if !set.has(slot) {
						t.Fatalf("seed %d, step %d: %d was begun, and is not in %v", seed, step, slot, set)
					}
				}
				clear(want)
				for i := range int64(100) {
					if set.has(base + i) {
						want[base+i] = true
					}
				}
			}
			if err := set.check(); err != nil && len(set.spans()) <= maxSpans {
				t.Fatalf("seed %d, step %d: %v: %v", seed, step, set, err)
			}
			var below *int64
			for i := range int64(100) {
				slot := base + i
				if set.has(slot) != want[slot] {
					t.Fatalf("seed %d, step %d: %d is in %v: %v", seed, step, slot, set, set.has(slot))
				}
				if got, ok := set.below(slot); !want[slot] && (ok != (below != nil) || ok && got != *below) {
					t.Fatalf("seed %d, step %d: below %d there is %d, %v in %v", seed, step, slot, got, ok, set)
				}
				if want[slot] {
					below = &slot
				}
			}
			if got, ok := set.highest(); ok != (below != nil) || ok && got != *below {
				t.Fatalf("seed %d, step %d: the highest of %v is %d, %v", seed, step, set, got, ok)
			}
		}
	}
}

// With a seventeenth span the floor rises over the lowest gap, and no other gap closes.
func TestFloorRises(t *testing.T) {
	var l ledger
	for i := range int64(maxSpans + 3) {
		l = l.begin(entry{Slot: 10 * i, Token: uint64(i) + 1}, 10*i)
	}
	if floor, ok := l.Begun.floor(); !ok || floor != 20 || len(l.Begun.spans()) != maxSpans || l.Begun[1] != (span{30, 30}) {
		t.Errorf("%v", l.Begun)
	}
	if l.Begun.has(25) || !l.Begun.has(15) || !l.Begun.has(-1000) {
		t.Errorf("%v", l.Begun)
	}
	// What follows on the floor is no gap, and stays apart from it.
	if l.Begun.givenUp(20) || !l.Begun.givenUp(30) || l.Begun.with(span{21, 29}).givenUp(30) || !l.Begun.with(span{21, 29}).givenUp(40) {
		t.Errorf("%v", l.Begun)
	}
	if set := l.Begun.with(span{21, 29}); set[0] != l.Begun[0] || set[1] != (span{21, 30}) {
		t.Errorf("%v", set)
	}
	// A slot that an operator opens is not closed for it.
	l = l.reset(entry{Slot: 10, Token: 99, State: StateReset})
	if l.Begun.has(10) || len(l.Begun.spans()) != maxSpans || !l.Begun.has(9) || !l.Begun.has(11) {
		t.Errorf("%v", l.Begun)
	}
	if err := l.refuse(10, &Options{MaxAhead: -1}, 0); err != nil {
		t.Error(err)
	}
	if slots := slices.Collect(func(yield func(int64) bool) {
		for slot := int64(0); slot < 10*(maxSpans+3); slot += 10 {
			if slot != 10 && !l.Begun.has(slot) && !yield(slot) {
				return
			}
		}
	}); len(slots) > 0 {
		t.Errorf("begun, and open: %v", slots)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"strings"
)

// tolerance is how far above what was computed a time may be: a kill comes at any
// place in a period, and the machine has other things to do.
const tolerance = 1.5

// judge says what is not as it must be. Of a quick run the times mean nothing, nor
// what moves when a worker is lost for want of a processor.
func (f *finding) judge(size size) {
	miss := func(missed bool, format string, args ...any) {
		if missed {
			f.miss(format, args...)
		}
	}
	miss(len(f.OwnedTwice) > 0, "owned twice, by Check, %s", some(f.OwnedTwice))
	miss(len(f.Fence.Late) > 0, "stale writes accepted, %s", some(f.Fence.Late))
	miss(f.Fence.Accepted == 0 || f.Fence.Refused == 0, "the fence saw %d writes and refused %d: it was not tried", f.Fence.Accepted, f.Fence.Refused)
	if size.quick {
		return
	}
	miss(len(f.Lost) > 0, "sessions of living workers were lost, %s", some(f.Lost))
	for _, r := range f.Recoveries {
		miss(r.Took > tolerance*r.Expected, "%s: all owned after %.2f s, where %.2f s were to be expected", r.What, r.Took, r.Expected)
	}
	miss(f.Lone.Took > tolerance*f.Lone.Expected, "a worker with %d partitions: all owned after %.2f s, where %.2f s were to be expected", f.Lone.Partitions, f.Lone.Took, f.Lone.Expected)
	if f.Leave.Gaps.N > 0 {
		// Where the store tells of releases the next owner need not look.
		most := tolerance * (size.Refresh + size.drain).Seconds()
		miss(f.Leave.Gaps.Max > most, "a planned leave: a partition had nobody for %.3f s", f.Leave.Gaps.Max)
	}
	miss(f.Roll.Most > mostMoves, "a rolling restart moved a partition %d times", f.Roll.Most)
	miss(f.Join.Moves > int(1.1*f.Join.Share)+1, "a worker that came moved %d partitions, with a share of %.0f", f.Join.Moves, f.Join.Share)
}

// mostMoves is how often a rolling restart may move one partition: away from its
// worker, back to it, and once more each because the one that had it meanwhile was
// started again, too.
const mostMoves = 4

// some returns the first ones of a list, and how many there are.
func some(list []string) string {
	return fmt.Sprintf("%d: %s", len(list), strings.Join(list[:min(len(list), 3)], ", "))
}

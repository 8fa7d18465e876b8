// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize

import (
	"fmt"
	"hash/maphash"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenurelock/tenure/driver"
)

// register is the state of one key. It can be compared with ==.
type register struct {
	rec snapshot
	// settled says that what has not arrived never will, and over that every
	// call that was answered has been explained.
	settled, over bool
}

var seed = maphash.MakeSeed()

// model is a register with a token.
func (h *history) model() porcupine.Model {
	return porcupine.Model{
		Partition: byKey,
		Init:      func() any { return register{} },
		Step: func(state, in, out any) (bool, any) {
			return step(state.(register), in.(input), out.(output), h.conflictsReadLater || h.claimsGiveUp && in.(input).kind == claim)
		},
		Hash: func(state any) uint64 { return maphash.Comparable(seed, state.(register)) },
		DescribeOperation: func(in, out any) string {
			return describe(in.(input), out.(output))
		},
		DescribeState: func(state any) string { return state.(register).rec.String() },
	}
}

// step reports whether a call may have happened in state s, and what it left.
//
// A call of unknown outcome took effect where its condition held, or never; for the
// search, never means at the end. It would be just as true to let it happen without
// effect at any time, but then the search would try every order of all such calls.
//
// A conflict is with a record by which the condition does not hold, unless it may be with
// any: one that was read later.
func step(s register, in input, out output, conflictsWithAny bool) (bool, register) {
	after, applies := apply(s, in)
	switch {
	case in.kind == settled:
		s.settled = true
		return true, s
	case in.kind == over:
		s.over = true
		return true, s
	case in.kind == get:
		return out.now == s.rec, s
	case out.outcome == unknown && (s.settled || s.over):
		return s.over, s
	case out.outcome == unknown:
		return applies, after
	case out.outcome == conflicted:
		return out.now == s.rec && (!applies || conflictsWithAny), s
	case in.kind == claim:
		return applies && out.now == after.rec && out.replaced == s.rec, after
	default:
		return applies && out.now == after.rec, after
	}
}

// apply carries out a write if its condition holds. It says again what
// driver.Claimed says, so that a mistake there is found, too.
func apply(s register, in input) (after register, applies bool) {
	rec := s.rec
	switch in.kind {
	case claim:
		if rec.Found && rec.State != driver.Released {
			return s, false
		}
		next := in.next
		next.Token, next.Prev = rec.Token+1, tenure{Token: rec.Token, End: rec.End, Asked: rec.Asked}
		if in.keepData {
			next.Data = rec.Data
		}
		s.rec = next
		return s, true
	case swap:
		if !rec.Found || rec.Version != in.from.Version || rec.Token != in.from.Token {
			return s, false
		}
		s.rec = in.next
		return s, true
	case remove:
		if rec.Found && (rec.Version != in.from.Version || rec.Token != in.from.Token) {
			return s, false
		}
		s.rec = snapshot{}
		return s, true
	default:
		return s, false
	}
}

func byKey(history []porcupine.Operation) [][]porcupine.Operation {
	index := map[string]int{}
	var parts [][]porcupine.Operation
	for _, op := range history {
		key := op.Input.(input).key
		i, ok := index[key]
		if !ok {
			i = len(parts)
			index[key] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}

// check searches for an order that explains the history.
func (h *history) check(timeout time.Duration) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	ops := make([]porcupine.Operation, 0, len(h.calls))
	for _, c := range h.calls {
		if c.out.outcome == unknown {
			c.end = math.MaxInt64
		}
		ops = append(ops, porcupine.Operation{ClientId: c.client, Input: c.in, Output: c.out, Call: c.start, Return: c.end})
	}
	return porcupine.CheckOperationsVerbose(h.model(), ops, timeout)
}

func describe(in input, out output) string {
	what := string(in.kind)
	switch in.kind {
	case claim:
		what = fmt.Sprintf("claim(%s by %s, %s)", in.next.Version, in.next.Owner, in.next.State)
	case swap:
		what = fmt.Sprintf("swap(%s/%d -> %s/%d, %s)", in.from.Version, in.from.Token, in.next.Version, in.next.Token, in.next.State)
	case remove:
		what = fmt.Sprintf("delete(%s/%d)", in.from.Version, in.from.Token)
	}
	if out.outcome == unknown {
		return what + " -> unknown"
	}
	return fmt.Sprintf("%s -> %s: %s", what, out.outcome, out.now)
}

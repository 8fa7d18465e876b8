// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore

import (
	"bytes"
	"slices"

	"github.com/tenurelock/tenure/driver"
)

// Op is a kind of call. A Swap counts by its purpose.
type Op string

// The kinds of calls.
const (
	OpGet       Op = "get"
	OpClaim     Op = "claim"
	OpHeartbeat Op = "heartbeat" // a Swap, except as below
	OpSetData   Op = "set data"  // a Swap that changes Data
	OpRequest   Op = "request"   // a Swap that adds a request
	OpReserve   Op = "reserve"   // a Swap to Reserved
	OpRelease   Op = "release"   // a Swap to Released
	OpClose     Op = "close"     // a Swap to Closed
	OpTakeover  Op = "takeover"  // a Swap to another token
	OpRaise     Op = "raise"     // a Raise
	OpDelete    Op = "delete"
	OpList      Op = "list"
	// OpWatch is a call of Watch, and OpHint a hint that the inner store gives.
	// Of a fault's fields, Effect and Err count for OpWatch; Effect and Before
	// for OpHint, and a hint whose Effect is not Applied is lost.
	OpWatch Op = "watch"
	OpHint  Op = "hint"
)

// Classify returns the kind of a Swap from prev to next. A Swap with several
// purposes is the first of OpTakeover, OpRelease, OpReserve, OpClose,
// OpRequest, OpSetData.
func Classify(prev, next driver.Record) Op {
	switch {
	case next.Token != prev.Token:
		return OpTakeover
	case next.State == driver.Released:
		return OpRelease
	case next.State == driver.Reserved:
		return OpReserve
	case next.State == driver.Closed:
		return OpClose
	case driver.AddsRequest(prev, next):
		return OpRequest
	case !bytes.Equal(next.Data, prev.Data):
		return OpSetData
	default:
		return OpHeartbeat
	}
}

// IsWrite reports whether calls of this kind may change a record.
func (op Op) IsWrite() bool {
	switch op {
	case OpGet, OpList, OpWatch, OpHint:
		return false
	default:
		return true
	}
}

// Rule says which calls get which fault. The zero values of its conditions
// match every call.
type Rule struct {
	// Ops are the kinds of calls that match.
	Ops []Op
	// Key is the key of the calls that match.
	Key string
	// Match returns true for the calls that match. It may be called
	// concurrently, and may call the methods of the Store.
	Match func(Call) bool

	// Skip is how many matching calls stay as they are before the first fault.
	Skip int
	// Count is how many faults there are at most, unlimited if 0.
	Count int
	// Probability is how likely each fault is, certain if 0.
	Probability float64

	// Fault is what happens to the call.
	Fault Fault
	// Decide chooses the fault if it is not nil; Fault is not used then. It may
	// be called concurrently, and may call the methods of the Store. The zero
	// Fault does nothing, but counts.
	Decide func(Call) Fault
}

// rule is a Rule at work. Its counters are guarded by the store's mutex.
type rule struct {
	Rule
	matched, used int
}

// Inject adds rules. For each call the first rule that is due, in the order of
// injection, decides; a rule that is not due yet, or no longer, or that chance
// skips, leaves the call to the next. The function that it returns removes the
// rules.
func (s *Store) Inject(rules ...Rule) (remove func()) {
	added := make([]*rule, len(rules))
	for i, r := range rules {
		r.Ops = slices.Clone(r.Ops)
		added[i] = &rule{Rule: r}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(slices.Clone(s.rules), added...)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rules = slices.DeleteFunc(slices.Clone(s.rules), func(r *rule) bool {
			return slices.Contains(added, r)
		})
	}
}

// decide returns the fault of the call. What the user supplied runs without
// the mutex.
func (s *Store) decide(call Call) Fault {
	s.mu.Lock()
	rules, hole := s.rules, s.hole
	s.mu.Unlock()
	if hole {
		return BlackHole()
	}
	for _, r := range rules {
		if !r.matches(call) || !s.due(r) {
			continue
		}
		if r.Decide != nil {
			return r.Decide(call)
		}
		return r.Fault
	}
	return Fault{}
}

func (r *rule) matches(call Call) bool {
	return (len(r.Ops) == 0 || slices.Contains(r.Ops, call.Op)) &&
		(r.Key == "" || r.Key == call.Key) &&
		(r.Match == nil || r.Match(call))
}

// due counts a match of r and reports whether it is one with a fault.
func (s *Store) due(r *rule) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.matched++
	switch {
	case r.matched <= r.Skip:
		return false
	case r.Count > 0 && r.used >= r.Count:
		return false
	case r.Probability > 0 && s.rand.Float64() >= r.Probability:
		return false
	}
	r.used++
	return true
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Tally counts what happened in a run.
type Tally struct {
	Events      int
	Grants      int
	Takeovers   int // grants from a holder that was dead, or cut off
	Asked       int // requests that were written, and operators' writes
	LateWrites  int // applied after their sender had given them up, or a second time
	WrongClocks int // clocks that ran at a wrong rate
	Steps       int // of wall clocks, forwards
	Pauses      int // of processes
	Freezes     int // pauses of machines
	Crashes     int
	Refused     int // writes that the fence has refused
	Sessions    int // that were opened
	Closed      int // of these, by others
	Ghosts      int // locks that a session did not know of, and released when it was asked
	Disowned    int // such locks that an acquire under the session found
	Swept       int // sessions that were deleted
	Carried     int // requests in sessions' records
	Delivered   int // of these, that a lease was told of
	Unless      int // acquires that give up at a sign of life
	Alive       int // of these, that did
	Cleared     int // records of locks that were deleted
	Beside      int // acquires beside a lease of the same process
	Mixed       int // takeovers, by what has a timing of its own, of a record with another lease
	Holes       int // tenures that two crashes in a row have kept out of the history
	Offered     int // grants for clients
	Taken       int // of these, that a client has confirmed
	Unused      int // of these, that the replica has freed
	Replayed    int // calls of clients that were carried out once more, or late
	Heeded      int // clients that were asked to stop, and told
	Buried      int // locks that guardians have freed

	Seen Transitions
	// Failed is how often the work has failed.
	Failed int
	// Kept is how often a lock was reserved for a label, and Came how often one of that
	// label took it before the reservation had lapsed.
	Kept, Came int
	// Rung is how often one that waits was rung, and Hurried how often a holder was told
	// of a request.
	Rung, Hurried int
}

// Transitions are the steps of the core's machines: what a machine was doing,
// which call of it was answered, and how.
type Transitions [phases][2 * kinds][outcomes_]int

// phase is what a machine is doing when an answer reaches it.
type phase int

const (
	waiting     phase = iota // a contender
	resolving                // with a write of unknown outcome
	leaving                  // given up, and cleaning up
	working                  // a holder
	jeopardy                 // after a failure
	draining                 // the right to act has ended, and the work has not
	drained                  // after the deadline
	quiet                    // no more heartbeats
	freeing                  // the work has returned
	asking                   // an asker of a request
	afterwards               // with a write of unknown outcome
	releasing                // an operator
	opening                  // a session
	denying                  // that a session holds a lock
	clearing                 // what is left of a session
	chronicling              // a tenure that has ended
	observing
	offering // what was granted for a client
	relaying // a heartbeat of a client
	parting  // a release of a client
	burying  // what a process that crashed has left
	phases
)

var phaseNames = [phases]string{
	"waiting", "resolving", "leaving", "working", "in jeopardy", "draining", "expired", "quiet", "releasing", "asking", "asking on", "operating",
	"opening", "denying", "clearing", "chronicling", "observing", "offering", "relaying", "parting", "burying",
}

const (
	kinds     = int(protocol.Enter) + 1
	ofSession = protocol.Kind(kinds) // added to the kind of a call about the session of a lock
	outcomes_ = int(protocol.Unknown) + 1
)

// phase returns what m is doing.
func (m *machine) phase() phase {
	switch {
	case m.family != nil:
		return burying
	case m.v != nil:
		return observing
	case m.f != nil:
		return offering
	case m.r != nil && m.of.Releases():
		return parting
	case m.r != nil:
		return relaying
	case m.d != nil:
		return denying
	case m.g != nil:
		return clearing
	case m.e != nil:
		return chronicling
	case m.o != nil && m.h == nil:
		return opening
	case m.k != nil && m.unsure:
		return afterwards
	case m.k != nil && m.want.Kind != driver.StepDown && m.want.Kind != driver.HandOver:
		return releasing
	case m.k != nil:
		return asking
	case m.h == nil && m.left:
		return leaving
	case m.h == nil && m.unsure:
		return resolving
	case m.h == nil:
		return waiting
	case m.done:
		return freeing
	case m.h.Quiet():
		return quiet
	case m.h.Expired():
		return drained
	case m.h.Cause() != protocol.None:
		return draining
	case m.h.Err() != nil:
		return jeopardy
	}
	return working
}

// kindsOf are the requests that a machine makes in a phase, but for an operator's
// that closes a session again after it got no answer: others are quicker.
var kindsOf = [phases][]protocol.Kind{
	waiting:     {protocol.Look, protocol.Claim, protocol.Takeover, protocol.Ask, protocol.Release, protocol.Look + ofSession, protocol.Free + ofSession, protocol.Ask + ofSession},
	resolving:   {protocol.Look, protocol.Claim, protocol.Takeover, protocol.Ask, protocol.Release, protocol.Look + ofSession, protocol.Free + ofSession, protocol.Ask + ofSession},
	leaving:     {protocol.Look, protocol.Claim, protocol.Takeover, protocol.Ask, protocol.Release, protocol.Look + ofSession},
	working:     {protocol.Heartbeat},
	jeopardy:    {protocol.Heartbeat},
	draining:    {protocol.Heartbeat},
	drained:     {protocol.Heartbeat},
	quiet:       {protocol.Heartbeat, protocol.Quit},
	freeing:     {protocol.Heartbeat, protocol.Quit, protocol.Release},
	asking:      {protocol.Look, protocol.Ask, protocol.Look + ofSession, protocol.Ask + ofSession},
	afterwards:  {protocol.Look, protocol.Ask, protocol.Free, protocol.Look + ofSession, protocol.Ask + ofSession},
	releasing:   {protocol.Look, protocol.Free, protocol.Look + ofSession, protocol.Free + ofSession},
	opening:     {protocol.Look, protocol.Claim},
	denying:     {protocol.Look, protocol.Release},
	clearing:    {protocol.Look + ofSession, protocol.Free + ofSession, protocol.Delete + ofSession},
	chronicling: {protocol.Enter, protocol.Look, protocol.Delete},
	observing:   {protocol.Look, protocol.Look + ofSession},
	offering:    {protocol.Release},
	relaying:    {protocol.Look, protocol.Heartbeat},
	parting:     {protocol.Look, protocol.Release},
	burying:     {protocol.Look, protocol.Free},
}

// possible says whether a transition exists. A look never has an outcome that
// is unknown, and never conflicts; and a session that has been closed for long does
// not become another record before it is deleted.
func possible(k protocol.Kind, o protocol.Outcome) bool {
	if k == protocol.Delete+ofSession {
		return o != protocol.Conflicted
	}
	reads := k == protocol.Look || k == protocol.Look+ofSession
	return !reads || o == protocol.Applied || o == protocol.NotApplied
}

// rare says that a transition is one that tens of thousands of schedules may not
// show: an acquire is given up in the instant in which its call is refused, or
// what a session does not hold changes in the instant in which it is released.
func rare(p phase, k protocol.Kind, o protocol.Outcome) bool {
	return p == leaving && k == protocol.Ask && o == protocol.NotApplied ||
		p == denying && k == protocol.Release && o == protocol.Conflicted
}

// nameOf returns the name of a kind in the table.
func nameOf(k protocol.Kind) string {
	if k >= ofSession {
		return (k - ofSession).String() + " of a session"
	}
	return k.String()
}

// Add counts another run's.
func (t *Transitions) Add(u *Transitions) {
	for p := range t {
		for k := range t[p] {
			for o := range t[p][k] {
				t[p][k][o] += u[p][k][o]
			}
		}
	}
}

// Coverage returns how many of the core's transitions were seen, how many there
// are, and the names of those that were not seen.
func (t *Transitions) Coverage() (seen, all int, missing []string) {
	for p, ks := range kindsOf {
		for _, k := range ks {
			for o := protocol.Applied; o <= protocol.Unknown; o++ {
				if !possible(k, o) || rare(phase(p), k, o) {
					continue
				}
				all++
				if t[p][k][o] > 0 {
					seen++
				} else {
					missing = append(missing, fmt.Sprintf("%s: %s %s", phaseNames[p], nameOf(k), outcomes[o]))
				}
			}
		}
	}
	return seen, all, missing
}

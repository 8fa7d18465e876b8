// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Tally counts what happened in a run.
type Tally struct {
	Events int
	Of     map[Happening]int
	Seen   Transitions
}

// Happening is something that a run counts.
type Happening string

// What a run counts.
const (
	Grant          Happening = "grant"
	Takeover       Happening = "takeover"   // a grant from a holder that was dead, or cut off
	Request        Happening = "request"    // or an operator's write
	LateWrite      Happening = "late write" // or a write applied twice
	WrongClock     Happening = "wrong clock"
	Step           Happening = "step of a wall clock"
	Pause          Happening = "pause" // of a process, or its machine
	Crash          Happening = "crash"
	Refusal        Happening = "stale write refused" // by the fence
	Hole           Happening = "hole in the history" // a term that two crashes in a row have hidden
	ClosedByOthers Happening = "session closed by others"
	Orphan         Happening = "orphan"                     // a lock that a session did not know of when asked
	OrphanFound    Happening = "orphan found by an acquire" // the same, by an acquire under the session
	Swept          Happening = "session deleted"
	Carried        Happening = "request in a session"
	Delivered      Happening = "request delivered by a session"
	GrantedUnless  Happening = "grant with UnlessAlive"
	RefusedAlive   Happening = "refusal by UnlessAlive"
	Cleared        Happening = "record deleted"
	Beside         Happening = "acquire beside a lease"
	OtherLease     Happening = "takeover with another lease" // than its own, by an acquire with its own timing
	Taken          Happening = "grant confirmed by a client"
	Counted        Happening = "grant counted by a client" // without a heartbeat
	Attached       Happening = "lock attached to a client's session"
	Unused         Happening = "grant freed unused"
	Replayed       Happening = "call carried out again"
	Heeded         Happening = "client asked to stop"
	CrashReleased  Happening = "lock freed by a guardian"
	Failed         Happening = "failed work"
	Lapsed         Happening = "reservation for a label that lapses"
	Inherited      Happening = "reservation taken by its label"
	Notified       Happening = "message to a waiter"
	Hurried        Happening = "message to a holder"

	Failover     Happening = "failover" // or a restart, with loss
	OpenedGrant  Happening = "grant in an opened life"
	CutGrant     Happening = "grant at a server that is cut off"
	Survived     Happening = "heartbeat in a closed life"
	SteppedBack  Happening = "step back to an earlier beat"
	Closed       Happening = "write refused in a closed life"
	Raised       Happening = "token raised"
	SessionEnded Happening = "session ended by a new life"
	DataAgain    Happening = "lost data written again"
)

// Transitions count the steps of the core's machines: what a machine was doing, which call of
// it was answered, and how.
type Transitions map[transition]int

type transition struct {
	phase   phase
	kind    protocol.Kind
	outcome protocol.Outcome
}

// phase is what a machine is doing when an answer reaches it.
type phase string

const (
	waiting    phase = "waiting"     // an acquire
	resolving  phase = "resolving"   // with a write of unknown outcome
	leaving    phase = "leaving"     // given up and cleaning up
	working    phase = "working"     // a holder
	jeopardy   phase = "in jeopardy" // after a failure
	draining   phase = "draining"    // the right to act has ended but the work has not
	drained    phase = "expired"     // after the deadline
	quiet      phase = "quiet"       // no more heartbeats
	freeing    phase = "releasing"   // the work has returned
	asking     phase = "asking"      // a requester of a request
	afterwards phase = "asking on"   // with a write of unknown outcome
	releasing  phase = "operating"   // an operator
	opening    phase = "opening"     // a session
	denying    phase = "denying"     // that a session holds a lock
	clearing   phase = "clearing"    // what is left of a session
	recording  phase = "recording"   // a term that has ended
	observing  phase = "observing"
	offering   phase = "offering" // what was granted for a client
	relaying   phase = "relaying" // a heartbeat of a client
	parting    phase = "parting"  // a release of a client
	afterCrash phase = "releasing after a crash"
)

// phase returns what m is doing.
func (m *machine) phase() phase {
	switch {
	case m.role == asking && m.unsure:
		return afterwards
	case m.role == asking && m.want.Kind != driver.StepDown && m.want.Kind != driver.HandOver:
		return releasing
	case m.role != waiting && m.h == nil:
		return m.role
	}
	return m.leasePhase()
}

// leasePhase returns what an acquire or a lease is doing.
func (m *machine) leasePhase() phase {
	switch {
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

// ofSession is added to the kind of a call about the session of a lock.
const ofSession = protocol.HistoryPut + 1

// kindsOf are the requests that a machine makes in a phase, but for an operator's
// that closes a session again after it got no answer: others are quicker.
var kindsOf = map[phase][]protocol.Kind{
	waiting:    {protocol.Read, protocol.Claim, protocol.Takeover, protocol.Request, protocol.Release, protocol.Read + ofSession, protocol.ForceRelease + ofSession, protocol.Request + ofSession},
	resolving:  {protocol.Read, protocol.Claim, protocol.Takeover, protocol.Request, protocol.Release, protocol.Read + ofSession, protocol.ForceRelease + ofSession, protocol.Request + ofSession},
	leaving:    {protocol.Read, protocol.Claim, protocol.Takeover, protocol.Request, protocol.Release, protocol.Read + ofSession},
	working:    {protocol.Heartbeat},
	jeopardy:   {protocol.Heartbeat},
	draining:   {protocol.Heartbeat},
	drained:    {protocol.Heartbeat},
	quiet:      {protocol.Heartbeat, protocol.Abdicate},
	freeing:    {protocol.Heartbeat, protocol.Abdicate, protocol.Release},
	asking:     {protocol.Read, protocol.Request, protocol.Read + ofSession, protocol.Request + ofSession},
	afterwards: {protocol.Read, protocol.Request, protocol.ForceRelease, protocol.Read + ofSession, protocol.Request + ofSession},
	releasing:  {protocol.Read, protocol.ForceRelease, protocol.Read + ofSession, protocol.ForceRelease + ofSession},
	opening:    {protocol.Read, protocol.Claim},
	denying:    {protocol.Read, protocol.Release},
	clearing:   {protocol.Read + ofSession, protocol.ForceRelease + ofSession, protocol.Delete + ofSession},
	recording:  {protocol.HistoryPut, protocol.Read, protocol.Delete},
	observing:  {protocol.Read, protocol.Read + ofSession},
	offering:   {protocol.Release},
	relaying:   {protocol.Read, protocol.Heartbeat, protocol.Read + ofSession, protocol.Heartbeat + ofSession},
	parting:    {protocol.Read, protocol.Release, protocol.Read + ofSession, protocol.Release + ofSession},
	afterCrash: {protocol.Read, protocol.ForceRelease},
}

// possible says whether a transition exists and tens of thousands of schedules show it. A
// read never has an unknown outcome, and never conflicts; a session that has long been
// closed does not become another record before it is deleted. An acquire is rarely given
// up in the instant in which its call is refused, and an orphan rarely changes in the
// instant in which it is released.
func possible(p phase, k protocol.Kind, o protocol.Outcome) bool {
	switch {
	case k == protocol.Read, k == protocol.Read+ofSession:
		return o == protocol.Applied || o == protocol.NotApplied
	case k == protocol.Delete+ofSession, p == denying && k == protocol.Release:
		return o != protocol.Conflicted
	case p == leaving && k == protocol.Request:
		return o != protocol.NotApplied
	}
	return true
}

// Coverage returns how many of the core's transitions were seen, how many there
// are, and the names of those that were not seen.
func (t Transitions) Coverage() (seen, all int, missing []string) {
	for p, ks := range kindsOf {
		for _, k := range ks {
			for o := protocol.Applied; o <= protocol.Unknown; o++ {
				switch {
				case !possible(p, k, o):
					continue
				case t[transition{p, k, o}] > 0:
					seen++
				case k >= ofSession:
					missing = append(missing, fmt.Sprintf("%s: %s of a session %s", p, k-ofSession, outcomes[o]))
				default:
					missing = append(missing, fmt.Sprintf("%s: %s %s", p, k, outcomes[o]))
				}
				all++
			}
		}
	}
	slices.Sort(missing)
	return seen, all, missing
}

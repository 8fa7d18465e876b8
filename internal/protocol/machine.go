// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"
)

// Machine is the shape that all machines have. The package comment shows the loop
// that drives one.
type Machine interface {
	// Step advances the machine to now, and returns what to do.
	Step(now time.Duration) Action
	// Reply takes the result of the call that the latest Action asked for.
	Reply(now time.Duration, r Result) Action
	// Next returns the instant at which Step has something to do, and false if
	// it has nothing to do until another event.
	Next() (at time.Duration, due bool)
	// GiveUp ends the machine from outside: its result is not needed any more. The machine
	// goes on while it has something to clean up.
	GiveUp(now time.Duration) Action
	// Over reports whether the machine has sent its last call.
	Over() bool
}

var (
	_ Machine = (*Holder)(nil)
	_ Machine = (*Acquirer)(nil)
	_ Machine = (*Requester)(nil)
	_ Machine = (*SessionOpener)(nil)
	_ Machine = (*SessionHolder)(nil)
	_ Machine = (*OrphanReleaser)(nil)
	_ Machine = (*Reaper)(nil)
	_ Machine = (*HistoryWriter)(nil)
	_ Machine = (*Observer)(nil)
	_ Machine = (*RemoteWrite)(nil)
	_ Machine = (*UnconfirmedGrant)(nil)
	_ Machine = (*SessionLook)(nil)
)

// Cause says why the right to act ended.
type Cause int

// Stopped comes from outside. The machine finds the others by itself, or is told by its driver
// ([Holder.Expire], [Holder.HandOver], [Holder.Replace]).
const (
	None       Cause = iota
	Stopped          // asked to stop: released, closed, the caller's context
	Expired          // the deadline passed without a confirmed heartbeat
	Superseded       // the record is another holder's, or gone
	Stalled          // the work showed no progress
	Asked            // asked to stop by a request in the record
)

func (c Cause) String() string {
	return [...]string{"none", "stopped", "expired", "superseded", "stalled", "asked"}[c]
}

// Note reports a change to people. The protocol does not depend on it.
type Note int

// The notes of a holder.
const (
	NoteRenewed  Note = iota + 1 // a write was confirmed
	NoteJeopardy                 // the last heartbeat failed and the deadline is approaching
	NoteSafe                     // a write was confirmed after jeopardy
	NoteEnded                    // the right to act ended: see Cause
	NoteQuiet                    // the work outlasted the stop timeout; no more heartbeats
	NoteOver                     // nothing will be sent any more: see Freed
)

func (n Note) String() string {
	return [...]string{"none", "renewed", "jeopardy", "safe", "ended", "quiet", "over"}[n]
}

// Action is what a machine asks its driver to do.
type Action struct {
	// Call is the call to send, or nil. A machine has at most one call under way.
	Call  *Call
	Notes []Note
	// Wake lists other machines to step now.
	Wake []Machine
	// Begin lists new machines to drive from now on.
	Begin []Machine
}

// note adds a note. Most actions have at most one, which needs no allocation.
func (a *Action) note(n Note) {
	if a.Notes == nil {
		a.Notes = single[n : n+1 : n+1]
		return
	}
	a.Notes = append(a.Notes, n)
}

// single has each note at its own index. An append to a slice of it copies.
var single = [...]Note{0, NoteRenewed, NoteJeopardy, NoteSafe, NoteEnded, NoteQuiet, NoteOver}

// Freed says in what state the holder left the record.
type Freed int

// How a record was left.
const (
	NotFreed  Freed = iota // not yet, or never tried
	Released               // released by this holder
	Gone                   // another holder's, or deleted
	Uncertain              // the store did not answer the release in time
	Kept                   // certainly no release was applied: the record expires by itself
)

func (f Freed) String() string {
	return [...]string{"not freed", "released", "gone", "uncertain", "kept"}[f]
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"
)

// Machine is the shape that all machines have. The package comment shows the loop
// that drives one.
type Machine interface {
	// Step lets time pass until now, and returns what is to be done.
	Step(now time.Duration) Action
	// Reply takes the result of the call that the latest Action asked for.
	Reply(now time.Duration, r Result) Action
	// Next returns the instant at which Step has something to do, and false if
	// it has nothing to do until another event.
	Next() (at time.Duration, due bool)
	// GiveUp ends the machine from outside: nobody needs its result any more. It
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
)

// Cause says why the right to act ended.
type Cause int

// The causes that the machine itself finds; Stopped is given from outside.
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

// Note is something that people want to know. The protocol does not depend on
// anybody reading it.
type Note int

// The notes of a holder.
const (
	NoteRenewed  Note = iota + 1 // a write was confirmed
	NoteJeopardy                 // the last heartbeat failed and the deadline comes closer
	NoteSafe                     // a write was confirmed after jeopardy
	NoteEnded                    // the right to act ended: see Cause
	NoteQuiet                    // the work outlasted the stop timeout; no more heartbeats
	NoteOver                     // nothing will be sent any more: see Release
)

func (n Note) String() string {
	return [...]string{"none", "renewed", "jeopardy", "safe", "ended", "quiet", "over"}[n]
}

// Action is what a machine wants done.
type Action struct {
	// Call is the call to send, nil for none. A machine has at most one under way.
	Call  *Call
	Notes []Note
	// Wake are other machines that have something to do now: step each.
	Wake []Machine
	// Begin are new machines, to be driven from now on.
	Begin []Machine
}

// note adds a note. Most actions have one at most, which is not allocated.
func (a *Action) note(n Note) {
	if a.Notes == nil {
		a.Notes = single[n : n+1 : n+1]
		return
	}
	a.Notes = append(a.Notes, n)
}

// single has each note at its own index. An append to a part of it copies.
var single = [...]Note{0, NoteRenewed, NoteJeopardy, NoteSafe, NoteEnded, NoteQuiet, NoteOver}

// Freed says in what state the holder left the record.
type Freed int

// How a record was left.
const (
	NotFreed  Freed = iota // not yet, or never tried
	Released               // released by this holder
	Gone                   // another holder's, or deleted
	Uncertain              // the store did not answer the release in time
	Kept                   // certainly no release was applied: the record runs out by itself
)

func (f Freed) String() string {
	return [...]string{"not freed", "released", "gone", "uncertain", "kept"}[f]
}

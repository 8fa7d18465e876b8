// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"encoding/json"
	"time"
)

// State is the outcome of a run.
type State string

// The states of a run.
const (
	// StateRunning: it was begun, and its holder may be at work.
	StateRunning State = "running"
	// StateDone: the work returned nil.
	StateDone State = "done"
	// StateFailed: the work returned an error or panicked, or its time was up.
	StateFailed State = "failed"
	// StateUnknown: it was begun, and its end was not written: the holder crashed, lost
	// its lease, or could not reach the store. The work may have been done, in part or
	// not at all.
	StateUnknown State = "unknown"
	// StateReset: no run. An operator has opened this slot again, or all of them if
	// it is the lowest number; Error has the reason.
	StateReset State = "reset"
	// StateChanged: no run. The schedule was changed, and all up to this slot count
	// as begun; Error has the new one.
	StateChanged State = "changed"
)

// Run is one run, as the ledger has it.
type Run struct {
	// Slot is the slot of [Once], or the number of the period of [Every].
	Slot  int64
	State State
	// Token and Owner are those of the holder that ran it.
	Token uint64
	Owner string
	// Begun and Ended are by the wall clock of that holder, for people. Ended is
	// zero if the end is not known.
	Begun, Ended time.Time
	// Took is how long the work took, by elapsed time; 0 if the end is not known.
	Took time.Duration
	// Attempts is how often the work was started: more than 1 with
	// [Options.Retries]. 0 if the end is not known.
	Attempts int
	// Exit is the exit status of work that failed, if its error has a method ExitCode()
	// int, as [os/exec.ExitError] does; otherwise 0.
	Exit int
	// Error is the text of the error of work that failed, cut to 200 bytes.
	Error string
	// Missed is how many slots between the previous run and this one were never begun, as
	// far as [Options.Between] listed or counted them.
	Missed int
	// Left is what the work has left behind, if [Turn.Ended] wrote that before the work
	// returned, and nothing was written since.
	Left string
}

// Scheduled returns the time that the slot stands for, if it is a [Minute] less than a year
// from when the run was begun. Other slots, and numbers of periods, stand for none.
func (r Run) Scheduled() (time.Time, bool) {
	const year, longest = 366 * 24 * time.Hour, 1 << 40 // which package time can compute with
	if r.Begun.IsZero() || r.Slot < -longest || r.Slot > longest {
		return time.Time{}, false
	}
	at := MinuteTime(r.Slot)
	return at, at.Sub(r.Begun).Abs() < year
}

// MarshalJSON writes the run with the names slot, state, token, owner, begun,
// ended, took_seconds, attempts, exit_status, error, missed and left. Times are RFC 3339
// in UTC. Unknown values are left out; exit_status is there for a run that is done, or
// that failed with an exit status.
func (r Run) MarshalJSON() ([]byte, error) {
	out := struct {
		Slot     int64    `json:"slot"`
		State    State    `json:"state"`
		Token    uint64   `json:"token,omitempty"`
		Owner    string   `json:"owner,omitempty"`
		Begun    *string  `json:"begun,omitempty"`
		Ended    *string  `json:"ended,omitempty"`
		Took     *float64 `json:"took_seconds,omitempty"`
		Attempts int      `json:"attempts,omitempty"`
		Exit     *int     `json:"exit_status,omitempty"`
		Error    string   `json:"error,omitempty"`
		Missed   int      `json:"missed,omitempty"`
		Left     string   `json:"left,omitempty"`
	}{
		Slot: r.Slot, State: r.State, Token: r.Token, Owner: r.Owner, Begun: jsonTime(r.Begun), Ended: jsonTime(r.Ended),
		Attempts: r.Attempts, Error: r.Error, Missed: r.Missed, Left: r.Left,
	}
	if r.State == StateDone || r.State == StateFailed {
		took := r.Took.Seconds()
		out.Took = &took
		if r.State == StateDone || r.Exit != 0 {
			out.Exit = &r.Exit
		}
	}
	return json.Marshal(out)
}

func jsonTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(time.RFC3339)
	return &s
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import "time"

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
	_ Machine = (*Contender)(nil)
	_ Machine = (*Asker)(nil)
	_ Machine = (*Opener)(nil)
	_ Machine = (*Keeper)(nil)
	_ Machine = (*Disclaimer)(nil)
	_ Machine = (*Reaper)(nil)
	_ Machine = (*Chronicler)(nil)
	_ Machine = (*Observer)(nil)
	_ Machine = (*Relay)(nil)
	_ Machine = (*Offer)(nil)
)

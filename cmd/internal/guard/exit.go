// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"syscall"
)

// Reason says why a command was made to end.
type Reason int

const (
	// Ended means that nobody made it: the command and all that it started ended by themselves.
	Ended Reason = iota
	// Stopped means that [Guard.Stop] was called while something was alive.
	Stopped
	// Overdue means that [Limits.Term] passed while something was alive.
	Overdue
	// Abandoned means that the guardian died, and everything was killed for it.
	Abandoned
)

func (r Reason) String() string {
	switch r {
	case Ended:
		return "ended by itself"
	case Stopped:
		return "stopped on request"
	case Overdue:
		return "past its deadline"
	case Abandoned:
		return "lost its guardian"
	}
	return fmt.Sprintf("Reason(%d)", int(r))
}

// Exit is what became of a command.
type Exit struct {
	// Code is the command's exit code, -1 if a signal ended it.
	Code int
	// Signal is the signal that ended the command, or 0.
	Signal syscall.Signal
	// Reason says whether the family was made to end. The command's own status is kept
	// beside it: a command may end well and leave something behind that has to be killed.
	Reason Reason
	// Killed is set when something was still alive at the kill instant.
	Killed bool
	// GuardianLost is set when the guardian died, or did not answer and was killed.
	GuardianLost bool
}

// Status is the exit status as a shell shows it: the code, or 128 + the signal.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

func (e Exit) String() string {
	s := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != 0 {
		s = fmt.Sprintf("signal %d (%v)", int(e.Signal), e.Signal)
	}
	if e.Reason != Ended {
		s += ", " + e.Reason.String()
	}
	if e.Killed {
		s += ", killed"
	}
	if e.GuardianLost && e.Reason != Abandoned {
		s += ", guardian lost"
	}
	return s
}

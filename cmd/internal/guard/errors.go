// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
)

// Errors of [Start] and [Command.Find]. They are matched with [errors.Is].
var (
	// ErrNotFound is returned when there is no such command. A shell's status for it is 127.
	ErrNotFound = errors.New("command not found")

	// ErrCannotRun is returned when the command is there but the kernel does not run it:
	// not executable, a directory, another machine's format, arguments too long.
	// A shell's status for it is 126.
	ErrCannotRun = errors.New("command cannot run")

	// ErrContain is returned when the kernel refuses the namespaces of [Command.Contain].
	// The text says what to do; the command was not started.
	ErrContain = errors.New("contain refused")

	// ErrProc is returned where /proc is missing, or is not that of this process's pid namespace: nothing
	// of a command could be found there, and strangers would be signalled in its place. The text says what
	// to do; the command was not started. Linux only.
	ErrProc = errors.New("no usable /proc")

	// ErrTooLate is returned when the first limits had passed before the command was started.
	ErrTooLate = errors.New("deadline passed before the command was started")

	// ErrOverdue is returned when the limits passed while the guardian was starting the
	// command, and it was killed for that. It is not known whether the command had begun;
	// nothing is left running.
	ErrOverdue = errors.New("deadline passed while the command was being started")

	// ErrUnsupported is returned where this system cannot do what was asked for.
	ErrUnsupported = errors.New("not supported on this system")

	// ErrBusy is returned when another guard is under way. There is one at a time in a
	// process, because orphans are inherited by the process, not by a guard.
	ErrBusy = errors.New("another command is under guard in this process")

	// ErrGuardian is returned when the guardian could not be started, or died before
	// it had started the command. Nothing is left running.
	ErrGuardian = errors.New("guardian not running")
)

// errGuardianEnded is an ErrGuardian: it was killed, or could not begin. With too many processes
// or too little memory a program in Go ends so.
var errGuardianEnded = fmt.Errorf("%w: it ended before it had started the command", ErrGuardian)

// StartStatus returns the exit status that shells give to an error of [Start]: 127 for a
// command not found, 126 for one that cannot run, and 0 for any other error and for nil.
func StartStatus(err error) int {
	switch {
	case errors.Is(err, ErrNotFound):
		return 127
	case errors.Is(err, ErrCannotRun):
		return 126
	}
	return 0
}

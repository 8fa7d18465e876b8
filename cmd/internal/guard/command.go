// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
)

// Command is what to run. Standard input, output and error are inherited, as is every
// other descriptor that the caller was itself started with.
type Command struct {
	// Args are the command's name and arguments. A name without a slash is looked up in
	// the PATH of Env.
	Args []string

	// Env is the environment. If nil, the caller's own.
	Env []string

	// Dir is the working directory. If empty, the caller's own.
	Dir string

	// Contain makes the guardian process 1 of a new pid namespace, so that the kernel
	// kills whatever is left when the guardian dies. Without the right to do so
	// (CAP_SYS_ADMIN) a user namespace comes with it, in which only the caller's own user
	// and group exist: sudo and other set-user-ID programs do not work there. Linux only.
	Contain bool

	// Last, if not empty, are the name and the arguments with which the guardian executes
	// this program once more, in its own place, when the caller has ended before it: killed,
	// most likely. It does so when nothing is left of the command and all that it has
	// started, as wait4 says, and the caller's process has certainly ended too. Two arguments
	// are appended: the [Instant] of that, and the latest Limits.Expiry that has reached the
	// guardian; see [ParseInstant]. The environment and the folder are the command's; standard
	// input, output and error are the null device. People see Last in ps, from the start on.
	//
	// There is no such proof, and Last is not executed, where the guardian has died before,
	// in a namespace on Linux before 5.3, and on other systems.
	Last []string

	// Notify, if not nil, is told of what a person may want to know while the command
	// runs. Calls come one at a time from a goroutine of their own: a slow Notify holds up
	// no deadline, but loses notices, and holds up the return of [Guard.Wait], which it must
	// not call.
	Notify func(Notice)
}

// Find returns the path of the program that [Start] would run, or an error that matches
// [ErrNotFound] or [ErrCannotRun]. A caller that has to wait for its lock looks first.
func (c *Command) Find() (string, error) { return c.find() }

func (c *Command) environ() []string {
	if c.Env == nil {
		return os.Environ()
	}
	return c.Env
}

// NoticeKind tells notices apart.
type NoticeKind int

const (
	// Awaiting: the command has ended, but left processes behind, which are waited for.
	// First sent after about a second, then every half minute.
	Awaiting NoticeKind = iota + 1
	// Terminating: SIGTERM was sent to everything.
	Terminating
	// Suspended: the command was stopped from the terminal, and the caller is about to
	// stop itself. Heartbeats cease, the limits stand.
	Suspended
	// Resumed: the caller was continued within the limits, and continues the command.
	Resumed
	// GuardianLost: the guardian died before its time. Everything is killed at once.
	GuardianLost
)

func (k NoticeKind) String() string {
	switch k {
	case Awaiting:
		return "awaiting"
	case Terminating:
		return "terminating"
	case Suspended:
		return "suspended"
	case Resumed:
		return "resumed"
	case GuardianLost:
		return "guardian lost"
	}
	return "unknown"
}

// Notice is something that a person may want to know while a command runs.
type Notice struct {
	Kind NoticeKind
	// Processes are those awaited, and Exit is how the command has ended, for Awaiting.
	Processes []Process
	Exit      Exit
}

// Process is a living descendant of the command.
type Process struct {
	PID  int
	Name string
}

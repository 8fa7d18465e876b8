// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Command is what to run. Standard input, output and error are inherited, as is every
// other descriptor that the caller was itself started with.
type Command struct {
	// Args are the command's name and arguments. A name without a slash is looked up in
	// the PATH of Env.
	Args []string

	// Env is the environment. If nil, the caller's own.
	Env []string

	// Contain makes the guardian process 1 of a new pid namespace, so that the kernel
	// kills all remaining processes when the guardian dies. Without the right to do so
	// (CAP_SYS_ADMIN) a user namespace is created, too, in which only the caller's own user
	// and group exist: sudo and other set-user-ID programs do not work there. Linux only.
	Contain bool

	// Last, if not empty, are the name and the arguments with which the guardian executes
	// this program once more, in its own place, when the caller has ended before it: killed,
	// most likely. It does so when nothing is left of the command and all that it has
	// started, as wait4 says, and the caller's process has certainly ended too. Two arguments
	// are appended: the [Instant] of that, and the latest Limits.Expiry that has reached the
	// guardian; see [ParseInstant]. The environment is the command's; standard
	// input, output and error are the null device. People see Last in ps, from the start on.
	//
	// There is no such proof, and Last is not executed, where the guardian has died before,
	// in a namespace on Linux before 5.3, and on other systems.
	Last []string

	// Notify, if not nil, is called with what a person may want to know while the command
	// runs. Calls come one at a time from a goroutine of their own: a slow Notify holds up
	// no deadline, but loses notices, and holds up the return of [Guard.Wait], which it must
	// not call.
	Notify func(Notice)
}

// Find returns the path of the program that [Start] would run, or an error that matches
// [ErrNotFound] or [ErrCannotRun]. A caller that has to wait for its lock calls it first.
func (c *Command) Find() (string, error) { return c.find() }

func (c *Command) environ() []string {
	if c.Env == nil {
		return os.Environ()
	}
	return c.Env
}

// NoticeKind is the kind of a notice. People and programs read it in events.
type NoticeKind string

const (
	// Awaiting: the command has ended, but left processes behind that have not.
	// First sent after about a second, then every half minute.
	Awaiting NoticeKind = "awaiting"
	// Terminating: SIGTERM was sent to everything.
	Terminating NoticeKind = "terminating"
	// Suspended: the command was stopped from the terminal, and the caller is about to
	// stop itself. Heartbeats cease, the limits stand.
	Suspended NoticeKind = "suspended"
	// Resumed: the caller was continued within the limits, and continues the command.
	Resumed NoticeKind = "resumed"
	// GuardianLost: the guardian died before its time. Everything is killed at once.
	GuardianLost NoticeKind = "guardian_lost"
)

// Notice is something that a person may want to know while a command runs.
type Notice struct {
	Kind NoticeKind
	// Processes are the remaining processes, and Exit is how the command ended, for Awaiting.
	Processes []Process
	Exit      Exit
}

// Process is a living descendant of the command.
type Process struct {
	PID  int
	Name string
}

// Instant is a reading of [Now] in nanoseconds. Readings are comparable
// between the processes of one machine until it restarts, and mean nothing elsewhere.
type Instant int64

// Add returns the instant d after t.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// ParseInstant reads an instant as the arguments of [Command.Last] have it.
func ParseInstant(s string) (Instant, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%.40q is not a clock reading", s)
	}
	return Instant(n), nil
}

// Limits say until when a command may live.
type Limits struct {
	// Term is the deadline of the work: everything is sent SIGTERM.
	Term Instant
	// Kill is the instant at which everything still alive is sent SIGKILL. Its distance
	// to Expiry is the time that killing may take on a busy machine.
	Kill Instant
	// Expiry is the instant after which others may be at work. A caller that is found
	// stopped then is continued, so that it can report the loss.
	Expiry Instant
}

func (l Limits) check() error {
	if l.Term > l.Kill || l.Kill > l.Expiry {
		return fmt.Errorf("limits out of order: want term <= kill <= expiry, "+
			"have kill %v after term and expiry %v after kill",
			l.Kill.Sub(l.Term), l.Expiry.Sub(l.Kill))
	}
	return nil
}

// orders are what a guardian and a watchdog obey: the limits, and whether the
// command was asked to stop before they are reached.
type orders struct {
	Limits
	// stop is 0, or the instant given to [Guard.Stop].
	stop Instant
}

// ask notes that the command is to stop, and be killed at an instant at the latest. What was
// asked for before can only become earlier.
func (o *orders) ask(kill Instant) {
	kill = max(kill, 1)
	if o.stop != 0 {
		kill = min(kill, o.stop)
	}
	o.stop = kill
}

// term reports whether SIGTERM is due.
func (o orders) term(now Instant) bool { return o.stop != 0 || now >= o.Term }

// kill is the instant at which SIGKILL is due. The lease bounds what Stop was given.
func (o orders) kill() Instant {
	if o.stop != 0 {
		return min(o.stop, o.Kill)
	}
	return o.Kill
}

// scansEnd is how long the family may be kept stopped for SIGTERM to reach all of it: for
// a quarter of the time until SIGKILL.
func (o orders) scansEnd() Instant {
	now := Now()
	return now.Add(o.kill().Sub(now) / 4)
}

// reason is why the command has to end: what was known before counts more.
func (o orders) reason(before Reason) Reason {
	switch {
	case before != Ended:
		return before
	case o.stop != 0:
		return Stopped
	}
	return Overdue
}

// Reason says why a command was made to end.
type Reason int

const (
	// Ended means that the command and all processes that it started ended by themselves.
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
	// Reason says whether and why the family was ended. The command's own status is separate:
	// a command may end well and leave processes behind that must be killed.
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

	// ErrProc is returned if /proc is missing, or belongs to another pid namespace: the
	// processes of a command could not be found there, and other processes would be signalled
	// instead. The text says what to do; the command was not started. Linux only.
	ErrProc = errors.New("no usable /proc")

	// ErrTooLate is returned when the first limits had passed before the command was started.
	ErrTooLate = errors.New("deadline passed before the command was started")

	// ErrOverdue is returned when the limits passed while the guardian was starting the
	// command, and it was killed for that. It is not known whether the command had begun;
	// nothing is left running.
	ErrOverdue = errors.New("deadline passed while the command was being started")

	// ErrUnsupported is returned where this system cannot do what was asked for.
	ErrUnsupported = errors.New("not supported on this system")

	// ErrBusy is returned while another guard is running. A process has one guard at a time,
	// because the process inherits orphans, not a guard.
	ErrBusy = errors.New("this process already guards another command")

	// ErrGuardian is returned when the guardian could not be started, or died before
	// it had started the command. Nothing is left running.
	ErrGuardian = errors.New("guardian not running")
)

// errGuardianEnded is an ErrGuardian: it was killed, or could not begin. With too many processes
// or too little memory a program in Go ends so.
var errGuardianEnded = fmt.Errorf("%w: it ended before it had started the command", ErrGuardian)

// StartStatus returns the exit status that shells give to an error of [Start]: 127 for a
// command not found, 126 for a command that cannot run, and 0 for other errors and for nil.
func StartStatus(err error) int {
	switch {
	case errors.Is(err, ErrNotFound):
		return 127
	case errors.Is(err, ErrCannotRun):
		return 126
	}
	return 0
}

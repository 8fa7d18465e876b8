// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/internal/text"
)

// The sentinels have the names and meanings of those of package tenure. They are other values, as that
// package has the engine for stores with it.
var (
	// ErrHeld is matched when another holder has the lock and the caller does not want to wait, or not
	// any longer. That is ordinary: try again later, or do something else. See [HeldError].
	ErrHeld = errors.New("held")

	// ErrLost is matched by every end that the holder did not ask for. The work must stop, and must not
	// assume that it was the only holder.
	ErrLost = errors.New("lease lost")

	// ErrExpired says that the deadline passed without a confirmed heartbeat: no server could be
	// reached, or the process was paused. It matches ErrLost.
	ErrExpired = fmt.Errorf("%w: expired", ErrLost)

	// ErrSuperseded says that the service has refused a heartbeat: the lock is another holder's, or
	// free. It matches ErrLost.
	ErrSuperseded = fmt.Errorf("%w: superseded", ErrLost)

	// ErrStopTimeout says that the work under a lock of a session had not returned
	// [Options.StopTimeout] after the holder was asked to stop. The session releases the lock one lease
	// later.
	ErrStopTimeout = errors.New("the work did not stop in time")

	// ErrSteppedDown is matched by the cause of a lease's context when its holder was asked to step
	// down or to hand over: see [StepDownError]. Nothing was lost.
	ErrSteppedDown = errors.New("asked to step down")

	// ErrReleased says that [Lease.Release] was called.
	ErrReleased = errors.New("lease released")

	// ErrSessionClosed says that [Session.Close] was called, or that the session has ended otherwise.
	ErrSessionClosed = errors.New("session closed")

	// ErrClosed says that [Client.Close] was called.
	ErrClosed = errors.New("client closed")

	// ErrUncertain is matched when no answer to a release came. The lock is released, or expires by
	// itself.
	ErrUncertain = errors.New("no answer to the release")

	// ErrInvalid is matched by the errors of arguments that break a rule. They say which rule, and
	// nothing was sent. It is the ErrInvalid of package tenure.
	ErrInvalid = text.ErrInvalid

	// ErrUnavailable is matched when no server has given an answer. Nothing is held.
	ErrUnavailable = errors.New("no server has answered")

	// ErrNoSessions is matched when the store of the servers keeps no sessions, or may lose writes:
	// acquire single locks, by [Client.Acquire].
	ErrNoSessions = errors.New("the store of the service keeps no sessions: acquire single locks with Client.Acquire")
)

// Error is an error of an operation. Every error of this package is of this type, except for bare
// context errors, causes of contexts, and those of [New].
type Error struct {
	// Op is the operation, such as "acquire" or "release".
	Op string
	// Key is the name of the lock; "session" and its id for a session.
	Key string
	// Err is the reason.
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %.200q: %v", e.Op, e.Key, e.Err) }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

func wrap(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{op, key, err}
}

// HeldError says who has the lock. It matches [ErrHeld].
type HeldError struct {
	// Owner and Token are those of the holder.
	Owner string
	Token uint64
	// FreeIn is how long the lock stays held at most if this holder is dead. A living holder keeps it
	// longer.
	FreeIn time.Duration
	// Reserved says that the lock is reserved for Owner after a hand-over or, if Owner is empty, for
	// every process with Label. If both are empty, an operator has revoked it.
	Reserved bool
	Label    string
}

func (e *HeldError) Error() string {
	free := e.FreeIn.Round(time.Millisecond)
	switch {
	case e.Reserved && e.Label != "":
		return fmt.Sprintf("reserved for label %q after token %d; free in %v at the latest", e.Label, e.Token, free)
	case e.Reserved && e.Owner == "":
		return fmt.Sprintf("revoked from its holder under token %d; free in %v", e.Token, free)
	case e.Reserved:
		return fmt.Sprintf("reserved for %q after token %d; free in %v at the latest", e.Owner, e.Token, free)
	}
	return fmt.Sprintf("held by %q under token %d; free in %v at the latest if it is dead", e.Owner, e.Token, free)
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// StepDownError is the cause of a lease's context when its holder was asked to make way. It matches
// [ErrSteppedDown].
type StepDownError struct {
	// By is the name of the requester, and Reason says why it asked.
	By, Reason string
	// To is the owner that gets the lock next, and ToLabel the label of the processes that may. Both
	// are empty if any contender may take it.
	To, ToLabel string
}

func (e *StepDownError) Error() string {
	way := "step down"
	switch {
	case e.To != "":
		way = fmt.Sprintf("hand over to %q", e.To)
	case e.ToLabel != "":
		way = fmt.Sprintf("hand over to label %q", e.ToLabel)
	}
	return fmt.Sprintf("asked by %q to %s: %s", e.By, way, e.Reason)
}

// Is reports whether target is [ErrSteppedDown].
func (e *StepDownError) Is(target error) bool { return target == ErrSteppedDown }

// ProblemError is a refusal by the service that a retry does not change, such as a missing right.
type ProblemError struct {
	// Kind is the last part of the problem's type, such as "forbidden". docs/reference/service.md
	// lists them.
	Kind string
	// Status is the HTTP status, and Detail says what to do.
	Status int
	Detail string
}

func (e *ProblemError) Error() string { return fmt.Sprintf("%s (%d): %s", e.Kind, e.Status, e.Detail) }

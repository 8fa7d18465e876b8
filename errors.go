// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
)

// Errors of acquiring.
var (
	// ErrHeld is matched by the error that is returned when another holder has the lock
	// and the caller does not want to wait, or not any longer. That is ordinary: try again
	// later, or do something else. See [HeldError].
	ErrHeld = errors.New("held")

	// ErrUnreadable is returned when the record of the lock is there, but its lease
	// or its state cannot be understood. Such a record is never taken over, because its
	// holder may be alive. Check the record, and which program wrote it.
	ErrUnreadable = driver.ErrUnreadable

	// ErrNoLeader is returned by [Election.Leader] when there is no leader.
	ErrNoLeader = errors.New("no leader")
)

// Errors that say why a lease ended. They are the causes of the contexts of a lease;
// [Lease.Check] returns them once the right to act has ended.
var (
	// ErrLost is matched by every end that the holder did not ask for. The work must stop,
	// and must not assume that it was the only holder.
	ErrLost = engine.ErrLost

	// ErrExpired says that the deadline passed without a confirmed heartbeat: the
	// store could not be reached, or the process was paused. It matches ErrLost.
	ErrExpired = engine.ErrExpired

	// ErrSuperseded says that the record is another holder's, or gone. It matches ErrLost.
	ErrSuperseded = engine.ErrSuperseded

	// ErrStalled says that the work showed no progress for
	// [Options.ProgressTimeout]. It matches ErrLost.
	ErrStalled = engine.ErrStalled

	// ErrStopTimeout says that the work had not returned [Options.StopTimeout] after it
	// was told to stop. Heartbeats have ended, the lock was not released, and the record
	// expires by itself: another holder may then begin while the work still runs.
	ErrStopTimeout = engine.ErrStopTimeout

	// ErrSteppedDown is matched by the cause of a lease's context when its holder was
	// asked to step down or to hand over: see [StepDownError]. The work stops, and the
	// lock is released; nothing was lost.
	ErrSteppedDown = errors.New("asked to step down")

	// ErrUnhealthy says that [ElectionOptions.Health] has failed too often in a row. It is
	// the cause of the context of the work, and [Election.Run] returns it. The lease
	// itself stays valid until the work has returned.
	ErrUnhealthy = errors.New("unhealthy")

	// ErrReleased says that [Lease.Release] was called.
	ErrReleased = engine.ErrReleased

	// ErrSessionClosed says that [Session.Close] was called. The errors of calls
	// under a session that has ended for any reason match it too.
	ErrSessionClosed = engine.ErrSessionClosed

	// ErrClosed says that the client was closed. All calls after [Client.Close]
	// return it.
	ErrClosed = engine.ErrClosed
)

// Errors of calls on a lease.
var (
	// ErrTooLate is returned by [Lease.Do] when less of the lease remains than the work
	// needs. The work was not run.
	ErrTooLate = errors.New("not enough of the lease remains")

	// ErrNotReleased is matched when the store has refused every attempt to release
	// the lock, for a lease duration, so that certainly none was applied. The record
	// expires by itself.
	ErrNotReleased = engine.ErrNotReleased

	// ErrUncertain is matched when the store did not answer a write. The write may
	// have happened, or may still happen.
	ErrUncertain = engine.ErrUncertain
)

// Errors of asking a holder.
var (
	// ErrNotHeld is returned when there is no holder to ask: the lock is free or reserved,
	// or another holder has taken it meanwhile.
	ErrNotHeld = engine.ErrNotHeld

	// ErrRequested is matched by the error that is returned when the holder has a request
	// already. A lock carries one request at a time. See [RequestedError].
	ErrRequested = errors.New("already asked")

	// ErrUnanswered is returned when the request is in the record, but the holder has not
	// honoured it: the context of the call ended before that, or the holder shows no sign
	// of life. The request stays. A contender takes over a dead holder's lock, as always;
	// or see admin.ReleaseDead.
	ErrUnanswered = engine.ErrUnanswered

	// ErrForeign is returned when the record was written by a client that does
	// not understand requests.
	ErrForeign = engine.ErrForeign

	// ErrAlive is returned by admin.ReleaseDead when the holder shows life.
	// Ask it to step down, or see admin.Revoke. admin.RaiseTokens returns it when any
	// program shows life: stop all of them.
	ErrAlive = engine.ErrAlive

	// ErrTokenLimit is matched by the error of admin.RaiseTokens if a token would
	// be higher than the highest. Nothing was written: raise by a smaller number.
	ErrTokenLimit = errors.New("no token is so high")
)

// Errors of all calls.
var (
	// ErrInvalid is matched by the errors of arguments that break a rule, such as the
	// name of a lock that is too long. They say which rule, and nothing was done.
	ErrInvalid = text.ErrInvalid

	// ErrPermanent is matched by errors of the store that a retry does not fix, such as a
	// missing table or permission. They end a call at once as long as the store has never
	// given this client a good answer: a read or a write that succeeded, or a write that
	// lost the race against another process. After a good answer they count as incidents,
	// and do not match ErrPermanent: they are reported, and the call is retried, as after
	// any other error.
	ErrPermanent = driver.ErrPermanent

	// ErrReplaced is matched by the errors of all calls once the store was replaced: its
	// file was deleted or exchanged, so that other processes find another store under its
	// name. All leases and sessions have then ended, as superseded, and so has all
	// waiting. Open the store again, and make a new client.
	ErrReplaced = driver.ErrReplaced
)

// Error is an error of an operation on a lock. Every error of this package that
// concerns one lock is of this type, except for bare context errors.
type Error struct {
	// Op is the operation, such as "acquire" or "release".
	Op string
	// Key is the name of the lock, or the prefix of a list.
	Key string
	// Err is the reason.
	Err error
}

func (e *Error) Error() string {
	key := e.Key
	if key == "" && (e.Op == "list" || e.Op == "raise tokens") { // for all locks
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	if len(key) > maxShown {
		key = key[:maxShown] + "..." // an invalid name can be of any length
	}
	return fmt.Sprintf("%s %q: %v", e.Op, key, e.Err)
}

// maxShown is how many bytes of a name an error shows.
const maxShown = 200

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// HeldError says who has the lock. It matches [ErrHeld].
type HeldError struct {
	// Owner and Token are those of the holder.
	Owner string
	Token uint64
	// FreeIn is how long the lock stays held at most if this holder is dead. A living
	// holder keeps it longer.
	FreeIn time.Duration
	// Own says that this client itself holds the lock: another part of the program has it,
	// and the caller waits for that part.
	Own bool
	// Reserved says that the lock is reserved for Owner after a hand-over or, if Owner is
	// empty, for every process with Label. If both are empty, an operator has revoked the
	// lock, and it stays blocked until its holder has certainly stopped.
	Reserved bool
	// Label is the label that the lock is reserved for, if it is not reserved for an
	// Owner; otherwise empty.
	Label string
	// Failover says that the store may have lost who holds the lock: see
	// [Options.LossyStore]. Reserved is true, and Owner and Label are empty.
	Failover bool
}

func heldError(rec driver.Record, freeIn time.Duration, own bool) error {
	e := &HeldError{Owner: rec.Owner, Token: rec.Token, FreeIn: freeIn, Own: own, Reserved: rec.State == driver.Reserved}
	e.Failover = protocol.InClosedLife(rec)
	if e.Reserved && e.Owner == "" {
		e.Label = rec.Label
	}
	return e
}

func (e *HeldError) Error() string {
	switch free := e.FreeIn.Round(time.Millisecond); {
	case e.Failover:
		return fmt.Sprintf("the store has failed over or restarted, and may have lost who holds the lock; free in %v, "+
			"when any such holder has certainly stopped", free)
	case e.Reserved && e.Label != "":
		return fmt.Sprintf("reserved for label %q after token %d; free in %v at the latest if no process with that label takes it", e.Label, e.Token, free)
	case e.Reserved && e.Owner == "":
		return fmt.Sprintf("revoked from its holder under token %d; free in %v, when that holder has certainly stopped", e.Token, free)
	case e.Reserved:
		return fmt.Sprintf("reserved for %q after token %d; free in %v at the latest if that owner does not take it", e.Owner, e.Token, free)
	case e.Own:
		return fmt.Sprintf("held by this client itself, %q, under token %d; free when its lease is released", e.Owner, e.Token)
	}
	return fmt.Sprintf("held by %q under token %d; free in %v at the latest if it is dead", e.Owner, e.Token, e.FreeIn.Round(time.Millisecond))
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// SupersededError says who has the lock now. It matches [ErrSuperseded] and [ErrLost].
type SupersededError struct {
	// Owner and Token are those of the record that was found, empty and zero without a
	// record.
	Owner string
	Token uint64
	// Released says that another client has released the record.
	Released bool
	// Request is the operator's request that took the lock away, if there was one: see
	// admin.Revoke.
	Request *Request
	// Session is the id of the session, if the session is gone, or was closed by another
	// client: a contender for one of its locks had observed no sign of life for the lease.
	Session string
	// Replaced is the store's error, which matches [ErrReplaced], if the store was
	// replaced.
	Replaced error
}

func replaced(err error) error { return &SupersededError{Replaced: err} }

// superseded returns the error of the term with a token that the record by has ended.
func superseded(token uint64, by driver.Record) error {
	if by.State.OfSession() {
		return &SupersededError{Session: driver.SessionID(by.Key), Released: by.State == driver.Closed}
	}
	err := &SupersededError{Owner: by.Owner, Token: by.Token, Released: by.State == driver.Released}
	// How the term ended: as the record says, or the record of the next term.
	ended := by.Prev
	if by.State == driver.Released && by.Token == token {
		ended = by.Term(by.End)
	}
	if ended != nil && ended.Token == token && ended.Asked != nil && (ended.End == driver.EndRevoked || ended.End == driver.EndReleasedDead) {
		err.Request = requestOf(ended.Asked)
	}
	return err
}

func (e *SupersededError) Error() string {
	switch {
	case e.Replaced != nil:
		return fmt.Sprintf("lease superseded: the store was replaced: %v", e.Replaced)
	case e.Session != "":
		return fmt.Sprintf("lease superseded: another process saw no sign of life of session %s for its lease, and closed it", e.Session)
	case e.Request != nil:
		return fmt.Sprintf("lease revoked by %q: %s", e.Request.By, e.Request.Reason)
	case e.Token == 0:
		return "lease superseded: the record is gone"
	case e.Released:
		return fmt.Sprintf("lease superseded: the record was released under token %d", e.Token)
	}
	return fmt.Sprintf("lease superseded by %q under token %d", e.Owner, e.Token)
}

// Is reports whether target is [ErrSuperseded] or [ErrLost].
func (e *SupersededError) Is(target error) bool { return target == ErrSuperseded || target == ErrLost }

// Unwrap returns the store's error if the store was replaced.
func (e *SupersededError) Unwrap() error { return e.Replaced }

// StepDownError is the cause of a lease's context when its holder was asked to
// make way. It matches [ErrSteppedDown].
type StepDownError struct {
	// By is the owner name of the requester, and Reason says why it asked.
	By, Reason string
	// To is the owner that gets the lock next, and ToLabel the label of the processes that
	// may. Both are empty if any contender may take it.
	To, ToLabel string
	// At is when the requester asked, by its own clock.
	At time.Time
}

func steppedDown(q *driver.Request) error {
	return &StepDownError{By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel, At: q.At}
}

func (e *StepDownError) Error() string {
	return fmt.Sprintf("asked by %q to %s: %s", e.By, wayFor(e.To, e.ToLabel), e.Reason)
}

// wayFor says what a holder is asked to do, by the owner or label that gets the lock
// next.
func wayFor(to, label string) string {
	switch {
	case to != "":
		return fmt.Sprintf("hand over to %q", to)
	case label != "":
		return fmt.Sprintf("hand over to label %q", label)
	}
	return "step down"
}

// Is reports whether target is [ErrSteppedDown].
func (e *StepDownError) Is(target error) bool { return target == ErrSteppedDown }

// RequestedError has the earlier request to the holder. It matches [ErrRequested].
type RequestedError struct{ Request Request }

func requested(q *driver.Request) error { return &RequestedError{Request: *requestOf(q)} }

func (e *RequestedError) Error() string {
	q := e.Request
	return fmt.Sprintf("already asked by %q at %s to %s: %s", q.By, q.At.UTC().Format(time.RFC3339), wayFor(q.To, q.ToLabel), q.Reason)
}

// Is reports whether target is [ErrRequested].
func (e *RequestedError) Is(target error) bool { return target == ErrRequested }

func wrap(op, key string, err error) error  { return &Error{Op: op, Key: key, Err: err} }
func refused(format string, a ...any) error { return fmt.Errorf(format, a...) }

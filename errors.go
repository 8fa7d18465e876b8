// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/text"
)

// Errors of acquiring.
var (
	// ErrHeld is matched by the error that is returned when another holder has the
	// lock and the caller does not want to wait, or to wait any longer. It is
	// ordinary: try again later, or do something else. See [HeldError].
	ErrHeld = errors.New("held")

	// ErrUnreadable is returned when the record of the lock is there, but its lease
	// or its state cannot be understood. Such a record is never taken over, because
	// its holder may be alive. Look at the record, and at which program wrote it.
	ErrUnreadable = driver.ErrUnreadable

	// ErrNoLeader is returned by [Election.Leader] when nobody leads.
	ErrNoLeader = errors.New("no leader")
)

// Errors that say why a lease ended. They are the causes of the contexts of a lease;
// [Lease.Check] returns those by which the right to act has ended.
var (
	// ErrLost is matched by every end that the holder did not ask for. The work
	// must stop, and must not count on having been alone.
	ErrLost = engine.ErrLost

	// ErrExpired says that the deadline passed without a confirmed heartbeat: the
	// store could not be reached, or the process was paused. It matches ErrLost.
	ErrExpired = engine.ErrExpired

	// ErrSuperseded says that the record turned out to be another holder's, or
	// gone. It matches ErrLost.
	ErrSuperseded = engine.ErrSuperseded

	// ErrStalled says that the work showed no progress for
	// [Options.ProgressTimeout]. It matches ErrLost.
	ErrStalled = engine.ErrStalled

	// ErrStopTimeout says that the work had not returned [Options.StopTimeout]
	// after it was told to stop. Heartbeats have ended, nothing was released, and
	// the record runs out by itself: from then on another holder may begin beside
	// the work.
	ErrStopTimeout = engine.ErrStopTimeout

	// ErrSteppedDown is matched by the cause of a lease's context when its holder was
	// asked to make way: see [StepDownError]. The work stops, and the lock is released;
	// nothing was lost.
	ErrSteppedDown = errors.New("asked to step down")

	// ErrUnhealthy says that [ElectionOptions.Health] has failed too often in a row. It
	// is the cause of the context of the work, and returned by [Election.Run]. The lease
	// itself is good until the work has returned.
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
	// ErrTooLate is returned by [Lease.Do] when less of the lease remains than
	// the work was said to need. Nothing was done.
	ErrTooLate = errors.New("not enough of the lease remains")

	// ErrNotReleased is matched when the store has refused every attempt to release
	// the lock, for a lease duration, so that certainly none was applied. The
	// record runs out by itself.
	ErrNotReleased = engine.ErrNotReleased

	// ErrUncertain is matched when the store did not answer a write. The write may
	// have happened, or may still happen.
	ErrUncertain = engine.ErrUncertain
)

// Errors of asking a holder.
var (
	// ErrNotHeld is returned when there is no holder to ask: the lock is free,
	// or reserved, or another holder came meanwhile.
	ErrNotHeld = engine.ErrNotHeld

	// ErrRequested is matched by the error that is returned when the holder has
	// been asked already. A lock carries one request at a time. See
	// [RequestedError].
	ErrRequested = errors.New("already asked")

	// ErrUnanswered is returned when the request is in the record, but the holder
	// has not done it: the context of the call ended before, or the holder shows no
	// sign of life. The request stays. A contender takes over a dead holder's lock,
	// as always; or see admin.ReleaseDead.
	ErrUnanswered = engine.ErrUnanswered

	// ErrForeign is returned when the record was written by a client that does
	// not understand requests.
	ErrForeign = engine.ErrForeign

	// ErrAlive is returned by admin.ReleaseDead when the holder shows life.
	// Ask it to step down, or see admin.Revoke. It is returned by
	// admin.RaiseTokens when any program does: stop them all.
	ErrAlive = engine.ErrAlive

	// ErrTokenLimit is matched by the error of admin.RaiseTokens if a token would
	// be higher than the highest. Nothing was written: raise by less.
	ErrTokenLimit = errors.New("no token is so high")
)

// Errors of all calls.
var (
	// ErrInvalid is matched by the errors of arguments that break a rule, such as the
	// name of a lock that is too long. They say which, and nothing was done.
	ErrInvalid = text.ErrInvalid

	// ErrPermanent is matched by errors of the store that trying again does not
	// fix: a missing table, say, or a missing permission. They end a call at once
	// while the store has never given this client a good answer: a read or a write
	// that succeeded, or a write that lost the race against another process. After
	// a good answer they are incidents, and do not match ErrPermanent: they are
	// reported, and the store is asked again, as after any other error.
	ErrPermanent = driver.ErrPermanent

	// ErrReplaced is matched by the errors of all calls once others find another
	// store under the name of this client's: its file was deleted, or another one
	// was put in its place. All leases and sessions have ended by then, as
	// superseded, and so has all waiting. Open the store anew, and a client on it.
	ErrReplaced = driver.ErrReplaced
)

// Error says what was done to which lock when an error occurred. Every error of
// this package that concerns one lock is of this type, except for context errors
// that need no more words.
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
	if key == "" && (e.Op == "list" || e.Op == "raise tokens") { // of all there are
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	if len(key) > maxShown {
		key = key[:maxShown] + "..." // it can be of any length where it is what is wrong
	}
	return fmt.Sprintf("%s %q: %v", e.Op, key, e.Err)
}

// maxShown is how many bytes of a name an error shows.
const maxShown = 200

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// HeldError tells who has the lock. It matches [ErrHeld].
type HeldError struct {
	// Owner and Token are those of the holder.
	Owner string
	Token uint64
	// FreeIn is how long this holder can keep the lock at most if it is dead.
	// A living holder keeps it longer.
	FreeIn time.Duration
	// Own says that this very client holds the lock: another part of the program
	// has it, and the caller waits for that part.
	Own bool
	// Reserved says that the lock is kept for Owner after a hand-over; if Owner is
	// empty, for whoever has Label. If both are empty, the lock is kept until a holder
	// that an operator has cut off has stopped for certain.
	Reserved bool
	// Label is that of those for whom the lock is reserved, where it is not for Owner;
	// otherwise empty.
	Label string
}

func heldError(rec driver.Record, freeIn time.Duration, own bool) error {
	e := &HeldError{Owner: rec.Owner, Token: rec.Token, FreeIn: freeIn, Own: own, Reserved: rec.State == driver.Reserved}
	if e.Reserved && e.Owner == "" {
		e.Label = rec.Label
	}
	return e
}

func (e *HeldError) Error() string {
	switch free := e.FreeIn.Round(time.Millisecond); {
	case e.Reserved && e.Label != "":
		return fmt.Sprintf("reserved for label %q after token %d; free in %v at the latest if nobody of it comes", e.Label, e.Token, free)
	case e.Reserved && e.Owner == "":
		return fmt.Sprintf("revoked from its holder under token %d; free in %v, when that has stopped for certain", e.Token, free)
	case e.Reserved:
		return fmt.Sprintf("reserved for %q after token %d; free in %v at the latest if that does not come", e.Owner, e.Token, free)
	case e.Own:
		return fmt.Sprintf("held by this client itself, %q, under token %d; free when it releases that lease", e.Owner, e.Token)
	}
	return fmt.Sprintf("held by %q under token %d; free in %v at the latest if it is dead", e.Owner, e.Token, e.FreeIn.Round(time.Millisecond))
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// SupersededError tells who has the lock now. It matches [ErrSuperseded] and
// [ErrLost].
type SupersededError struct {
	// Owner and Token are those of the record that was found, empty and zero
	// if there was no record at all.
	Owner string
	Token uint64
	// Released says that the record was found released, by another client.
	Released bool
	// Request is the operator's act that took the lock away, if there was one: see
	// admin.Revoke.
	Request *Request
	// Session is the id of the session, if the session is gone, or was closed by
	// another client: a contender for one of its locks had seen no sign of its life
	// for the lease.
	Session string
	// Replaced is the store's error, which matches [ErrReplaced], if others do not
	// find the store any more.
	Replaced error
}

func replaced(err error) error { return &SupersededError{Replaced: err} }

// superseded returns the error of a term under a token that the record by has ended.
func superseded(token uint64, by driver.Record) error {
	if by.State.OfSession() {
		return &SupersededError{Session: driver.SessionID(by.Key), Released: by.State == driver.Closed}
	}
	err := &SupersededError{Owner: by.Owner, Token: by.Token, Released: by.State == driver.Released}
	// How the record says that this term ended: itself, or what came after.
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
		return fmt.Sprintf("lease superseded: somebody who had seen no life of session %s has closed it", e.Session)
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
	// By is the owner name of the requester, and Reason why it asked.
	By, Reason string
	// To is the owner that is to have the lock next, and ToLabel the label of those
	// who are. Both are empty if any contender may take it.
	To, ToLabel string
	// At is when it was asked, by the requester's clock.
	At time.Time
}

func steppedDown(q *driver.Request) error {
	return &StepDownError{By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel, At: q.At}
}

func (e *StepDownError) Error() string {
	return fmt.Sprintf("asked by %q to %s: %s", e.By, wayFor(e.To, e.ToLabel), e.Reason)
}

// wayFor says what a holder is asked, by whom it is to make way for.
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

// RequestedError tells what the holder was asked before. It matches
// [ErrRequested].
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

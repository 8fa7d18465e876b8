// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// The errors that the API documents under the same names.
var (
	ErrLost          = errors.New("lease lost")
	ErrExpired       = lost("lease expired")
	ErrSuperseded    = lost("lease superseded")
	ErrStalled       = lost("work made no progress")
	ErrReleased      = errors.New("lease released")
	ErrClosed        = errors.New("client closed")
	ErrSessionClosed = errors.New("session closed")
	ErrStopTimeout   = errors.New("work did not stop in time")
	ErrUncertain     = errors.New("outcome unknown")
	ErrNotReleased   = errors.New("not released")
	ErrNotHeld       = errors.New("not held")
	ErrUnanswered    = errors.New("request not answered")
	ErrForeign       = errors.New("held by a client that does not understand requests")
	ErrAlive         = errors.New("the holder is alive")
)

// lossError is the end of a lease that its holder did not ask for.
type lossError struct{ text string }

func lost(text string) error              { return &lossError{text} }
func (e *lossError) Error() string        { return e.text }
func (e *lossError) Is(target error) bool { return target == ErrLost }

// waitError has the error of the context that ended a wait, and the reason for the wait.
// It wraps only the former, so work that returns it counts as ended in order.
type waitError struct{ ended, why error }

func (e *waitError) Error() string        { return fmt.Sprintf("%v: %v", e.ended, e.why) }
func (e *waitError) Unwrap() error        { return e.ended }
func (e *waitError) Is(target error) bool { return errors.Is(e.why, target) }
func (e *waitError) As(target any) bool   { return errors.As(e.why, target) }

// Within bounds a wait. If this bound ends a wait, over replaces the error with the
// reason for the wait.
func Within(ctx context.Context, wait time.Duration) (bounded context.Context, stop context.CancelFunc, over func(error) error) {
	if wait <= 0 {
		return ctx, func() {}, func(err error) error { return err }
	}
	bounded, stop = context.WithTimeoutCause(ctx, wait, fmt.Errorf("waited %v", wait))
	return bounded, stop, func(err error) error {
		var w *waitError
		if ctx.Err() == nil && errors.As(err, &w) {
			return w.why
		}
		return err
	}
}

// Done returns why ctx has ended: its error, and the cause that was given for
// it, if there is one.
func Done(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// DoneWaiting is [Done] for a wait, with why it had to wait; nil means unknown. Only the
// error of a deadline has why: a cancellation has a reason of its own.
func DoneWaiting(ctx context.Context, why error) error {
	err := Done(ctx)
	if why == nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &waitError{err, why}
}

// Unreadable is the error for a record that the store could read, but this client does
// not understand.
func Unreadable(rec driver.Record) error {
	return fmt.Errorf("%w: lease %v, state %q, written by %q", driver.ErrUnreadable, rec.Lease, rec.State, rec.Owner)
}

func uncertain(err error) error { return fmt.Errorf("%w: %w", ErrUncertain, err) }

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package recordcodec

import (
	"errors"
	"fmt"

	"github.com/tenurelock/tenure/driver"
)

// The errors of a guard in a transaction, which the SQL stores export under these names.
var (
	// ErrStale says that the term of the token has ended.
	ErrStale = errors.New("stale token")
	// ErrUnknownToken says that the table does not know the lock, or does not know the token yet.
	ErrUnknownToken = errors.New("unknown token")
)

// StaleError is the refusal of a guard. It matches [ErrStale].
type StaleError struct {
	// Lock is the name of the lock.
	Lock string
	// Token is the refused token, and Highest the token of the lock's record.
	// They are equal if the term has ended and no other has begun.
	Token, Highest uint64
	// State is the state of the lock's record.
	State driver.State
}

func (e *StaleError) Error() string {
	if e.Highest == e.Token {
		return fmt.Sprintf("guard %q: token %d is stale: its term has ended, the lock is %s under token %d; stop",
			e.Lock, e.Token, e.State, e.Highest)
	}
	return fmt.Sprintf("guard %q: token %d is stale, token %d was granted: another holder has begun, stop", e.Lock, e.Token, e.Highest)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// CheckToken returns nil if, and only if, two columns of a lock's [Row], read under a row lock, show that
// the lock is held under token. where says where the row is, for people. Errors match [ErrStale], as a
// [*StaleError]; or [ErrUnknownToken]; or [driver.ErrUnreadable].
func CheckToken(lock string, token uint64, column int64, state, where string) error {
	switch highest, stands := uint64(column), heldOf(state); {
	case column < 1:
		return fmt.Errorf("guard %q: %w: token %d is not positive", lock, driver.ErrUnreadable, column)
	case highest < token:
		return fmt.Errorf("guard %q: %w: token %d, of a lock whose record in %s has token %d", lock, ErrUnknownToken, token, where, highest)
	case highest > token, stands != driver.Held:
		return &StaleError{Lock: lock, Token: token, Highest: highest, State: stands}
	}
	return nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
)

// Errors of reads and writes.
var (
	// ErrNotFound is returned when a key has no record.
	ErrNotFound = errors.New("no such record")

	// ErrNotApplied is matched by the error of a write that has not happened
	// and never will. The caller may try again at once, or give up without
	// cleaning up. See [NotApplied].
	ErrNotApplied = errors.New("not applied")

	// ErrPermanent is matched by an error that no retry can fix: a wrong table, a
	// missing permission, a corrupt file. A caller that has never had a good
	// answer from the store reports it instead of waiting. A caller that has had
	// one treats it as an incident, which passes, unless it matches ErrReplaced,
	// or [errors.ErrUnsupported]: see [Unsupported]. See [Permanent].
	ErrPermanent = errors.New("store unusable")

	// ErrUnreadable is returned when a record exists but cannot be decoded.
	// The caller must not take the lock, and need not try again: only a
	// person can fix the record.
	ErrUnreadable = errors.New("record unreadable")

	// ErrReplaced is matched by the error of a call on a handle whose engine
	// other processes no longer find under its name: its file was deleted, or
	// another file was put in its place. A lock in this handle no longer
	// excludes any other process, so every lease on it is over, at once and for
	// good. A store returns it only if it is certain: an engine that cannot be
	// reached is not replaced. It matches ErrPermanent as well. See [Replaced].
	ErrReplaced = errors.New("store replaced")

	// ErrThrottled is matched by the error of a call that the engine refused
	// because it is overloaded. Wait longer before a retry than after another
	// error. See [Throttled].
	ErrThrottled = errors.New("store throttled")

	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("store closed")
)

// ConflictError is returned by [Store.Claim], [Store.Swap], [Store.Delete] and [Raiser.Raise]
// when the condition of the write did not hold, so that nothing was written.
type ConflictError struct {
	// Key is the key of the write.
	Key string
	// Current is the record that was found instead. It was read in the same
	// atomic step as the condition wherever the engine can do that, and
	// otherwise by a strong read after it, so that it may meet the condition
	// again.
	Current Record
	// Absent says that there is no record at all; Current is zero then.
	Absent bool
}

func (e *ConflictError) Error() string {
	if e.Absent {
		return fmt.Sprintf("conflict on %q: no record", e.Key)
	}
	return fmt.Sprintf("conflict on %q: %s by %q under token %d", e.Key, e.Current.State, e.Current.Owner, e.Current.Token)
}

// NotApplied marks err as the error of a write that certainly has not been
// applied, and returns nil for nil. Both ErrNotApplied and err match the
// result.
func NotApplied(err error) error { return mark(err, ErrNotApplied) }

// Permanent marks err as an error that no retry can fix, and returns nil for
// nil. Both ErrPermanent and err match the result. A write that failed so may
// still have an unknown outcome; mark it with NotApplied as well where it has
// not.
func Permanent(err error) error { return mark(err, ErrPermanent) }

// Unsupported marks err as a refusal of the store itself, because of its settings
// and the record: a write that it never makes, however healthy its engine is. It
// returns nil for nil. ErrNotApplied, ErrPermanent, [errors.ErrUnsupported] and
// err match the result. A retry fails, even after good answers to other calls.
func Unsupported(err error) error { return mark(NotApplied(Permanent(err)), errors.ErrUnsupported) }

// Replaced marks err as the error of a handle whose engine other processes no
// longer find under its name, and returns nil for nil. ErrReplaced,
// ErrPermanent and err match the result.
func Replaced(err error) error { return mark(Permanent(err), ErrReplaced) }

// Throttled marks err as a refusal of an overloaded engine, and returns nil for
// nil. Both ErrThrottled and err match the result. Mark the error of a write with
// NotApplied as well where that is certain.
func Throttled(err error) error { return mark(err, ErrThrottled) }

func mark(err, kind error) error {
	if err == nil {
		return nil
	}
	return &marked{err: err, kind: kind}
}

// marked carries an error of the engine and its meaning for the protocol. The
// text is only the engine's: the mark is for programs.
type marked struct{ err, kind error }

func (m *marked) Error() string   { return m.err.Error() }
func (m *marked) Unwrap() []error { return []error{m.err, m.kind} }

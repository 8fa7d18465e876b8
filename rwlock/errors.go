// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
)

var (
	// ErrBusy is matched when the lock cannot be acquired without waiting, and the caller
	// does not wait. Such an error matches [tenure.ErrHeld] as well. It is ordinary. See
	// [BusyError].
	ErrBusy = errors.New("busy")

	// ErrReading is matched when a process that reads asks to write. There is no
	// upgrade: two readers that want to write would wait for each other. Release all read
	// leases of the process, and then acquire: the data may have changed by then.
	ErrReading = errors.New("this process reads: release its read leases before it writes")

	// ErrNotWriting is matched by the error of a [Lease.Downgrade] of a reader.
	ErrNotWriting = errors.New("not a writer")
)

// Holder is a process that keeps the caller out.
type Holder struct {
	// Owner is its name, empty if its record cannot be understood.
	Owner string
	// FreeIn is how long it can keep the lock at most if it is dead.
	FreeIn time.Duration
}

// BusyError describes the readers or the writer. It matches [ErrBusy] and
// [tenure.ErrHeld].
type BusyError struct {
	// Writer has the gate: it writes, or waits for readers. It is nil without a writer, or
	// if the caller had the gate itself and found readers.
	Writer *Holder
	// Readers are the processes that read, if the caller was to write.
	Readers []Holder
	// FreeIn is the time after which the lock can be acquired at the latest if all of them
	// are dead.
	FreeIn time.Duration
}

// maxShown is how many readers an error shows.
const maxShown = 5

func (e *BusyError) Error() string {
	if e.Writer != nil {
		return fmt.Sprintf("held by the writer %q", e.Writer.Owner)
	}
	if len(e.Readers) == 0 {
		return fmt.Sprintf("all %d reader slots are held", MaxSlots)
	}
	var names []string
	for i, r := range e.Readers {
		if i == maxShown {
			names = append(names, fmt.Sprintf("and %d more", len(e.Readers)-i))
			break
		}
		names = append(names, fmt.Sprintf("%q", r.Owner))
	}
	return "read by " + strings.Join(names, ", ")
}

// Is reports whether target is [ErrBusy] or [tenure.ErrHeld].
func (e *BusyError) Is(target error) bool { return target == ErrBusy || target == tenure.ErrHeld }

func busyWriter(owner string, freeIn time.Duration) *BusyError {
	return &BusyError{Writer: &Holder{owner, freeIn}, FreeIn: freeIn}
}

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &tenure.Error{Op: op, Key: name, Err: err}
}

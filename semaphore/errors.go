// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
)

var (
	// ErrFull is matched when every slot has a holder and the caller does not wait. Such
	// an error matches [tenure.ErrHeld] as well. It is ordinary. See [FullError].
	ErrFull = errors.New("all slots are held")

	// ErrDraining is matched by the error of a [Semaphore.Resize] that was to
	// wait until the removed slots are free, and its time was too short. The size is
	// changed. See [DrainingError].
	ErrDraining = errors.New("removed slots are still held")
)

// Holder is the holder of a slot.
type Holder struct {
	Slot int
	// Owner and Token are those of the holder; see [tenure.HeldError], also for
	// FreeIn.
	Owner  string
	Token  uint64
	FreeIn time.Duration
}

// FullError names the holders of the slots. It matches [ErrFull] and [tenure.ErrHeld].
type FullError struct {
	// Slots is the number of slots, and Holders are their holders, in order. A slot whose
	// record cannot be understood counts as held, without an owner.
	Slots   int
	Holders []Holder
}

func (e *FullError) Error() string {
	var b strings.Builder
	if fmt.Fprintf(&b, "all %d slots are held", e.Slots); e.Slots == 1 {
		b.Reset()
		b.WriteString("the one slot is held")
	}
	for i, h := range e.Holders {
		if i == maxShown {
			fmt.Fprintf(&b, " and %d more", len(e.Holders)-i)
			break
		}
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%sslot %d by %q under token %d", sep, h.Slot, h.Owner, h.Token)
	}
	return b.String()
}

// maxShown is how many holders an error shows.
const maxShown = 5

// Is reports whether target is [ErrFull] or [tenure.ErrHeld].
func (e *FullError) Is(target error) bool { return target == ErrFull || target == tenure.ErrHeld }

// DrainingError lists the removed slots that are still held. It matches [ErrDraining].
type DrainingError struct {
	Slots []int
	// Err is why Resize stopped waiting.
	Err error
}

func (e *DrainingError) Error() string {
	return fmt.Sprintf("removed slots are still held: %s: %v",
		strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Slots), " ", ", "), "[]"), e.Err)
}

// Is reports whether target is [ErrDraining].
func (e *DrainingError) Is(target error) bool { return target == ErrDraining }

// Unwrap returns why Resize stopped waiting.
func (e *DrainingError) Unwrap() error { return e.Err }

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &tenure.Error{Op: op + " slot of", Key: name, Err: err}
}

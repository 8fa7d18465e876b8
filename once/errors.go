// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
)

// Errors that say why the work was not run. They are ordinary, except ErrSlotAhead and
// ErrNotRun, which need attention.
var (
	// ErrDone is matched when the slot was begun before, by this process or by
	// another one. It is not run again, however that run ended. See [DoneError].
	ErrDone = errors.New("already begun")

	// ErrPassed is matched when the slot counts as begun, because a later one was
	// begun, and the ledger does not show it: it was run longer ago than the ledger
	// goes back, or not at all. With [Options.OutOfOrder] that is so up to the floor
	// of the ledger alone. It is not run any more. The clock of this host is behind,
	// another host's clock is ahead, or this call came late. See [PassedError].
	ErrPassed = errors.New("a later slot has already begun")

	// ErrRunning is matched when another holder is at work under this name, and has
	// shown life. Such an error matches [tenure.ErrHeld] as well. See
	// [RunningError].
	ErrRunning = errors.New("another holder is at work")

	// ErrSlotAhead is matched when the slot is further ahead of the last one than
	// [Options.MaxAhead]. The clock that the slot was computed from is wrong, or its
	// unit; or nothing has run for that long. See [SlotAheadError].
	ErrSlotAhead = errors.New("slot is too far ahead")

	// ErrSchedule is matched when the slot is of another schedule than the ledger's: of
	// another time zone, or changed since. See [ScheduleError].
	ErrSchedule = errors.New("the schedule differs from the ledger's")

	// ErrNotRun is matched when the slot was, or may have been, marked as begun, and
	// the lease ended before the work could begin. The work was not run, and no
	// other process will run it, unless [Options.Redo] says so. See [NotRunError].
	ErrNotRun = errors.New("begun but not run")
)

// ErrTimeout is the cause of the work's context when [Options.Timeout] has passed.
// The error of Once matches it if the work returned an error then.
var ErrTimeout = errors.New("the work's time is up")

// DoneError describes the earlier run of a slot. It matches [ErrDone].
type DoneError struct {
	// Run is that run: by whom, when, and how it ended. StateUnknown says that its end is
	// not known: [Options.Redo] would run it again. Its Token is 0 if it is longer ago
	// than the ledger goes back.
	Run Run
}

func (e *DoneError) Error() string {
	return fmt.Sprintf("slot %d: %v: %s", e.Run.Slot, ErrDone, describe(e.Run))
}

// Is reports whether target is [ErrDone].
func (e *DoneError) Is(target error) bool { return target == ErrDone }

// PassedError names the slot that was begun last. It matches [ErrPassed].
type PassedError struct {
	// Slot is the requested slot.
	Slot int64
	// Last is the highest slot that was begun, and Run is its run. Run.Token is 0 if
	// the ledger does not have it. If the schedule was changed after Slot, Run is of
	// [StateChanged], and says so.
	Last int64
	Run  Run
}

func (e *PassedError) Error() string {
	return fmt.Sprintf("slot %d: %v: %d, %s; correct the clocks, or reset the ledger if it is wrong (see Reset)", e.Slot, ErrPassed, e.Last, describe(e.Run))
}

// Is reports whether target is [ErrPassed].
func (e *PassedError) Is(target error) bool { return target == ErrPassed }

// RunningError describes the holder that is running a slot. It matches [ErrRunning] and
// [tenure.ErrHeld].
type RunningError struct {
	// Slot is the requested slot.
	Slot int64
	// Run is the run that is under way; its Slot may be an earlier one. If Run.Left is
	// not empty, the run has ended, and the holder waits for what it left behind. If
	// Run.Token is 0, the holder has not begun a slot yet, or has just ended.
	Run Run
	// Held describes the lock's holder.
	Held *tenure.HeldError
}

func (e *RunningError) Error() string {
	what := "has not begun a slot yet"
	switch {
	case e.Run.Left != "":
		what = fmt.Sprintf("waits for what slot %d left behind, %s: %s", e.Run.Slot, describe(e.Run), e.Run.Left)
	case e.Run.Token != 0 && e.Run.Slot == e.Slot:
		what = "runs this slot, " + describe(e.Run)
	case e.Run.Token != 0:
		what = fmt.Sprintf("runs slot %d, %s", e.Run.Slot, describe(e.Run))
	}
	return fmt.Sprintf("%v: %q under token %d %s", ErrRunning, e.Held.Owner, e.Held.Token, what)
}

// Same reports whether the running slot is the requested one.
func (e *RunningError) Same() bool { return e.Run.Token != 0 && e.Run.Slot == e.Slot }

// Is reports whether target is [ErrRunning].
func (e *RunningError) Is(target error) bool { return target == ErrRunning }

// Unwrap returns the lock's holder, as an error that matches [tenure.ErrHeld].
func (e *RunningError) Unwrap() error { return e.Held }

// SlotAheadError says how far ahead the slot is. It matches [ErrSlotAhead].
type SlotAheadError struct {
	// Slot is the requested slot, Last the highest slot begun so far.
	Slot, Last int64
	// MaxAhead is the bound that Slot - Last is above.
	MaxAhead int64
	// Run is the run of the last slot. Its Token is 0 if the ledger does not have it.
	Run Run
}

func (e *SlotAheadError) Error() string {
	return fmt.Sprintf("slot %d: %v: more than %d above the last one, %d, %s; correct the clock or raise MaxAhead",
		e.Slot, ErrSlotAhead, e.MaxAhead, e.Last, describe(e.Run))
}

// Is reports whether target is [ErrSlotAhead].
func (e *SlotAheadError) Is(target error) bool { return target == ErrSlotAhead }

// ScheduleError describes two schedules that use one name. It matches [ErrSchedule].
type ScheduleError struct {
	// Slot is the requested slot.
	Slot int64
	// Text is the schedule of this call, Ledger the ledger's, and Run the ledger's last
	// run. Run.Token is 0 if the ledger does not have it.
	Text, Ledger string
	Run          Run
}

func (e *ScheduleError) Error() string {
	return fmt.Sprintf("slot %d: %v: this call has %q, the ledger has %q (slot %d %s); use one time zone, or call Reschedule if the schedule has changed",
		e.Slot, ErrSchedule, e.Text, e.Ledger, e.Run.Slot, describe(e.Run))
}

// Is reports whether target is [ErrSchedule].
func (e *ScheduleError) Is(target error) bool { return target == ErrSchedule }

// NotRunError describes a slot that was or may be marked as begun, but whose work was not
// run. It matches [ErrNotRun].
type NotRunError struct {
	Slot int64
	// Err is why: an error that matches [tenure.ErrLost], say.
	Err error
}

func (e *NotRunError) Error() string {
	return fmt.Sprintf("slot %d: %v: the work did not start, but the slot may count as begun: %v", e.Slot, ErrNotRun, e.Err)
}

// Is reports whether target is [ErrNotRun].
func (e *NotRunError) Is(target error) bool { return target == ErrNotRun }

// Unwrap returns why.
func (e *NotRunError) Unwrap() error { return e.Err }

// describe returns the outcome of a run in words.
func describe(r Run) string {
	if r.Token == 0 {
		return "with no run in the ledger"
	}
	at := r.Begun.UTC().Format(time.RFC3339)
	by := fmt.Sprintf("by %q under token %d at %s", r.Owner, r.Token, at)
	switch r.State {
	case StateReset:
		return fmt.Sprintf("opened again %s: %s", by, r.Error)
	case StateChanged:
		return fmt.Sprintf("the last one before the schedule was changed %s: %s", by, r.Error)
	case StateDone:
		return fmt.Sprintf("begun %s and done after %v", by, r.Took.Round(time.Millisecond))
	case StateFailed:
		return fmt.Sprintf("begun %s and failed after %v: %s", by, r.Took.Round(time.Millisecond), r.Error)
	case StateRunning:
		return fmt.Sprintf("begun %s", by)
	}
	return fmt.Sprintf("begun %s; how it ended is not known", by)
}

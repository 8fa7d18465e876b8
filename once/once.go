// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure"
)

// Result is the result of [Once].
type Result struct {
	// Run is the run of the requested slot. Its Token is 0 if its work was not run.
	Run Run
	// Recorded says that the store has confirmed how the run ended. If not, others
	// may see it as StateUnknown, and with [Options.Redo] run the slot again.
	Recorded bool
	// Caught are the missed slots that were run before it, in their order.
	Caught []Run
	// Missed are the slots between the last one begun before this slot, and this slot, that
	// no process has begun, this call included: the newest ones, as [Options.Between] lists
	// them. MissedCount is how many there are in all.
	Missed      []int64
	MissedCount int
	// Closed is the slot up to which all count as begun from this call on, those that
	// were not run included, because the ledger keeps 16 spans of slots that were
	// begun, and has got a seventeenth. It is nil otherwise. See
	// [Options.OutOfOrder].
	Closed *int64
	// Unfinished is the last run before this one, if its end is not known: its
	// holder was lost. It is nil otherwise.
	Unfinished *Run
	// Later is the last run before this one, if its slot is a later one: the clock of
	// its host is ahead of this one's. It is nil otherwise.
	Later *Run
}

// Once runs work for a slot, unless that slot, or, without [Options.OutOfOrder], a
// later one, was begun before: by any process, whatever its outcome. Slot names the
// occurrence, by the caller's schedule: [Minute] of the scheduled instant, say, or any
// number that rises. No clocks are compared: a wrong clock decides when a host tries,
// never whether a slot may run twice.
//
// Once takes the lock [LockName], has the store confirm that the slot is begun,
// checks its lease, runs work, and writes how it ended with the release of the
// lock: three requests in all. A slot is run at most once, and not at all if its
// holder is lost between the mark and the work, or in the middle of it:
// [Options.Redo] makes it at least once.
//
// Once returns what work returned. If Result.Run.Token is not 0, the work was run,
// and Result.Run says how it ended; the error then matches that of the work, and
//
//   - [tenure.ErrLost] or [tenure.ErrStopTimeout] if the lease was lost before the
//     work returned, or ended without it
//   - [tenure.ErrSteppedDown] if the holder was asked to step down, and work
//     returned an error
//   - [ErrTimeout] if the time was up, and work returned an error
//   - [tenure.ErrUncertain] if the work was run, and whether its end is in the
//     ledger is not known
//
// If the work was not run, the error is one of these, besides those of
// [tenure.Client.Acquire]:
//
//   - a [*DoneError] if the slot was begun before, with its run
//   - a [*PassedError] if it counts as begun, and the ledger has no run of it
//   - a [*RunningError] if a living holder is at work under this name
//   - a [*SlotAheadError] if the slot is further ahead than [Options.MaxAhead]
//   - a [*ScheduleError] if it is of another schedule than the ledger's
//   - a [*NotRunError] if the slot is, or may be, marked as begun, and will not run
//   - an error that matches [tenure.ErrUnreadable] if the lock's data are not a ledger
//
// The error of a missed slot that was caught up is joined with that of the slot;
// Result.Caught says which one failed. A panic of work is written down as a
// failure, releases the lock, and goes on.
//
// ctx bounds the waiting and the work. Once may be called concurrently, for the
// same name too: one of the calls runs, the others find it running.
func Once(ctx context.Context, client *tenure.Client, name string, slot int64, options *Options, work Work) (Result, error) {
	o, err := options.copied()
	if err == nil {
		err = checkCall(client, name, o.AllowRepeats)
	}
	if err == nil && work == nil {
		err = errors.New("the work is nil: pass a function")
	}
	if err != nil {
		return Result{}, wrap(opOnce, name, err)
	}
	patient := elapsed(client) + o.WaitAhead
	for tries := 0; tries < maxTries; tries++ {
		c := &call{client: client, name: name, slot: slot, options: o, work: work}
		err := c.run(ctx)
		if c.held {
			return c.result, err
		}
		if !errors.Is(err, tenure.ErrHeld) || ctx.Err() != nil { // which does not say that the holder lives
			return Result{}, err
		}
		if err = c.refusal(ctx, err); err != nil {
			running, ok := errors.AsType[*RunningError](err)
			ahead := ok && running.Run.Token != 0 && running.Run.Slot > slot && elapsed(client) < patient
			if ahead && pause(ctx, client.Options().RefreshPeriod) == nil {
				tries = 0
				continue
			}
			return Result{}, wrap(opOnce, name, err)
		}
		// The holder has released the lock without running this slot.
	}
	return Result{}, wrap(opOnce, name, fmt.Errorf("slot %d: the lock changed hands %d times and was never free for this process: %w", slot, maxTries, tenure.ErrHeld))
}

// maxTries bounds how often Once asks for a lock whose holders release it each time
// without running the slot.
const maxTries = 100

// checkCall checks the arguments of every call.
func checkCall(client *tenure.Client, name string, repeats bool) error {
	switch {
	case client == nil:
		return errors.New("client is nil: make one with tenure.New")
	case client.Options().LossyStore && !repeats:
		return fmt.Errorf("%w: this store may lose in a failover that work was begun or done, and would run it again: "+
			"set AllowRepeats (--allow-repeats) if that does no harm, or use a store that keeps what it has answered",
			errors.ErrUnsupported)
	}
	return checkName(name)
}

func wrap(op, name string, err error) error {
	return &tenure.Error{Op: op, Key: name, Err: err}
}

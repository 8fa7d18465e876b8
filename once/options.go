// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"errors"
	"fmt"
	"time"
)

// Options are for one call of [Once]. Nil means the defaults.
type Options struct {
	// Redo runs a slot again that was begun and has no end in the ledger, because
	// its holder was lost: at least once, in place of at most once. It concerns the
	// last run alone, with OutOfOrder the last 20, and never one whose holder may be
	// alive. The work must tolerate that part of it was already done. A slot whose work
	// failed is not run again.
	Redo bool

	// AllowRepeats accepts a store that may lose writes ([tenure.Options.LossyStore]). There a
	// failover may lose that a slot was begun, or done: then it is run again, although Redo is
	// false, and nothing shows it. If false, Once refuses such a store.
	AllowRepeats bool

	// OutOfOrder lets a slot begin after a later slot, if it was not begun itself. A host
	// whose clock is ahead takes the slots that it begins, and none before them. A host
	// whose clock is behind can at worst begin, once, a slot that was missed. If false,
	// slots begin in rising order only, which is needed where the order matters: for the
	// numbers of releases, say.
	//
	// The ledger keeps the slots that were begun as spans above a floor. A slot joins the
	// span before it if Between lists no slot between the two. There are at most 16: with
	// a seventeenth the floor rises over the lowest gap, whose slots count as begun from
	// then on. See [Result.Closed].
	OutOfOrder bool

	// Schedule is where the slots come from. The ledger stores a hash of it: a call whose
	// schedule does not have the same next 400 slots gets a [*ScheduleError], until
	// [Reschedule] records the change. If nil, schedules are not compared.
	Schedule *Schedule

	// Between returns the slots of the schedule that lie between two slots, both left
	// out: the newest of them in their order, and how many more there are before those.
	// It is called after the grant, while no other process can begin a slot, and tells
	// Once the slots that were not begun: see [Result.Missed]. It must not block. If nil,
	// no slot counts as missed.
	Between func(last, slot int64) (newest []int64, more int)

	// CatchUp runs missed slots before the slot itself, in their order, under the
	// same term: the newest ones, this many at most. It needs Between. If zero,
	// missed slots are not run. When one of them fails, the next one is run all the
	// same.
	CatchUp int

	// MaxAhead is how far above the last slot a slot may be, in the unit of the
	// slots. A slot that is further ahead is refused with [ErrSlotAhead], because
	// it would shut out all that follow on hosts whose clock is right. If zero, it
	// is 527,040, which is 366 days in minutes: enough to catch seconds for
	// minutes. Set it to some periods of the schedule, to catch a wrong clock.
	// Negative means that any slot will do.
	MaxAhead int64

	// Wait waits for a holder that is alive and at work under this name, until the
	// context ends. If false, Once gives up with [ErrRunning] as soon as the holder
	// shows a sign of life, which takes about one of its heartbeat periods. Once
	// waits for a dead holder in either case, until its lease has run out, so that
	// a crash does not swallow the slots after it.
	Wait bool

	// WaitAhead is how long Once waits, without Wait, for a holder that is alive and
	// runs a higher slot: the clock of one of the two is wrong, and each run of a
	// host that is ahead would cost the others the slot of that time. It is for
	// OutOfOrder. The time between two slots is right. If zero, Once gives up with
	// [ErrRunning] there, too.
	WaitAhead time.Duration

	// Timeout bounds the work for one slot, all attempts together. Then its context
	// ends with the cause [ErrTimeout], and the lease is asked to stop: the work must
	// return within [tenure.Options.StopTimeout], or the lease ends without it. It goes
	// by the monotonic clock, which does not count suspends. If zero, there is no bound.
	Timeout time.Duration

	// Retries is how often work that has failed is run again for the same slot, by
	// the same term, as long as that may act. If zero, it is not run again.
	// Nothing is written between two attempts: if the holder is lost then, how the
	// run ended is not known.
	Retries int

	// RetryDelay is the pause before the second attempt. It doubles with each
	// further one, up to 5 minutes or RetryDelay, whatever is longer; a random part
	// of up to a quarter is taken off. If zero, it is 1 s.
	RetryDelay time.Duration

	// History keeps the terms of the lock: see [tenure.AcquireOptions]. The ledger
	// has the last 20 runs in any case.
	History bool

	// StoreTimeout is how long the store may fail to give any answer to the acquire
	// before Once returns its error. If zero, it is the lease duration. Negative
	// means for ever.
	StoreTimeout time.Duration
}

const (
	defaultMaxAhead   = 366 * 24 * 60
	defaultRetryDelay = time.Second
	maxRetryDelay     = 5 * time.Minute
	maxCatchUp        = 1000
)

func (o *Options) copied() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.MaxAhead == 0 {
		c.MaxAhead = defaultMaxAhead
	}
	errs := []error{checkWork(c.Timeout, c.Retries, &c.RetryDelay), checkCatchUp(c.CatchUp)}
	if c.Schedule != nil {
		errs = append(errs, c.Schedule.check())
	}
	if c.WaitAhead < 0 {
		errs = append(errs, fmt.Errorf("wait ahead %v must not be negative", c.WaitAhead))
	}
	if c.CatchUp > 0 && c.Between == nil {
		errs = append(errs, errors.New("catch up needs option Between, which lists the missed slots"))
	}
	return c, errors.Join(errs...)
}

func checkCatchUp(n int) error {
	if n < 0 || n > maxCatchUp {
		return fmt.Errorf("catch up %d must be from 0 to %d", n, maxCatchUp)
	}
	return nil
}

// checkWork checks the bounds of the work, and fills in the delay.
func checkWork(timeout time.Duration, retries int, delay *time.Duration) error {
	if *delay == 0 {
		*delay = defaultRetryDelay
	}
	var errs []error
	if timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout %v must not be negative", timeout))
	}
	if retries < 0 {
		errs = append(errs, fmt.Errorf("retries %d must not be negative", retries))
	}
	if *delay < 0 {
		errs = append(errs, fmt.Errorf("retry delay %v must not be negative", *delay))
	}
	return errors.Join(errs...)
}

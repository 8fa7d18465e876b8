// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// A candidate with a cool-down lets others go first when its own label has failed lately.
// It does not stand in an acquire, which would take the lock as soon as it can. It observes
// the lock, and when that is free, or its holder is dead, it counts the terms of its own
// label that ended badly, the newest first, until one that ended well. For k of them it
// waits for CoolDown·2^(k−1), and CoolDownMax at most, from the instant at which it could
// have taken the lock, and takes it then. A new term in between begins all of this anew. So
// a version that fails loses to any other one that is there, and leads again where there is
// none. Nothing is written, no wall clock is compared, and nobody is shut out.
//
// What the end of a term says of its label:
//
//   - badly: the work failed, stalled, or did not stop in time, or its process is
//     known to have crashed
//   - well: the work returned, or was asked to make way
//   - nothing: all else. One outage of the store lets the leases of good versions
//     expire.
//
// The record of a lock shows its latest two terms. What was before them is read from the
// history: in one batch, once for each term, and only where those two do not settle the
// count.
//
// A lock that is reserved for the candidate was handed over to it on purpose: it does not
// wait. Nor does a candidate whose label has failed ask a leader to make way for its
// priority: the leader may be what its failures were rolled back to.

// countedTerms is how many of the newest terms count.
const countedTerms = 16

// candidate is one acquire with a cool-down.
type candidate struct {
	c              *Client
	options        engine.AcquireOptions
	coolDown, most time.Duration
	lock           *engine.Candidate
	begun          time.Time

	free  termState // which it could take, since then
	since time.Time // zero: it could not
	past  []protocol.Entry
	below termState // of the record below whose terms past was read, without its sign
	mute  uint64    // the token of a leader below which the history could not be read
	retry time.Time // when to try again, after a refusal
	late  time.Time // when AdditionalWait is over; zero: it has not begun
}

// termState is the part of a record that changes with each term, and with each sign of life.
type termState struct {
	token uint64
	state driver.State
	sign  string
}

func termOf(rec driver.Record) termState { return termState{rec.Token, rec.State, rec.Sign()} }

// coolDown acquires a lock with a cool-down.
func (c *Client) coolDown(ctx context.Context, o engine.AcquireOptions, coolDown, most time.Duration) (*engine.LeaseHolder, error) {
	lock, err := c.engine.Candidate(o.Want.Key, o.Timing, o.Want.Patience)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	k := &candidate{c: c, options: o, coolDown: coolDown, most: most, lock: lock, begun: time.Now()}
	bounded, stop, over := engine.Within(ctx, o.Wait)
	defer stop()
	waiting, end := context.WithCancel(bounded)
	defer end()
	if o.Under != nil {
		defer context.AfterFunc(o.Under.Context(), end)()
	}
	held, err := k.acquire(waiting)
	if err != nil && bounded.Err() == nil && waiting.Err() != nil {
		return k.try(ctx) // which says why there is no session any more
	}
	return held, over(err)
}

func (k *candidate) acquire(ctx context.Context) (*engine.LeaseHolder, error) {
	for {
		s, fresh, err := k.lock.Latest(ctx)
		if err != nil {
			return nil, err
		}
		at, takes := time.Time{}, false
		if fresh {
			at, takes = k.next(ctx, s)
		}
		now := time.Now()
		switch {
		case takes && !at.After(now):
			held, err := k.try(ctx)
			if !errors.Is(err, ErrHeld) {
				return held, err
			}
			k.retry = time.Now().Add(k.options.Timing.Pause())
			continue
		case !k.late.IsZero() && !k.late.After(now):
			return nil, k.lock.Held()
		case !k.late.IsZero() && (at.IsZero() || at.After(k.late)):
			at = k.late
		}
		if err := k.lock.Wait(ctx, at); err != nil {
			return nil, err
		}
	}
}

func (k *candidate) try(ctx context.Context) (*engine.LeaseHolder, error) {
	return k.lock.Try(ctx, k.options, time.Since(k.begun))
}

// next returns when there is something to do, zero for never, and whether that is to take
// the lock.
func (k *candidate) next(ctx context.Context, s engine.Snapshot) (at time.Time, takes bool) {
	rec := s.Record
	if bound := k.options.AdditionalWait; s.Alive && bound > 0 && k.late.IsZero() {
		k.late = time.Now().Add(rec.Lease + bound)
	}
	switch under := k.options.Under; {
	case protocol.KeptFor(rec, k.c.options.Owner, k.c.options.Label):
		return k.retry, true
	case s.Alive && under != nil && rec.Session == under.ID():
		// Another part of the program has it; or nobody, and what has left it so is
		// released by an acquire alone.
		return k.retry.Add(k.options.Timing.Lease), true
	case s.Alive:
		k.since = time.Time{}
		return k.wish(ctx, s), false
	case rec.State == driver.Reserved && s.FreeIn > 0:
		k.since = time.Time{}
		return time.Time{}, false
	}
	if is := termOf(rec); k.since.IsZero() || k.free != is {
		k.free, k.since = is, time.Now()
	}
	end := k.since.Add(k.most)
	bounded, stop := context.WithDeadline(ctx, end)
	defer stop()
	failures, known := k.failures(bounded, rec)
	if known {
		return later(k.since.Add(k.delay(failures)), k.retry), true
	}
	// The history must not keep the lock free for longer than it could say.
	if again := time.Now().Add(k.options.Timing.Pause()); again.Before(end) {
		return again, false
	}
	return later(end, k.retry), true
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// wish asks the leader to hand over if that is due and the candidate is preferred to it. It
// returns when to ask, zero if not at all.
func (k *candidate) wish(ctx context.Context, s engine.Snapshot) time.Time {
	in, ok := k.lock.Wish(k.options.Want.Priority)
	switch {
	case !ok || k.mute == s.Record.Token:
		return time.Time{}
	case in > 0:
		return time.Now().Add(in)
	}
	switch failures, known := k.failures(ctx, s.Record); {
	case !known:
		k.mute = s.Record.Token
	case failures == 0:
		k.lock.Prefer(k.options.Want.Priority)
		return time.Now().Add(k.options.Timing.Lease)
	}
	return time.Time{}
}

// delay returns for how long a candidate waits after k failures.
func (k *candidate) delay(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	d := k.coolDown
	for ; failures > 1 && d < k.most; failures-- {
		d *= 2
	}
	return min(d, k.most)
}

// failures returns how many terms of its own label in a row have ended badly, and false if
// the history could not be read that tells.
func (k *candidate) failures(ctx context.Context, rec driver.Record) (n int, known bool) {
	list := protocol.Present(rec)
	if rec.State == driver.Held {
		list[0].End = k.endOf(rec)
	}
	n, settled := failuresOf(k.c.options.Label, list)
	from, to := protocol.Older(list, countedTerms)
	if settled || from == to {
		return n, true
	}
	if is := (termState{token: rec.Token, state: rec.State}); k.below != is {
		past, err := k.c.past(ctx, k.options.Want.Key, from, to)
		if err != nil {
			k.lock.Failed(err)
			return n, false
		}
		k.past, _ = protocol.Dense(past)
		k.below = is
	}
	n, _ = failuresOf(k.c.options.Label, append(list, k.past...))
	return n, true
}

// endOf returns how a term ends whose record still shows it held.
func (k *candidate) endOf(rec driver.Record) driver.EndReason {
	if rec.Session != "" {
		if u := k.c.engine.Session(rec.Session); u.Found && u.Record.State == driver.Closed && u.Record.End != "" {
			return u.Record.End
		}
	}
	return driver.EndExpired
}

// failuresOf counts the terms of a label that ended badly, the newest first, until one of it
// that ended well. It returns settled if there was such a one.
func failuresOf(label string, list []protocol.Entry) (n int, settled bool) {
	for _, e := range list {
		if e.Unknown || e.Label != label {
			continue
		}
		switch e.End {
		case driver.EndFailed, driver.EndStalled, driver.EndStopTimeout, driver.EndCrashed:
			n++
		case driver.EndReleased, driver.EndSteppedDown, driver.EndHandedOver:
			return n, true
		}
	}
	return n, false
}

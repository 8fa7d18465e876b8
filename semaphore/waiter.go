// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/slots"
)

// waiter is one acquire, when it is its turn in this process.
type waiter struct {
	s       *Semaphore
	options tenure.AcquireOptions
	place   *slots.Place // in the line of all processes; nil before it has one
	line    lineView
	chance  time.Time // when it may look at a slot from behind
	passed  int       // how many slots it has looked at once
	failed  bool      // the store gave no answer: each round asks until it does
	full    error     // what the last round met; nil if the store gave no answer
}

// wait makes rounds until it has a slot.
func (w *waiter) wait(ctx context.Context) (*Lease, error) {
	refresh := w.s.client.Options().RefreshPeriod
	p := slots.Patient(w.s.client.Options().LeaseDuration, w.options)
	for {
		l, err := w.round(ctx)
		w.failed = err != nil
		switch {
		case l != nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, slots.DoneWaiting(ctx, w.full)
		case err != nil && p.Ends(err):
			return nil, err
		case err != nil:
			w.full = nil
		default:
			p.Answered()
		}
		// A part of it is random, so that processes do not keep in step.
		timer := time.NewTimer(slots.About(refresh))
		select {
		case <-ctx.Done():
		case <-w.s.view.freed:
		case <-w.place.Arrived():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// chanceEach is how many refresh periods a process behind another one waits between two
// looks at a slot.
const chanceEach = 5

// round is one round of polls: of the line, and of some of the slots. A process
// behind another one polls one slot now and then, and not before it has waited for a refresh
// period, so that a process that has just released a slot does not take it again
// before the waiters have polled. The one poll is there so that many free slots
// are not left to one process to fill.
func (w *waiter) round(ctx context.Context) (*Lease, error) {
	s := w.s
	refresh := s.client.Options().RefreshPeriod
	behind := !w.place.AtFront() && w.behind(ctx)
	if behind {
		w.stand(ctx)
		switch now := time.Now(); {
		case w.chance.IsZero():
			w.chance = now.Add(refresh * 9 / 10)
			return nil, nil
		case now.Before(w.chance):
			return nil, nil
		default:
			w.chance = now.Add(chanceEach*refresh - refresh/10)
		}
	}
	age := cached
	if !behind && (w.passed > 0 || w.place.AtFront()) {
		age = refresh / 2
	}
	z, err := s.glanced(ctx, age)
	if err != nil {
		return nil, err
	}
	slots := s.view.order(z.Slots, refresh*3/4, behind)
	switch {
	case behind:
		slots = slots[:min(1, len(slots))]
	case w.passed >= z.Slots:
		slots = slots[:min(s.options.Looks, len(slots))]
	}
	l, holders, err := w.pass(ctx, slots, behind, s.glance)
	if l != nil || err != nil {
		return l, err
	}
	w.met(z.Slots, holders)
	if !behind {
		w.passed = max(w.passed, z.Slots)
	}
	w.stand(ctx)
	return nil, nil
}

// met notes the holders of the slots that this round has looked at: not all of them.
func (w *waiter) met(n int, holders []Holder) {
	if before := (*FullError)(nil); errors.As(w.full, &before) {
		for _, h := range before.Holders {
			if !slices.ContainsFunc(holders, func(is Holder) bool { return is.Slot == h.Slot }) {
				holders = append(holders, h)
			}
		}
	}
	if len(holders) > 0 {
		w.full = &FullError{Slots: n, Holders: w.s.holders(holders, n)}
	}
}

// stand takes a place in the line, if it has none.
func (w *waiter) stand(ctx context.Context) {
	if w.place == nil && !w.s.line.StandsBack() {
		w.place = w.s.line.Stand(ctx)
	}
}

// end leaves the line.
func (w *waiter) end(ctx context.Context) {
	if w.place != nil {
		w.place.Leave(ctx)
	}
}

// try polls every slot. Without a free one it returns their holders.
func (w *waiter) try(ctx context.Context) (*Lease, *FullError, error) {
	s := w.s
	z, err := s.recent(ctx, cached)
	if err != nil {
		return nil, nil, err
	}
	for {
		l, holders, err := w.pass(ctx, s.view.order(z.Slots, 0, false), false, s.look)
		if l != nil || err != nil {
			return l, nil, err
		}
		// A slot may have been added, or taken away, since that was read.
		now, err := s.current(ctx)
		if err != nil {
			return nil, nil, err
		}
		if now.Slots <= z.Slots {
			return nil, &FullError{Slots: now.Slots, Holders: s.holders(holders, now.Slots)}, nil
		}
		z = now
	}
}

// atOnce is how many slots are looked at at the same time.
const atOnce = 8

// lookFunc looks at slots.
type lookFunc func(ctx context.Context, slots []int) []looked

// pass polls the slots in their order, and takes the first free one. If there is no
// free slot it returns their holders.
//
// The write that takes a free slot is the cheapest poll there is, so the first slot is
// not read before, unless it is likely to be held.
func (w *waiter) pass(ctx context.Context, slots []int, held bool, look lookFunc) (*Lease, []Holder, error) {
	var holders []Holder
	if len(slots) > 0 && !held && w.s.view.fresh(slots[0]) {
		l, holder, err := w.take(ctx, slots[0])
		if l != nil || err != nil {
			return l, nil, err
		}
		holders, slots = append(holders, holder), slots[1:]
	}
	for len(slots) > 0 {
		n := min(atOnce, len(slots))
		looks := look(ctx, slots[:n])
		slots = slots[n:]
		for _, k := range looks {
			switch {
			case errors.Is(k.err, tenure.ErrUnreadable):
				holders = append(holders, Holder{Slot: k.slot})
			case k.err != nil:
				return nil, nil, k.err
			case k.status.Held:
				holders = append(holders, holderOf(k.slot, k.status))
			default:
				l, holder, err := w.take(ctx, k.slot)
				if l != nil || err != nil {
					return l, nil, err
				}
				holders = append(holders, holder)
			}
		}
	}
	return nil, holders, nil
}

// take takes a slot if it is free, and was not removed. Otherwise it returns its holder.
func (w *waiter) take(ctx context.Context, slot int) (*Lease, Holder, error) {
	s := w.s
	inner, err := s.base.TryLock(ctx, LockName(s.name, slot), &w.options)
	s.view.looked(slot)
	var held *tenure.HeldError
	switch {
	case errors.As(err, &held):
		return nil, Holder{slot, held.Owner, held.Token, held.FreeIn}, nil
	case errors.Is(err, tenure.ErrSessionClosed): // for any reason, also because it has expired
		return nil, Holder{}, err
	case errors.Is(err, tenure.ErrExpired), errors.Is(err, tenure.ErrUnreadable):
		return nil, Holder{Slot: slot}, nil
	case err != nil:
		return nil, Holder{}, err
	}
	z, err := s.admit(ctx, inner)
	switch {
	case err != nil:
		s.base.GiveBack(ctx, inner)
		return nil, Holder{}, err
	case slot >= z.Slots, inner.Check() != nil:
		// The slot is gone, or the lease has passed meanwhile.
		s.base.GiveBack(ctx, inner)
		return nil, Holder{Slot: slot, Owner: inner.Owner(), Token: inner.Token()}, nil
	}
	l := &Lease{Lease: inner, s: s, slot: slot, slots: z.Slots}
	s.view.taken(slot, l)
	return l, Holder{}, nil
}

// admit reads the number of slots that the holder of a slot goes by: after the
// slot was granted, and from the store. That is what makes a change safe. A
// holder that was granted a slot before the number was changed is in the slot's
// record by then, where the process that changes the number finds it afterwards.
// A process that is granted a slot later reads the new number.
func (s *Semaphore) admit(ctx context.Context, l *tenure.Lease) (size, error) {
	ctx, stop := l.Bind(ctx)
	defer stop()
	var z size
	err := s.base.Patiently(ctx, slots.Patient(-1, tenure.AcquireOptions{}), func() (err error) {
		z, err = s.current(ctx)
		return err
	})
	return z, err
}

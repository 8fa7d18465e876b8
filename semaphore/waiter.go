// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/slots"
)

// waiter is one acquire, when it is its turn in this process.
type waiter struct {
	s       *Semaphore
	options tenure.AcquireOptions
	take    slots.Taker
	first   int          // how many slots there are if no number is stored
	met     func(Holder) // is called for each round's holder in the way; nil: for none
	place   *slots.Place // in the line of all processes; nil before it has one
	line    lineView
	chance  time.Time // when it may look at a slot from behind
	passed  int       // how many slots it has looked at once
	waited  bool      // after its first round
	failed  bool      // the store gave no answer: each round asks until it does
	full    error     // what the last round met; nil if the store gave no answer
}

// taken is a slot that was taken.
type taken struct {
	lock        slots.Lock
	slot, slots int
}

// wait makes rounds until it has a slot.
func (w *waiter) wait(ctx context.Context) (*taken, error) {
	refresh := w.s.client.Options().RefreshPeriod
	p := slots.Patient(w.s.client.Options().LeaseDuration, w.options)
	for ; ; w.waited = true {
		t, err := w.round(ctx)
		w.failed = err != nil
		switch {
		case t != nil:
			return t, nil
		case ctx.Err() != nil:
			return nil, engine.DoneWaiting(ctx, w.full)
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
func (w *waiter) round(ctx context.Context) (*taken, error) {
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
	z, err := w.glanced(ctx, age)
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
	t, holders, err := w.pass(ctx, slots, behind, s.glance)
	if t != nil || err != nil {
		return t, err
	}
	w.note(z.Slots, holders)
	if !behind {
		w.passed = max(w.passed, z.Slots)
	}
	w.stand(ctx)
	return nil, nil
}

// note notes the holders of the slots that this round has looked at: not all of them.
func (w *waiter) note(n int, holders []Holder) {
	if before := (*FullError)(nil); errors.As(w.full, &before) {
		for _, h := range before.Holders {
			if !slices.ContainsFunc(holders, func(is Holder) bool { return is.Slot == h.Slot }) {
				holders = append(holders, h)
			}
		}
	}
	if len(holders) > 0 {
		w.full = w.isFull(n, holders)
	}
}

// isFull is the error of a caller that has met those holders.
func (w *waiter) isFull(n int, holders []Holder) *FullError {
	full := &FullError{Slots: n, Holders: w.s.holders(holders, n)}
	if w.met != nil && len(full.Holders) > 0 {
		w.met(full.Holders[0])
	}
	return full
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

// once polls every slot, and does not wait for one.
func (w *waiter) once(ctx context.Context) (t *taken, err error) {
	var full *FullError
	err = w.s.base.Patiently(ctx, slots.Patient(w.s.base.Brief(), w.options), func() (err error) {
		t, full, err = w.try(ctx)
		return err
	})
	if t == nil && err == nil {
		err = full
	}
	return t, err
}

// try polls every slot. Without a free one it returns their holders.
func (w *waiter) try(ctx context.Context) (*taken, *FullError, error) {
	s := w.s
	z, err := w.recent(ctx, cached)
	if err != nil {
		return nil, nil, err
	}
	for {
		t, holders, err := w.pass(ctx, s.view.order(z.Slots, 0, false), false, s.look)
		if t != nil || err != nil {
			return t, nil, err
		}
		// A slot may have been added, or taken away, since that was read.
		now, err := w.current(ctx)
		if err != nil {
			return nil, nil, err
		}
		if now.Slots <= z.Slots {
			return nil, w.isFull(now.Slots, holders), nil
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
func (w *waiter) pass(ctx context.Context, slots []int, held bool, look lookFunc) (*taken, []Holder, error) {
	var holders []Holder
	if len(slots) > 0 && !held && w.s.view.fresh(slots[0]) {
		t, holder, err := w.takeSlot(ctx, slots[0])
		if t != nil || err != nil {
			return t, nil, err
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
				t, holder, err := w.takeSlot(ctx, k.slot)
				if t != nil || err != nil {
					return t, nil, err
				}
				holders = append(holders, holder)
			}
		}
	}
	return nil, holders, nil
}

// takeSlot takes a slot if it is free, and was not removed. Otherwise it returns its holder.
func (w *waiter) takeSlot(ctx context.Context, slot int) (*taken, Holder, error) {
	s := w.s
	inner, err := w.take(ctx, LockName(s.name, slot))
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
	z, err := w.admit(ctx, inner)
	switch {
	case err != nil:
		s.base.GiveBack(ctx, inner)
		return nil, Holder{}, err
	case slot >= z.Slots, inner.Check() != nil:
		// The slot is gone, or the lease has passed meanwhile.
		s.base.GiveBack(ctx, inner)
		return nil, Holder{Slot: slot, Owner: inner.Owner(), Token: inner.Token()}, nil
	}
	return &taken{inner, slot, z.Slots}, Holder{}, nil
}

// admit reads the number of slots that the holder of a slot goes by: after the
// slot was granted, and from the store. That is what makes a change safe. A
// holder that was granted a slot before the number was changed is in the slot's
// record by then, where the process that changes the number finds it afterwards.
// A process that is granted a slot later reads the new number.
func (w *waiter) admit(ctx context.Context, l slots.Lock) (size, error) {
	ctx, stop := l.Bind(ctx)
	defer stop()
	var z size
	err := w.s.base.Patiently(ctx, slots.Patient(-1, tenure.AcquireOptions{}), func() (err error) {
		z, err = w.current(ctx)
		return err
	})
	return z, err
}

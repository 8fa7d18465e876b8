// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"
	"errors"
	"slices"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/slots"
)

// Status is what the records of a semaphore show.
type Status struct {
	Name string
	// Slots is how many there are, 0 if none are stored: it was not used yet.
	Slots int
	// Held are the slots that show a holder that may be alive, in their order,
	// including removed slots whose holders have not left.
	Held []SlotStatus
	// Front is the owner that waits at the front of the line, "" if none has waited
	// there for longer than a moment.
	Front string
}

// SlotStatus is one slot.
type SlotStatus struct {
	Slot int
	// Gone says that the slot was removed while it was held.
	Gone bool
	tenure.Status
}

// Status reads the holder of each slot, with one read for each, one after the
// other or a few at a time, so a slot that changes hands meanwhile can be missed.
func (s *Semaphore) Status(ctx context.Context) (Status, error) {
	st, err := s.status(ctx)
	if err != nil {
		return Status{}, &tenure.Error{Op: "status of", Key: s.name, Err: err}
	}
	return st, nil
}

func (s *Semaphore) status(ctx context.Context) (Status, error) {
	out := Status{Name: s.name}
	z, _, err := s.size.Read(ctx)
	if err != nil {
		return out, err
	}
	out.Slots = z.Slots
	line, err := s.client.Status(ctx, lineName(s.name))
	if err != nil && !errors.Is(err, tenure.ErrUnreadable) {
		return out, err
	}
	if line.Held {
		out.Front = line.Owner
	}
	for _, k := range s.lookAll(ctx, 0, z.Highest) {
		if k.err != nil && !errors.Is(k.err, tenure.ErrUnreadable) {
			return out, k.err
		}
		if k.status.Held {
			out.Held = append(out.Held, SlotStatus{Slot: k.slot, Gone: k.slot >= z.Slots, Status: k.status})
		}
	}
	return out, nil
}

// looked is what a read of a slot has shown.
type looked struct {
	slot   int
	status tenure.Status
	err    error
}

// look looks at the slots, at all of them at once.
func (s *Semaphore) look(ctx context.Context, slots []int) []looked {
	return s.lookBy(ctx, slots, nil)
}

// glance is look by cheap reads, for waiters: a slot that it shows free is taken only
// if it still is.
func (s *Semaphore) glance(ctx context.Context, slots []int) []looked {
	return s.lookBy(ctx, slots, &tenure.ReadOptions{Eventual: true})
}

func (s *Semaphore) lookBy(ctx context.Context, slots []int, how *tenure.ReadOptions) []looked {
	names := make([]string, len(slots))
	for i, slot := range slots {
		names[i] = LockName(s.name, slot)
	}
	list, errs := s.client.Statuses(ctx, names, how)
	out := make([]looked, len(slots))
	for i, slot := range slots {
		if out[i] = (looked{slot, list[i], errs[i]}); errs[i] == nil {
			s.view.looked(slot)
		}
	}
	return out
}

// certain reads the slots again that seem to have dead holders, and ends their terms if they do: see
// [slots.Expired] and [slots.Base.EndDead].
func (s *Semaphore) certain(ctx context.Context, seen []looked) []looked {
	var again []int
	for _, k := range seen {
		if k.err == nil && slots.Expired(k.status) {
			again = append(again, k.slot)
		}
	}
	if len(again) == 0 {
		return seen
	}
	for _, k := range s.look(ctx, again) {
		if k.err == nil && slots.Expired(k.status) {
			k.status, k.err = s.base.EndDead(ctx, k.status)
		}
		seen[slices.IndexFunc(seen, func(l looked) bool { return l.slot == k.slot })] = k
	}
	return seen
}

// lookAll looks at the slots from one to another, a few at a time.
func (s *Semaphore) lookAll(ctx context.Context, from, to int) []looked {
	var out []looked
	for ; from < to; from += atOnce {
		var slots []int
		for slot := from; slot < min(to, from+atOnce); slot++ {
			slots = append(slots, slot)
		}
		out = append(out, s.look(ctx, slots)...)
	}
	return out
}

func holderOf(slot int, st tenure.Status) Holder {
	return Holder{Slot: slot, Owner: st.Owner, Token: st.Token, FreeIn: st.FreeIn}
}

// holders adds the slots that this process has itself, which it did not look
// at, and puts them in order.
func (s *Semaphore) holders(seen []Holder, n int) []Holder {
	seen = append(seen, s.view.own(n)...)
	slices.SortFunc(seen, func(a, b Holder) int { return a.Slot - b.Slot })
	return slices.DeleteFunc(slices.CompactFunc(seen, func(a, b Holder) bool { return a.Slot == b.Slot }),
		func(h Holder) bool { return h.Slot >= n })
}

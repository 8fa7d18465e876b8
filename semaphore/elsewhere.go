// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/slots"
)

// AcquireElsewhere takes a slot for a holder in another process, as [Semaphore.Acquire] does or,
// if it does not wait, [Semaphore.TryAcquire]. It is for the lock service of this module. n is
// the number of slots if none is stored; that of [New] does not count here.
//
// This process reads the number of slots after the slot was granted, and before the holder learns
// of it. A slot that was removed is given back, and so is a slot whose grant has become too old.
func (s *Semaphore) AcquireElsewhere(ctx context.Context, n int, of slots.Elsewhere) (slots.Grant, error) {
	w := &waiter{s: s, take: of.Take, first: n, met: func(h Holder) {
		of.Met(&tenure.HeldError{Owner: h.Owner, Token: h.Token, FreeIn: h.FreeIn})
	}}
	t, err := w.elsewhere(ctx, of)
	if err != nil {
		return slots.Grant{}, wrap("acquire", s.name, err)
	}
	return slots.Grant{Lock: t.lock, Slot: t.slot, Slots: t.slots, Waited: w.waited}, nil
}

func (w *waiter) elsewhere(ctx context.Context, of slots.Elsewhere) (*taken, error) {
	if err := checkSlots(w.first); err != nil {
		return nil, err
	}
	if of.Wait == 0 {
		return w.once(ctx)
	}
	bounded, stop, over := engine.Within(ctx, of.Wait)
	defer stop()
	leave, err := w.s.queue.Enter(bounded)
	if err != nil {
		return nil, over(err)
	}
	defer leave()
	defer w.end(ctx)
	t, err := w.wait(bounded)
	return t, over(err)
}

// LeftElsewhere says that a holder elsewhere has released a slot: this process's waiters look there
// first.
func (s *Semaphore) LeftElsewhere(slot int) { s.view.left(slot, nil) }

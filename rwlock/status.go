// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"context"
	"errors"
	"time"

	"github.com/tenurelock/tenure"
)

// Status is what the records of a lock show.
type Status struct {
	Name string
	// Slots is how many processes can read at the same time before more slots are
	// made; 0 if the lock was not used yet.
	Slots int
	// Epoch is the epoch of the present writer or readers: see [Lease.Epoch].
	Epoch uint64
	// Writer has the gate: it writes, or, if there are readers, may wait for those that
	// were there before it. It is nil if the gate shows no holder that may be alive.
	Writer *tenure.Status
	// Readers are the slots that show a holder that may be alive, in their order.
	Readers []SlotStatus
	// Front is the owner that is at the front of the line of writers, "" if there is
	// none.
	Front string
	// LastWriter is the last term with a write, nil if there was none, or if there is a
	// writer now: see [Lease.LastWriter].
	LastWriter *tenure.Term
}

// SlotStatus is one process that reads.
type SlotStatus struct {
	Slot int
	tenure.Status
}

// Status reads the records of the lock, in two batches. They may change meanwhile.
func (l *Lock) Status(ctx context.Context) (Status, error) {
	st, err := l.status(ctx)
	return st, wrap("status of", l.name, err)
}

func (l *Lock) status(ctx context.Context) (Status, error) {
	out := Status{Name: l.name}
	at := time.Now()
	list, errs := l.client.Statuses(ctx, []string{SizeName(l.name), LineName(l.name), GateName(l.name)}, nil)
	if err := errors.Join(errs[0], errs[2]); err != nil {
		return out, err
	}
	z, _, err := l.size.Saw(list[0], at)
	if err != nil {
		return out, err
	}
	out.Slots = z.Slots
	if errs[1] == nil && list[1].Held {
		out.Front = list[1].Owner
	}
	gate := list[2]
	if out.Epoch = gate.Token; gate.Held {
		out.Writer = &gate
	} else {
		last := lastOf(gate)
		out.Epoch, out.LastWriter = last.Epoch, last.Last
	}
	list, errs = l.client.Statuses(ctx, l.slotNames(0, z.Slots), nil)
	for k, st := range list {
		if errs[k] != nil && !errors.Is(errs[k], tenure.ErrUnreadable) {
			return out, errs[k]
		}
		if st.Held {
			out.Readers = append(out.Readers, SlotStatus{k, st})
		}
	}
	return out, nil
}

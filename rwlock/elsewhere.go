// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/slots"
)

// AcquireReadElsewhere acquires the lock to read for a holder in another process, as
// [Lock.AcquireRead] does or, if it does not wait, [Lock.TryAcquireRead]. Each such holder has a slot
// of its own. It is for the lock service of this module.
//
// This process reads the gate after the slot was granted, and before the holder learns of it. If the
// gate is shut the slot is given back.
func (l *Lock) AcquireReadElsewhere(ctx context.Context, of slots.Elsewhere) (slots.Grant, error) {
	attempts := 0
	r, err := l.acquireReadElsewhere(ctx, of, func(ctx context.Context) (*reader, error) {
		attempts++
		return l.begin(ctx, of.Take, of.Met)
	})
	if err != nil {
		return slots.Grant{}, wrap("acquire to read", l.name, err)
	}
	return slots.Grant{
		Lock: r.slot, Slot: r.n, Waited: attempts > 1, Token: readerToken(r.last.Epoch), Last: r.last.Last,
	}, nil
}

func (l *Lock) acquireReadElsewhere(
	ctx context.Context, of slots.Elsewhere, attempt func(context.Context) (*reader, error),
) (*reader, error) {
	if of.Wait == 0 {
		return once(ctx, l, tenure.AcquireOptions{}, func() (*reader, error) { return attempt(ctx) })
	}
	ctx, stop, over := engine.Within(ctx, of.Wait)
	defer stop()
	leave := func() {}
	defer func() { leave() }()
	p := slots.Patient(l.client.Options().LeaseDuration, tenure.AcquireOptions{})
	queued := false
	r, err := retry(ctx, l, p, func() (*reader, error) { return attempt(ctx) }, func(busy *BusyError) error {
		if !queued {
			// Those who find the gate shut wait in their order, so that one of them polls it, and one
			// at a time finds out whether it is open.
			begun := time.Now()
			out, err := l.reading.Enter(ctx)
			if err != nil {
				return err
			}
			leave, queued = out, true
			if time.Since(begun) > l.client.Options().RefreshPeriod/10 {
				return nil // the one before has come in, or has given up
			}
		}
		return l.awaitRead(ctx, p, busy)
	})
	return r, over(err)
}

// AcquireWriteElsewhere acquires the lock to write for a holder in another process, as
// [Lock.AcquireWrite] does or, if it does not wait, [Lock.TryAcquireWrite]. It is for the lock service
// of this module.
//
// This process reads the slots after the gate was granted, and before the holder learns of it. If it
// finds readers there, Drain is set: the holder keeps the gate alive, and must not write before
// [Lock.DrainElsewhere] has returned nil.
func (l *Lock) AcquireWriteElsewhere(ctx context.Context, of slots.Elsewhere) (slots.Grant, error) {
	w := &writer{l: l, take: of.Take, met: of.Met, try: of.Wait == 0, leaves: true}
	var e *entry
	var err error
	if w.try {
		e, err = once(ctx, l, tenure.AcquireOptions{}, func() (*entry, error) { return w.claim(ctx) })
	} else {
		e, err = w.wait(ctx, of.Wait)
	}
	if err != nil {
		return slots.Grant{}, wrap("acquire to write", l.name, err)
	}
	return slots.Grant{
		Lock: e.gate, Slots: e.slots, Waited: w.waited, Token: writerToken(e.gate.Token()), Last: e.last.Last,
		Drain: len(e.readers) > 0, Unwritten: unwritten(e.gate),
	}, nil
}

// DrainElsewhere waits, for at most that long, until all readers are gone that there may be beside
// the holder elsewhere of the gate with that token. It may be called for a holder as often as it
// likes, in any process. It returns how many slots there are. The error is a [*BusyError] if readers
// are left, or matches [tenure.ErrLost] if the gate has another holder, or none. met is called for one
// of the readers, each time that they are seen.
//
// The slots are read after the gate was seen under that token, so after it was granted. A reader that
// this does not show takes its slot later, and looks at the gate after that: it turns back if the
// gate is held under the token then. If it is not, the holder's lease was over before, because a
// gate is only granted again, or shows a release, when its holder cannot act any more. So the
// holder counts nil only if its own lease is valid when it comes, and then it need not be asked here
// whether the gate is still held at the end.
func (l *Lock) DrainElsewhere(
	ctx context.Context, token uint64, wait time.Duration, met func(*tenure.HeldError),
) (n int, err error) {
	n, err = l.drainElsewhere(ctx, token, wait, met)
	return n, wrap("drain", l.name, err)
}

func (l *Lock) drainElsewhere(
	ctx context.Context, token uint64, wait time.Duration, met func(*tenure.HeldError),
) (int, error) {
	w := &writer{l: l, met: met}
	var gate tenure.Status
	var s *view
	err := l.base.Patiently(ctx, slots.Patient(l.base.Brief(), tenure.AcquireOptions{}), func() (err error) {
		gate, err = l.client.Status(ctx, GateName(l.name))
		if err == nil && slots.Expired(gate) {
			gate, err = l.client.Status(ctx, GateName(l.name)) // which is certain
		}
		if err != nil || !gate.Held || gate.Token != token {
			return err
		}
		n, err := l.number(ctx)
		if err == nil {
			s, err = w.look(ctx, n)
		}
		return err
	})
	switch {
	case err != nil:
		return 0, err
	case gate.Token != token, gate.State != tenure.StateHeld:
		return 0, &tenure.SupersededError{Owner: gate.Owner, Token: gate.Token, Released: gate.State == tenure.StateReleased}
	case !gate.Held:
		return 0, fmt.Errorf("%w: the holder of the gate, or its session, has ended, or has shown no sign of life",
			tenure.ErrExpired)
	case len(s.readers) > 0 && wait == 0:
		w.meetsReaders(s.readers)
		return s.slots, busyReaders(s.readers)
	}
	bounded, stop, over := engine.Within(ctx, wait)
	defer stop()
	return s.slots, over(w.drain(bounded, s.readers))
}

// OpenedElsewhere says that a holder elsewhere has opened the gate: see [turn].
func (l *Lock) OpenedElsewhere() { l.turn.opened() }

// IsUnwritten says whether data may be what a writer under the token leaves in the gate that has not
// written: see [slots.Grant.Unwritten].
func IsUnwritten(data []byte, token uint64) bool {
	var n note
	if json.Unmarshal(data, &n) != nil || n.Token != token || n.Epoch >= token {
		return false
	}
	if n.Last == nil {
		return n.Epoch == 0
	}
	return n.Epoch == n.Last.Token && n.Epoch > 0
}

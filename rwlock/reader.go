// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/slots"
)

// AcquireRead acquires the lock to read, waiting until no process writes. ctx bounds
// the waiting alone: the lease goes on until it is released. If the process reads
// already, and the gate was seen open less than a refresh period ago
// ([tenure.Options.RefreshPeriod]), it sends nothing.
//
// Options are for the slot's lock; nil means the defaults. While the slot is held, the
// options of the first reader in the process count. Data, UnlessAlive, AdditionalWait and
// Priority are refused.
//
// The error matches the context's, and carries a [*BusyError] if a deadline ended the waiting
// and a holder was seen in the way; or [tenure.ErrClosed], or [tenure.ErrUnreadable] if a
// record of the lock cannot be understood, or [tenure.ErrSessionClosed] if [Options.Session]
// has ended; or it is the store's own, if the store gave no answer but errors for
// StoreTimeout, which is the lease duration if it is zero and for ever if it is negative.
func (l *Lock) AcquireRead(ctx context.Context, options *tenure.AcquireOptions) (*Lease, error) {
	bound, stop := l.base.Bound(ctx)
	defer stop()
	lease, err := l.acquireRead(bound, options)
	return lease, wrap("acquire to read", l.name, l.base.OrEnded(ctx, err))
}

func (l *Lock) acquireRead(ctx context.Context, options *tenure.AcquireOptions) (*Lease, error) {
	o, err := acquired(options)
	if err != nil {
		return nil, err
	}
	if lease := l.join(); lease != nil {
		return lease, nil
	}
	ctx, stop, over := engine.Within(ctx, o.Wait)
	defer stop()
	o.Wait = 0
	leave, err := l.reading.Enter(ctx)
	if err != nil {
		return nil, over(err)
	}
	defer leave()
	p := slots.Patient(l.client.Options().LeaseDuration, o)
	lease, err := retry(ctx, l, p, func() (*Lease, error) { return l.tryRead(ctx, o) }, func(busy *BusyError) error {
		return l.awaitRead(ctx, p, busy)
	})
	return lease, over(err)
}

// awaitRead waits until the next attempt to read is due.
func (l *Lock) awaitRead(ctx context.Context, p *slots.Patience, busy *BusyError) error {
	begun, refresh := time.Now(), l.client.Options().RefreshPeriod
	if busy.Writer != nil {
		if err := l.waitOpen(ctx, p); err != nil {
			return err
		}
	}
	if time.Since(begun) < refresh/10 {
		slots.Pause(ctx, refresh/2) // a gate that is reserved seems open; or all slots are held
	}
	return nil
}

// TryAcquireRead acquires the lock to read if no process holds the gate, to write or to
// wait for readers. Otherwise the error is a [*BusyError], which matches [ErrBusy] and
// [tenure.ErrHeld]. If the store gave no answer but errors for StoreTimeout, which is
// three request timeouts if it is zero, the error is the store's.
func (l *Lock) TryAcquireRead(ctx context.Context, options *tenure.AcquireOptions) (*Lease, error) {
	bound, stop := l.base.Bound(ctx)
	defer stop()
	var lease *Lease
	o, err := acquired(options)
	if err == nil {
		lease, err = once(bound, l, o, func() (*Lease, error) { return l.tryRead(bound, o) })
	}
	return lease, wrap("try acquire to read", l.name, l.base.OrEnded(ctx, err))
}

// once is retry for a caller that does not wait.
func once[T any](ctx context.Context, l *Lock, o tenure.AcquireOptions, attempt func() (*T, error)) (*T, error) {
	var busy error
	got, err := retry(ctx, l, slots.Patient(l.base.Brief(), o), func() (*T, error) {
		got, err := attempt()
		if errors.Is(err, ErrBusy) {
			busy = err
			return nil, nil
		}
		return got, err
	}, nil)
	if err == nil && got == nil {
		err = busy
	}
	return got, err
}

// join joins the slot that this process has, without a call: it was announced to the
// writers before. That the gate was seen open a while ago is for fairness alone, so that
// readers that keep coming do not keep a writer out.
func (l *Lock) join() *Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.joinable(); s != nil && time.Since(s.seenOpen) < l.client.Options().RefreshPeriod {
		return l.newReader(s)
	}
	return nil
}

// joinable returns the share that further readers may join. The caller holds mu.
func (l *Lock) joinable() *share {
	if s := l.open; s != nil && (s.slot.Check() != nil || s.slot.Context().Err() != nil) {
		l.open = nil // lost, or asked to stop
	}
	return l.open
}

// tryRead is one attempt to read.
func (l *Lock) tryRead(ctx context.Context, o tenure.AcquireOptions) (*Lease, error) {
	select {
	case l.acting <- struct{}{}:
		defer func() { <-l.acting }()
	case <-ctx.Done():
		return nil, engine.Done(ctx)
	}
	if lease := l.join(); lease != nil {
		return lease, nil
	}
	if lease, err := l.joinAfterLook(ctx); lease != nil || err != nil {
		return lease, err
	}
	r, err := l.begin(ctx, l.base.Taker(&o), nil)
	if err != nil {
		return nil, err
	}
	slot := r.slot.(*tenure.Lease) //nolint:forcetypeassert // of [slots.Base.Taker]
	s := &share{slot: slot, n: r.n, epoch: r.last.Epoch, last: r.last.Last, seenOpen: r.at}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shares[s], l.open, l.former = true, s, r.n
	return l.newReader(s), nil
}

// joinAfterLook reads the gate, and joins the slot of this process if there is one and
// the gate is open. Once it was seen shut, no reader joins that slot any more.
func (l *Lock) joinAfterLook(ctx context.Context) (*Lease, error) {
	l.mu.Lock()
	s := l.joinable()
	l.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	at := time.Now()
	list, errs := l.client.Statuses(ctx, []string{GateName(l.name)}, &tenure.ReadOptions{Eventual: true})
	if errs[0] != nil {
		return nil, errs[0]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != s || l.joinable() == nil {
		return nil, nil
	}
	if !isOpen(list[0]) {
		l.open = nil
		return nil, busyWriter(list[0].Owner, list[0].FreeIn)
	}
	s.seenOpen = at
	return l.newReader(s), nil
}

// isOpen says that the gate has no holder.
func isOpen(gate tenure.Status) bool {
	return gate.State == "" || gate.State == tenure.StateReleased
}

// reader is a slot that was taken, and the gate was open after that.
type reader struct {
	slot slots.Lock
	n    int       // its number
	last note      // of the gate
	at   time.Time // before the gate was read
}

// begin takes a slot, and then reads the gate. A writer takes the gate, and then reads
// the slots, so one of the two sees the other. met, which may be nil, is called for the writer
// that is in the way.
func (l *Lock) begin(ctx context.Context, take slots.Taker, met func(*tenure.HeldError)) (*reader, error) {
	slot, k, err := l.takeSlot(ctx, take)
	if err != nil {
		return nil, err
	}
	at := time.Now()
	gate, err := l.look(ctx, slot)
	open := isOpen(gate)
	switch {
	case err == nil:
		if err = checkEpoch(gate.Token); err == nil {
			err = slot.Check()
		}
	case ctx.Err() == nil && slot.Check() != nil:
		err = slot.Check()
	case errors.Is(err, tenure.ErrSteppedDown):
		err = busyWriter(gate.Owner, 0) // which asks all that it has noted
	}
	if err != nil || !open {
		l.base.GiveBack(ctx, slot)
	}
	switch {
	case err != nil:
		return nil, err
	case open:
		last := lastOf(gate)
		l.turn.read()
		return &reader{slot, k, last, at}, nil
	}
	if met != nil {
		met(&tenure.HeldError{Owner: gate.Owner, Token: gate.Token, FreeIn: gate.FreeIn})
	}
	if gate.FreeIn > 0 {
		return nil, busyWriter(gate.Owner, gate.FreeIn)
	}
	if err := l.freeDead(ctx, gate); err != nil {
		return nil, err
	}
	return l.begin(ctx, take, met)
}

// look reads the gate, for the holder of a slot.
func (l *Lock) look(ctx context.Context, slot slots.Lock) (gate tenure.Status, err error) {
	ctx, stop := slot.Bind(ctx)
	defer stop()
	err = l.base.Patiently(ctx, slots.Patient(-1, tenure.AcquireOptions{}), func() (err error) {
		gate, err = l.client.Status(ctx, GateName(l.name))
		return err
	})
	return gate, err
}

// freeDead frees a gate whose holder has shown no life for its lease, or has closed the session
// that it was held under, or that was reserved for an owner that has not come.
func (l *Lock) freeDead(ctx context.Context, gate tenure.Status) error {
	if gate.State == tenure.StateHeld {
		err := admin.ReleaseDead(ctx, l.client, GateName(l.name), "the writer has shown no sign of life for its lease: readers wait")
		switch {
		case errors.Is(err, tenure.ErrNotHeld) && gate.Session != "": // it was closed in order, and the record stays
		case errors.Is(err, tenure.ErrNotHeld): // another process was quicker
			return nil
		case errors.Is(err, tenure.ErrAlive):
			return busyWriter(gate.Owner, gate.Lease)
		default:
			return err
		}
	}
	lease, err := l.client.TryAcquire(ctx, GateName(l.name), nil)
	var held *tenure.HeldError
	switch {
	case errors.As(err, &held):
		return busyWriter(held.Owner, held.FreeIn)
	case err != nil:
		return err
	}
	l.giveGateBack(ctx, lease)
	return nil
}

// takeSlot takes a free slot, preferably the last one of this process. If all are held it
// adds slots.
func (l *Lock) takeSlot(ctx context.Context, take slots.Taker) (slots.Lock, int, error) {
	n, err := l.number(ctx)
	if err != nil {
		return nil, 0, err
	}
	first := l.preferred(n)
	if slot, err := l.tryLock(ctx, first, take); slot != nil || err != nil {
		return slot, first, err
	}
	from := 0
	for range maxPasses {
		var free []int
		list, errs := l.client.Statuses(ctx, l.slotNames(from, n), nil)
		for i, st := range list {
			switch {
			case errors.Is(errs[i], tenure.ErrUnreadable): // held by an unknown owner
			case errs[i] != nil:
				return nil, 0, errs[i]
			case !inTheWay(st):
				free = append(free, from+i)
			}
		}
		rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		for _, k := range free {
			if slot, err := l.tryLock(ctx, k, take); slot != nil || err != nil {
				return slot, k, err
			}
		}
		if len(free) > 0 {
			from = 0 // others were quicker: some may be free by now
			continue
		}
		if n == MaxSlots {
			break
		}
		from = n
		if n, err = l.grow(ctx, n); err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, &BusyError{FreeIn: l.client.Options().LeaseDuration}
}

// maxPasses bounds how often all slots are looked at for a free one.
const maxPasses = 8

// inTheWay says that another owner may have the slot, or has a reservation for it.
func inTheWay(st tenure.Status) bool {
	return st.Held || st.State == tenure.StateReserved && st.FreeIn > 0
}

// tryLock takes the slot. It returns nil if it is held, or was, until the lease was
// over.
func (l *Lock) tryLock(ctx context.Context, k int, take slots.Taker) (slots.Lock, error) {
	slot, err := take(ctx, SlotName(l.name, k))
	if err == nil || errors.Is(err, tenure.ErrSessionClosed) { // also because it has expired
		return slot, err
	}
	if errors.Is(err, tenure.ErrHeld) || errors.Is(err, tenure.ErrUnreadable) {
		return nil, nil
	}
	return nil, err
}

// preferred returns the slot to try first: the former one, or any.
func (l *Lock) preferred(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.former
	for s := range l.shares {
		if s.n == k {
			k = -1 // readers that leave before a writer still have it
		}
	}
	if k < 0 || k >= n {
		k = rand.N(n)
	}
	return k
}

func (l *Lock) slotNames(from, to int) []string {
	names := make([]string, 0, to-from)
	for k := from; k < to; k++ {
		names = append(names, SlotName(l.name, k))
	}
	return names
}

// grow doubles the number of slots, unless it has grown already.
func (l *Lock) grow(ctx context.Context, n int) (int, error) {
	z, err := l.size.Change(ctx, func(z size, stored bool) (size, error) {
		if !stored {
			return z, errNoSize
		}
		if z.Slots <= n {
			z.Slots = min(2*n, MaxSlots)
		}
		return z, nil
	})
	return z.Slots, err
}

// share is a slot that the readers of this process share.
type share struct {
	slot  *tenure.Lease
	n     int
	epoch uint64
	last  *tenure.Term

	users    int       // guarded by the lock's mu
	seenOpen time.Time // before the read that last showed the gate open; guarded by the lock's mu
}

// newReader returns a lease on a share. The caller holds mu.
func (l *Lock) newReader(s *share) *Lease {
	s.users++
	return newLease(l, &grip{inner: s.slot, share: s, token: readerToken(s.epoch), epoch: s.epoch, last: s.last})
}

// leaveShare records that a reader has left. It returns true if it was the last one,
// which releases the slot.
func (l *Lock) leaveShare(s *share) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.users--; s.users > 0 {
		return false
	}
	if delete(l.shares, s); l.open == s {
		l.open = nil
	}
	return true
}

// reads says that this process reads.
func (l *Lock) reads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.shares {
		if s.slot.Check() == nil {
			return true
		}
	}
	return false
}

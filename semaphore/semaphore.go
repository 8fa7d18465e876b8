// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/slots"
	"github.com/tenurelock/tenure/internal/text"
)

// Semaphore is a number of slots under one name. A process may hold several of them. All
// methods may be called concurrently. A Semaphore need not be closed: its leases are the
// client's.
//
// Callers that wait with one Semaphore are served in their order, and share its polls.
// So a process needs one for each name.
type Semaphore struct {
	base    slots.Base
	client  *tenure.Client
	name    string
	slots   int // to begin with
	options Options

	queue slots.Queue
	line  *slots.Line
	size  *slots.Size[size]
	view  *view
}

// Options are what all acquires of a semaphore share. Nil means the defaults.
type Options struct {
	// Looks is how many slots the waiter at the front of the line polls in one
	// refresh period of the client ([tenure.Options.RefreshPeriod]). So with N slots, a
	// slot that becomes free stays empty for up to N / Looks of these periods. Only one
	// process at a time pays for it. If zero, it is 4.
	Looks int
	// Session is a session of the same client, that keeps the slots of this
	// process alive: to hold them costs its heartbeat, however many they are.
	// When it ends, all of them do, and no other one is granted; an Acquire that
	// waits ends with an error that matches [tenure.ErrSessionClosed]. If nil,
	// each slot is a lease of its own. Some processes may use a session, and
	// others not.
	Session *tenure.Session
}

const (
	defaultLooks = 4
	maxLooks     = 100
)

// New returns the semaphore of the given name. Its slot count n is only used the
// first time; after that the number in the store counts for all processes. Change
// it with [Semaphore.Resize]. Options may be nil; an error names what is wrong.
func New(client *tenure.Client, name string, n int, options *Options) (*Semaphore, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if o.Looks == 0 {
		o.Looks = defaultLooks
	}
	base := slots.Base{Client: client, Session: o.Session}
	errs := []error{base.Check("semaphore"), text.CheckName("semaphore name", name, MaxNameLen), checkSlots(n)}
	if o.Looks < 1 || o.Looks > maxLooks {
		errs = append(errs, fmt.Errorf("looks %d must be from 1 to %d", o.Looks, maxLooks))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("semaphore: %w", err)
	}
	return &Semaphore{
		base: base, client: client, name: name, slots: n, options: o,
		line: &slots.Line{Base: base, Name: lineName(name)},
		size: &slots.Size[size]{Base: base, Name: SizeName(name), Good: size.good, Text: size.bytes},
		view: newView(),
	}, nil
}

// Name returns the name of the semaphore.
func (s *Semaphore) Name() string { return s.name }

// Slots returns how many slots there are: the number in the store or, if none is stored
// yet, the number given to [New]. It repeats an unanswered request for three request
// timeouts.
func (s *Semaphore) Slots(ctx context.Context) (n int, stored bool, err error) {
	var z size
	err = s.base.Patiently(ctx, slots.Patient(s.base.Brief(), tenure.AcquireOptions{}), func() (err error) {
		z, stored, err = s.size.Read(ctx)
		return err
	})
	if err != nil {
		return 0, false, &tenure.Error{Op: "read slots of", Key: s.name, Err: err}
	}
	if !stored {
		return s.slots, false, nil
	}
	return z.Slots, true, nil
}

// Acquire takes a slot, waiting until there is one. ctx bounds the waiting
// alone: the lease goes on until it is released.
//
// Options are those of the slot's lock; nil means the defaults. Data stays with
// the slot, not with the semaphore: the next holder of the same slot finds it.
// UnlessAlive, AdditionalWait and Priority do not apply to slots and are refused.
//
// The error matches the context's, and carries a [*FullError] if a deadline ended the
// waiting and slots were seen held; or [tenure.ErrClosed], or [tenure.ErrUnreadable]
// if the number of slots cannot be understood, or [tenure.ErrSessionClosed] if
// [Options.Session] has ended; or it is the store's own, if the
// store gave no answer but errors for StoreTimeout, which is the lease duration if
// it is zero and for ever if it is negative.
func (s *Semaphore) Acquire(ctx context.Context, options *tenure.AcquireOptions) (*Lease, error) {
	bound, stop := s.base.Bound(ctx)
	defer stop()
	l, err := s.acquire(bound, options)
	return l, wrap("acquire", s.name, s.base.OrEnded(ctx, err))
}

func (s *Semaphore) acquire(ctx context.Context, options *tenure.AcquireOptions) (*Lease, error) {
	o, err := slots.Options(options)
	if err != nil {
		return nil, err
	}
	bounded, stop, over := engine.Within(ctx, o.Wait)
	defer stop()
	o.Wait = 0
	leave, err := s.queue.Enter(bounded)
	if err != nil {
		return nil, over(err)
	}
	defer leave()
	w := &waiter{s: s, options: o, take: s.base.Taker(&o), first: s.slots}
	defer w.end(ctx)
	t, err := w.wait(bounded)
	return s.lease(t), over(err)
}

// TryAcquire takes a slot if one is free. It looks at every slot, and stands in
// no line: it can come before waiters. Otherwise the error is a [*FullError], which
// matches [ErrFull] and [tenure.ErrHeld]. If the store gave no answer but errors for
// StoreTimeout, which is three request timeouts if it is zero, the error is the
// store's.
func (s *Semaphore) TryAcquire(ctx context.Context, options *tenure.AcquireOptions) (*Lease, error) {
	bound, stop := s.base.Bound(ctx)
	defer stop()
	l, err := s.tryAcquire(bound, options)
	return l, wrap("try acquire", s.name, s.base.OrEnded(ctx, err))
}

func (s *Semaphore) tryAcquire(ctx context.Context, options *tenure.AcquireOptions) (*Lease, error) {
	o, err := slots.Options(options)
	if err != nil {
		return nil, err
	}
	w := &waiter{s: s, options: o, take: s.base.Taker(&o), first: s.slots}
	t, err := w.once(ctx)
	return s.lease(t), err
}

// lease returns the lease of a slot that this process has taken, nil for none.
func (s *Semaphore) lease(t *taken) *Lease {
	if t == nil {
		return nil
	}
	inner := t.lock.(*tenure.Lease) //nolint:forcetypeassert // of [slots.Base.Taker]
	l := &Lease{Lease: inner, s: s, slot: t.slot, slots: t.slots}
	s.view.taken(t.slot, l)
	return l
}

// cached is how long a number of slots may be used before it is read again, where
// correctness does not depend on it.
const cached = time.Minute

// Run takes a slot, runs work while it is held, waits for it to return, and
// releases the slot. The context of work carries ctx's values, and ends with
// ctx and with the lease; [tenure.FromContext] has the slot's lock. Work must
// return then: until it does, heartbeats cover it.
//
// Run returns what work returns. If the lease was lost before that, the error
// matches [tenure.ErrLost] too. If the slot was asked back, and work returned
// an error, it matches [tenure.ErrSteppedDown]. If no slot was acquired, work was
// not run. A panic of work releases the slot and goes on. As with [tenure.Client.Run],
// the term of the slot ends as [tenure.EndFailed] if work fails by itself.
func (s *Semaphore) Run(ctx context.Context, options *tenure.AcquireOptions, work func(context.Context, *Lease) error) error {
	l, err := s.Acquire(ctx, options)
	if err != nil {
		return err
	}
	bound, stop := l.Bind(ctx)
	defer stop()
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			_ = l.ReleaseWith(context.WithoutCancel(ctx), slots.Failure(ctx, l.Lease, slots.ErrBroken))
		}
	}()
	err = work(bound, l)
	returned = true
	lost := l.ReleaseWith(context.WithoutCancel(ctx), slots.Failure(ctx, l.Lease, err))
	return slots.Outcome(l.Lease, lost, err, func(err error) error { return wrap("run under", s.name, err) })
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
)

// Semaphore is a number of slots under one name, of which this process takes
// some. All methods may be called concurrently. It holds nothing that needs
// closing: its leases are the client's.
//
// Those who wait with one Semaphore come in their order, and share its looks.
// So a process needs one for each name.
type Semaphore struct {
	client  *tenure.Client
	name    string
	slots   int // to begin with
	options Options

	queue queue
	sight *sight
	known known
	stood stood
}

// Options are what all acquires of a semaphore share. Nil means the defaults.
type Options struct {
	// Looks is how many slots the waiter at the front of the line polls in one
	// refresh period of the client ([tenure.Options.RefreshPeriod]). So of N slots
	// one that becomes free stays empty for N / Looks of these periods. Only one process at a time pays for it. If zero,
	// it is 4.
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

// New returns the semaphore of the given name. Its slot count is only used the
// first time; after that the number in the store counts for all processes. Change
// it with [Semaphore.Resize]. Options may be nil; an error names what is wrong.
func New(client *tenure.Client, name string, slots int, options *Options) (*Semaphore, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if o.Looks == 0 {
		o.Looks = defaultLooks
	}
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("client is nil: make one with tenure.New"))
	}
	if o.Session != nil && client != nil && o.Session.Client() != client {
		errs = append(errs, errors.New("session is of another client: its locks are in another store, perhaps; open one with the semaphore's client"))
	}
	errs = append(errs, checkName(name), checkSlots(slots))
	if o.Looks < 1 || o.Looks > maxLooks {
		errs = append(errs, fmt.Errorf("looks %d must be from 1 to %d", o.Looks, maxLooks))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("semaphore: %w", err)
	}
	return &Semaphore{client: client, name: name, slots: slots, options: o, sight: newSight()}, nil
}

// Name returns the name of the semaphore.
func (s *Semaphore) Name() string { return s.name }

// Slots returns how many slots there are: the number in the store, or, if none
// is stored yet, the one that was given to [New]. A store that gives no answer is
// asked again for three request timeouts.
func (s *Semaphore) Slots(ctx context.Context) (slots int, stored bool, err error) {
	var z size
	err = s.patiently(ctx, patient(s.brief(), tenure.AcquireOptions{}), func() (err error) {
		z, stored, err = s.read(ctx)
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
// UnlessAlive, AdditionalWait, Priority and PriorityPause mean nothing here, and
// are refused.
//
// The error matches the context's, [tenure.ErrClosed], or [tenure.ErrUnreadable]
// if the number of slots cannot be understood, or [tenure.ErrSessionClosed] if
// [Options.Session] has ended; or it is the store's own, if the
// store gave no answer but errors for StoreTimeout, which is the lease duration if
// it is zero and for ever if it is negative.
func (s *Semaphore) Acquire(ctx context.Context, options *tenure.AcquireOptions) (*Lease, error) {
	bound, stop := s.boundBySession(ctx)
	defer stop()
	l, err := s.acquire(bound, options)
	return l, wrap("acquire", s.name, s.orSessionEnded(ctx, err))
}

func (s *Semaphore) acquire(ctx context.Context, options *tenure.AcquireOptions) (*Lease, error) {
	o, err := copied(options)
	if err != nil {
		return nil, err
	}
	leave, err := s.queue.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	w := &waiter{s: s, options: o}
	defer w.end(ctx)
	return w.wait(ctx)
}

// TryAcquire takes a slot if one is free. It looks at every slot, and stands in
// no line: it can come before those who wait. Otherwise the error is a
// [*FullError], which matches [ErrFull] and [tenure.ErrHeld]. If the store gave no
// answer but errors for StoreTimeout, which is three request timeouts if it is
// zero, the error is the store's.
func (s *Semaphore) TryAcquire(ctx context.Context, options *tenure.AcquireOptions) (*Lease, error) {
	bound, stop := s.boundBySession(ctx)
	defer stop()
	l, err := s.tryAcquire(bound, options)
	return l, wrap("try acquire", s.name, s.orSessionEnded(ctx, err))
}

func (s *Semaphore) tryAcquire(ctx context.Context, options *tenure.AcquireOptions) (*Lease, error) {
	o, err := copied(options)
	if err != nil {
		return nil, err
	}
	w := &waiter{s: s, options: o}
	var l *Lease
	var full *FullError
	err = s.patiently(ctx, patient(s.brief(), o), func() (err error) {
		l, full, err = w.try(ctx)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case l == nil:
		return nil, full
	}
	return l, nil
}

// cached is how long a number of slots is taken for granted before it is asked
// for again, where nothing rests on it.
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
// the tenure of the slot ends as [tenure.EndFailed] if work fails by itself.
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
			_ = l.ReleaseWith(context.WithoutCancel(ctx), l.failure(ctx, errBroken))
		}
	}()
	err = work(bound, l)
	returned = true
	lost := l.ReleaseWith(context.WithoutCancel(ctx), l.failure(ctx, err))
	if errors.Is(lost, tenure.ErrLost) || errors.Is(lost, tenure.ErrStopTimeout) {
		return errors.Join(lost, err)
	}
	if cause := context.Cause(l.Context()); err != nil && errors.Is(cause, tenure.ErrSteppedDown) {
		return errors.Join(wrap("run under", s.name, cause), err)
	}
	return err
}

func copied(options *tenure.AcquireOptions) (tenure.AcquireOptions, error) {
	var o tenure.AcquireOptions
	if options != nil {
		o = *options
	}
	if o.Data != nil {
		o.Data = append([]byte{}, o.Data...)
	}
	switch {
	case o.UnlessAlive, o.AdditionalWait != 0, o.Priority != 0, o.PriorityPause != 0:
		return o, errors.New("UnlessAlive, AdditionalWait, Priority and PriorityPause are for one lock: they mean nothing to several slots")
	case o.Capacity < 0:
		return o, fmt.Errorf("capacity %d must not be negative", o.Capacity)
	case len(o.Data) > maxDataLen:
		return o, fmt.Errorf("data has %d bytes: at most %d are allowed", len(o.Data), maxDataLen)
	}
	return o, nil
}

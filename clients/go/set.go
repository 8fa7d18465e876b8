// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenurelock/tenure/internal/text"
)

// pendingPart is the part of a lease for which a grant may wait for the others that are attached with it.
const pendingPart = 10

// LeaseSet is a set of locks that are held together, under one session: see [Session.AcquireAll]. All methods may
// be called concurrently.
type LeaseSet struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	leases []*Lease // in the order of their names
}

// AcquireAll takes several locks under the session, all of them or none, and waits until it has them. names may be
// in any order. At least one must be given, and none twice.
//
// The locks are taken one after the other in the order of their names, the same in every process, so that callers
// of AcquireAll never deadlock. They are attached to the session by one call for up to 100 of them, or before it
// waits for a holder.
//
// If one of the locks cannot be taken, or ctx ends, AcquireAll releases the others and returns the error of
// [Session.Acquire] for that lock. If a lock that was taken ends meanwhile, all are released, and it begins again.
// The options apply to each lock, but Wait to all of them together.
func (s *Session) AcquireAll(ctx context.Context, names []string, options *AcquireOptions) (*LeaseSet, error) {
	return s.acquireAll(ctx, "acquire all", names, options, false)
}

// TryAcquireAll is like AcquireAll, but does not wait for holders.
func (s *Session) TryAcquireAll(ctx context.Context, names []string, options *AcquireOptions) (*LeaseSet, error) {
	return s.acquireAll(ctx, "try acquire all", names, options, true)
}

// RunAll takes several locks as AcquireAll does, runs work while all of them are held, waits for it to return, and
// releases them, as [Client.Run] does for one.
func (s *Session) RunAll(
	ctx context.Context, names []string, options *AcquireOptions, work func(context.Context, *LeaseSet) error,
) error {
	return s.runs(func() error {
		t, err := s.AcquireAll(ctx, names, options)
		if err != nil {
			return err
		}
		release := func(failed error) error {
			return t.release(context.WithoutCancel(ctx), &ReleaseOptions{Failed: failed})
		}
		return runUnder(ctx, t, release, func(ctx context.Context) error { return work(ctx, t) })
	})
}

// Leases returns the leases, in the order of the names of their locks.
func (t *LeaseSet) Leases() []*Lease { return slices.Clone(t.leases) }

// Lease returns the lease of a lock, nil if the set does not contain it.
func (t *LeaseSet) Lease(name string) *Lease {
	for _, l := range t.leases {
		if l.Name() == name {
			return l
		}
	}
	return nil
}

// Context returns a context that ends when the first of the leases ends, or must stop: see [Lease.Context].
func (t *LeaseSet) Context() context.Context { return t.ctx }

// Bind is as [Lease.Bind].
func (t *LeaseSet) Bind(ctx context.Context) (bound context.Context, stop context.CancelFunc) {
	return bind(ctx, t.ctx)
}

// Check returns nil while the holder may act under all of the locks, otherwise the error of [Lease.Check] of the
// first lease that has ended. Call it before every side effect.
func (t *LeaseSet) Check() error {
	for _, l := range t.leases {
		if err := l.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Remaining returns the time until the first deadline of the leases, 0 when one of them has ended.
func (t *LeaseSet) Remaining() time.Duration {
	least := t.leases[0].Remaining()
	for _, l := range t.leases[1:] {
		least = min(least, l.Remaining())
	}
	return least
}

// Release releases all of the locks, each as [Lease.Release] does, and returns their errors joined.
func (t *LeaseSet) Release(ctx context.Context) error { return t.release(ctx, nil) }

func (t *LeaseSet) release(ctx context.Context, options *ReleaseOptions) error {
	t.cancel(ErrReleased)
	failed := make(chan error)
	for _, l := range t.leases {
		go func() { failed <- l.ReleaseWith(ctx, options) }()
	}
	var all error
	for range t.leases {
		all = errors.Join(all, <-failed)
	}
	return all
}

// errSetEnded is why a set is released: one of its locks has ended while others were taken.
var errSetEnded = errors.New("another lock of the set has ended")

func (s *Session) acquireAll(
	ctx context.Context, op string, names []string, options *AcquireOptions, try bool,
) (*LeaseSet, error) {
	o, err := options.copied()
	if err = errors.Join(err, checkNames(names)); err != nil {
		return nil, wrap(op, "session "+s.id, err)
	}
	until := time.Now().Add(o.Wait)
	for {
		if o.Wait > 0 {
			o.Wait = max(1, time.Until(until))
		}
		t := &LeaseSet{}
		t.ctx, t.cancel = context.WithCancelCause(context.Background())
		var at string
		err := s.within(ctx, func(ctx context.Context) (err error) {
			at, err = s.takeAll(ctx, t, slices.Sorted(slices.Values(names)), o, try)
			return err
		})
		if err == nil {
			return t, nil
		}
		// All of them, before it waits for a lesser one again: that would break the order.
		_ = t.release(ctx, nil)
		if ctx.Err() != nil || s.check() != nil || !errors.Is(err, errSetEnded) {
			return nil, wrap(op, at, err)
		}
	}
}

// takeAll takes locks into a set, one after the other. at is the lock that it could not take.
func (s *Session) takeAll(
	ctx context.Context, t *LeaseSet, sorted []string, o AcquireOptions, try bool,
) (at string, err error) {
	ctx, stop := bind(ctx, t.ctx)
	defer stop()
	var pending []*Lease // granted, not attached
	var first time.Duration
	flush := func() error {
		if len(pending) == 0 {
			return nil
		}
		batch := pending
		pending = nil
		if err := s.attach(ctx, batch); err != nil {
			if errors.Is(err, ErrLost) && ctx.Err() == nil && s.check() == nil {
				err = errSetEnded
			}
			return err
		}
		return nil
	}
	begin := func(_ context.Context, g grant, sent time.Duration) (*Lease, error) {
		l := s.join(g, sent)
		if pending = append(pending, l); len(pending) == 1 {
			first = s.c.now()
		}
		t.leases = append(t.leases, l)
		context.AfterFunc(l.ctx, func() {
			t.cancel(errors.Join(errSetEnded, wrap("hold", g.name, context.Cause(l.ctx))))
		})
		if len(pending) == maxBatch || s.c.now()-first >= s.pack.lease/pendingPart {
			return l, flush()
		}
		return l, nil
	}
	for _, at = range sorted {
		if _, err := s.c.take(ctx, want{name: at}, &o, try, begin, flush); err != nil {
			return at, err
		}
	}
	if err := flush(); err != nil {
		return at, err
	}
	// An ended lease stays ended: if all pass, all were good when the first was checked.
	for _, l := range t.leases {
		if l.ctx.Err() != nil || l.check() != nil {
			return l.Name(), errSetEnded
		}
	}
	return "", nil
}

// checkNames returns an error if names are not good for a set.
func checkNames(names []string) error {
	if len(names) == 0 {
		return text.Invalid("no lock name given: name at least one")
	}
	sorted := slices.Sorted(slices.Values(names))
	for i, name := range sorted {
		if i > 0 && sorted[i-1] == name {
			return text.Invalid("lock name %.200q is given twice: a set has each lock once", name)
		}
	}
	return nil
}

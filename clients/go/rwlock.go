// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/internal/text"
)

// Semaphore is a number of slots under one name. A program may hold several of them. All methods may be called
// concurrently.
type Semaphore struct {
	by    holder
	name  string
	slots int
}

// maxSlots is how many slots a semaphore may have.
const maxSlots = 1000

// Semaphore returns the semaphore of the given name, of package semaphore. Its number of slots n, from 1 to 1000, is
// only used the first time; after that the number in the store counts for all processes. It sends nothing.
func (c *Client) Semaphore(name string, n int) *Semaphore { return &Semaphore{c, name, n} }

// SlotLease is the lease of a slot. Its name and token are the slot's: tokens of two slots cannot be compared, so the
// resource to fence is one for each slot, by that name.
type SlotLease struct{ *Lease }

// Slot returns the number of the slot, from 0. No other holder has it.
func (l *SlotLease) Slot() int { return l.grant.slot }

// Slots returns how many slots there were when this one was granted.
func (l *SlotLease) Slots() int { return l.grant.slots }

// Acquire takes a slot, and waits until there is one. Options and errors are those of [Client.Acquire]. An error that
// matches [ErrHeld] names one of the holders.
func (s *Semaphore) Acquire(ctx context.Context, options *AcquireOptions) (*SlotLease, error) {
	return s.acquire(ctx, "acquire slot of", options, false)
}

// TryAcquire takes a slot if one is free, as [Client.TryAcquire] does.
func (s *Semaphore) TryAcquire(ctx context.Context, options *AcquireOptions) (*SlotLease, error) {
	return s.acquire(ctx, "try acquire slot of", options, true)
}

// Run runs work while it holds a slot, as [Client.Run] does.
func (s *Semaphore) Run(
	ctx context.Context, options *AcquireOptions, work func(context.Context, *SlotLease) error,
) error {
	return s.by.runs(func() error {
		l, err := s.Acquire(ctx, options)
		if err != nil {
			return err
		}
		return l.run(ctx, func(ctx context.Context) error { return work(ctx, l) })
	})
}

func (s *Semaphore) acquire(ctx context.Context, op string, o *AcquireOptions, try bool) (*SlotLease, error) {
	if s.slots < 1 || s.slots > maxSlots {
		return nil, wrap(op, s.name, text.Invalid("slots %d must be from 1 to %d", s.slots, maxSlots))
	}
	l, err := s.by.acquire(ctx, op, want{slotKind, s.name, s.slots}, o, try)
	if err != nil {
		return nil, err
	}
	return &SlotLease{l}, nil
}

// RWLock is a name that any number of processes read, or one writes. A plain lock of the same name is another lock.
// All methods may be called concurrently.
type RWLock struct {
	by   holder
	name string
}

// RWLock returns the lock for readers and writers of the given name, of package rwlock. It sends nothing.
func (c *Client) RWLock(name string) *RWLock { return &RWLock{c, name} }

// Writer is the last writer of a lock for readers and writers.
type Writer struct {
	// Owner is its name, and Token its epoch: its fencing token was twice that.
	Owner string
	Token uint64
	// End says how its term ended. After any other end than "released" the data may be half written.
	End string
}

// RWLease is the lease of a reader or a writer. As a fence.Grant it has the name of the lock and the fencing token, so
// that readers and writers meet at one fence.
type RWLease struct {
	*Lease
	name    string
	writing bool
}

// Name returns the name of the lock: the resource that the token fences.
func (l *RWLease) Name() string { return l.name }

// Token returns the fencing token: 2w for the writer of epoch w, 2w+1 for those who read after it. It rises with every
// term that excludes the one before. A reader shows it to the resource before it reads.
func (l *RWLease) Token() uint64 { return l.grant.fence }

// Writing says that it is a writer's.
func (l *RWLease) Writing() bool { return l.writing }

// LastWriter returns the last writer before this lease. It is false if no process has ever written.
func (l *RWLease) LastWriter() (Writer, bool) {
	if l.grant.last == nil {
		return Writer{}, false
	}
	return *l.grant.last, true
}

// errOwnData is of data for a lock of readers and writers.
var errOwnData = text.Invalid("option Data must be empty: a lock for readers and writers stores data of its own " +
	"in its records; keep yours with the resource")

// AcquireRead acquires the lock to read, and waits until no process writes. Options and errors are those of
// [Client.Acquire], but Data is refused, here and in a
// release: the lock stores its own there.
func (r *RWLock) AcquireRead(ctx context.Context, options *AcquireOptions) (*RWLease, error) {
	return r.read(ctx, "acquire to read", options, false)
}

// TryAcquireRead acquires the lock to read if no process writes, as [Client.TryAcquire] does.
func (r *RWLock) TryAcquireRead(ctx context.Context, options *AcquireOptions) (*RWLease, error) {
	return r.read(ctx, "try acquire to read", options, true)
}

// RunRead runs work while it may read, as [Client.Run] does.
func (r *RWLock) RunRead(
	ctx context.Context, options *AcquireOptions, work func(context.Context, *RWLease) error,
) error {
	return r.runs(ctx, work, func() (*RWLease, error) { return r.AcquireRead(ctx, options) })
}

// AcquireWrite acquires the lock to write, and waits until no other process reads or writes. It holds the gate against
// new readers while it waits for those that are there; if it is asked to stop meanwhile, it gives the gate back, and
// waits again. Options and errors are those of AcquireRead.
func (r *RWLock) AcquireWrite(ctx context.Context, options *AcquireOptions) (*RWLease, error) {
	return r.write(ctx, "acquire to write", options, false)
}

// TryAcquireWrite acquires the lock to write if no process reads or writes, as [Client.TryAcquire] does.
func (r *RWLock) TryAcquireWrite(ctx context.Context, options *AcquireOptions) (*RWLease, error) {
	return r.write(ctx, "try acquire to write", options, true)
}

// RunWrite runs work while it may write, as [Client.Run] does. If work returns an error without having been asked to
// stop, its term ends as "failed", which later holders see in [RWLease.LastWriter].
func (r *RWLock) RunWrite(
	ctx context.Context, options *AcquireOptions, work func(context.Context, *RWLease) error,
) error {
	return r.runs(ctx, work, func() (*RWLease, error) { return r.AcquireWrite(ctx, options) })
}

func (r *RWLock) runs(
	ctx context.Context, work func(context.Context, *RWLease) error, acquire func() (*RWLease, error),
) error {
	return r.by.runs(func() error {
		l, err := acquire()
		if err != nil {
			return err
		}
		return l.run(ctx, func(ctx context.Context) error { return work(ctx, l) })
	})
}

func (r *RWLock) read(ctx context.Context, op string, o *AcquireOptions, try bool) (*RWLease, error) {
	l, err := r.acquire(ctx, op, readKind, o, try)
	if err != nil {
		return nil, err
	}
	return &RWLease{l, r.name, false}, nil
}

func (r *RWLock) acquire(ctx context.Context, op string, k kind, o *AcquireOptions, try bool) (*Lease, error) {
	if o != nil && o.Data != nil {
		return nil, wrap(op, r.name, errOwnData)
	}
	return r.by.acquire(ctx, op, want{kind: k, name: r.name}, o, try)
}

func (r *RWLock) write(ctx context.Context, op string, options *AcquireOptions, try bool) (*RWLease, error) {
	var o AcquireOptions
	if options != nil {
		o = *options
	}
	var until time.Time
	if o.Wait > 0 && !try {
		until = time.Now().Add(o.Wait)
	}
	for {
		l, err := r.acquire(ctx, op, writeKind, &o, try)
		if err != nil {
			return nil, err
		}
		err = l.drain(ctx, until, try)
		if err == nil {
			return &RWLease{l, r.name, true}, nil
		}
		l.giveBack()
		// A gate that was lost, or given back on request, while readers were there is taken again.
		gone := errors.Is(err, ErrLost) || errors.Is(err, ErrSteppedDown)
		if ctx.Err() != nil || try || !gone || errors.Is(err, ErrSessionClosed) {
			return nil, wrap(op, r.name, err)
		}
		if o.Wait > 0 {
			o.Wait = max(1, time.Until(until))
		}
	}
}

// drain waits until the readers that were there when the writer took the gate are gone. Until then it must not write.
func (l *Lease) drain(ctx context.Context, until time.Time, try bool) error {
	ctx, stop := l.Bind(ctx) // it ends with the gate, too
	defer stop()
	ended := func(met error) error {
		if cause := context.Cause(l.ctx); cause != nil {
			return cause
		}
		return errors.Join(l.check(), done(ctx, met))
	}
	to, body := l.c.caller(), fields{"name": l.grant.name, "token": l.grant.token}
	var met error
	var pauses backoff
	for l.grant.drains {
		wait, last := maxWait, try
		if !until.IsZero() {
			wait = min(wait, time.Until(until).Truncate(time.Millisecond))
			last = last || wait <= 0
		}
		if last {
			wait = 0
		}
		began := time.Now()
		body["wait_ms"] = wait.Milliseconds()
		_, p := call(ctx, to, wait+callMargin, "/v1/drain", body, readDone)
		switch {
		case ctx.Err() != nil:
			return ended(met)
		case p == nil:
			return l.check() // the answer counts only if the gate is held now
		case p.lost():
			return fmt.Errorf("%w: the gate is lost", ErrSuperseded)
		case p.kind == "held":
			met = &p.held
		case !p.again():
			return &ProblemError{p.kind, p.status, p.detail}
		case met == nil || last:
			met = unavailable(p)
		}
		if last {
			return met
		}
		if p.kind == "held" && time.Since(began) >= wait/2 {
			pauses = backoff{}
			continue
		}
		sleep(ctx, pauses.next())
	}
	return l.check()
}

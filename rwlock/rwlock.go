// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/slots"
	"github.com/tenurelock/tenure/internal/text"
)

// Lock is a name that any number of processes read, or one writes. All methods may be
// called concurrently. It holds nothing that needs closing: its leases are the client's.
//
// The readers of one Lock share a slot, and its writers wait in their order. So a process
// needs one for each name.
type Lock struct {
	base   slots.Base
	client *tenure.Client
	name   string
	line   *slots.Line
	size   *slots.Size[size]

	acting  chan struct{} // held by the reader that looks at the gate, or takes a slot
	reading slots.Queue   // those that wait to read
	writing slots.Queue   // those that wait to write

	mu     sync.Mutex
	open   *share          // that further readers join; nil: none
	shares map[*share]bool // all that are not released
	former int             // the slot that this process had last
	lined  time.Time       // when the line was seen held last, or this process stood in it
	turn   turn
}

// Options are what all acquires of a lock share. Nil means the defaults.
type Options struct {
	// Session is a session of the same client, that keeps what this process holds alive:
	// a process that reads any number of such locks pays its heartbeat alone. When it
	// ends, all of its leases do, and no other one is granted; an acquire that waits ends
	// with an error that matches [tenure.ErrSessionClosed]. If nil, each is a lease of its
	// own. Some processes may use a session, and others not.
	Session *tenure.Session
}

// New returns the lock of the given name. Options may be nil; an error names what is
// wrong. It sends nothing.
func New(client *tenure.Client, name string, options *Options) (*Lock, error) {
	base := slots.Base{Client: client}
	if options != nil {
		base.Session = options.Session
	}
	if err := errors.Join(base.Check("lock for readers and writers"), text.CheckName("lock name", name, MaxNameLen)); err != nil {
		return nil, fmt.Errorf("rwlock: %w", err)
	}
	return &Lock{
		base: base, client: client, name: name, former: -1,
		line:   &slots.Line{Base: base, Name: LineName(name)},
		size:   &slots.Size[size]{Base: base, Name: SizeName(name), Good: size.good, Text: size.bytes},
		acting: make(chan struct{}, 1), shares: map[*share]bool{},
	}, nil
}

// Name returns the name of the lock.
func (l *Lock) Name() string { return l.name }

// RunRead acquires the lock to read, runs work, waits for it to return, and releases the
// lock. The context of work carries ctx's values, and ends with ctx and with the lease.
// Work must return then: until it does, heartbeats cover it, for
// [tenure.Options.StopTimeout] at most.
//
// RunRead returns what work returns. If the lease was lost before that, the error
// matches [tenure.ErrLost] too. If the process was asked to stop, and work returned an
// error, it matches [tenure.ErrSteppedDown]. If the lock was not acquired, work was not
// run: see [Lock.AcquireRead]. A panic of work releases the lock and goes on.
func (l *Lock) RunRead(ctx context.Context, options *tenure.AcquireOptions, work func(context.Context, *Lease) error) error {
	lease, err := l.AcquireRead(ctx, options)
	if err != nil {
		return err
	}
	return lease.run(ctx, "read under", work)
}

// RunWrite is RunRead for a writer: see [Lock.AcquireWrite]. If work returns an error,
// or panics, while nothing has asked it to stop, its term ends as [tenure.EndFailed],
// which later holders see in [Lease.LastWriter].
func (l *Lock) RunWrite(ctx context.Context, options *WriteOptions, work func(context.Context, *Lease) error) error {
	lease, err := l.AcquireWrite(ctx, options)
	if err != nil {
		return err
	}
	return lease.run(ctx, "write under", work)
}

// acquired returns the options of an acquire, checked.
func acquired(options *tenure.AcquireOptions) (tenure.AcquireOptions, error) {
	o, err := slots.Options(options)
	if err == nil && o.Data != nil {
		err = errors.New("option Data must be empty: the lock stores its own data in its records; keep yours with the resource")
	}
	return o, err
}

// number returns how many slots there are, or were when that was read last: any number
// that was once read will do. The first user of the lock stores it.
func (l *Lock) number(ctx context.Context) (int, error) {
	if z, at := l.size.Known(); !at.IsZero() {
		return z.Slots, nil
	}
	at := time.Now()
	list, errs := l.client.Statuses(ctx, []string{SizeName(l.name), GateName(l.name), SlotName(l.name, 0)}, nil)
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	z, ok, err := l.size.Saw(list[0], at)
	// A process that makes more slots has found all of the first ones held.
	if err == nil && !ok && (list[1].State != "" || list[2].State != "") {
		// Another process may have stored it, and taken a lock, between the reads.
		if z, ok, err = l.size.Read(ctx); err == nil && !ok {
			err = errNoSize
		}
	}
	switch {
	case err != nil:
		return 0, err
	case ok:
		return z.Slots, nil
	}
	z, err = l.size.Current(ctx, size{firstSlots})
	return z.Slots, err
}

// waitOpen waits until the gate seems open, or its holder dead. Nothing rests on it. An
// error is reported once, and then only a change: so after an error the store is asked
// whether it answers.
func (l *Lock) waitOpen(ctx context.Context, p *slots.Patience) error {
	for leader, err := range l.client.Election(GateName(l.name), nil).Observe(ctx) {
		p.Answered()
		switch {
		case ctx.Err() != nil:
			return engine.Done(ctx)
		case err != nil && p.Ends(err):
			return err
		case err == nil && leader.None():
			return nil
		case err == nil:
			continue
		}
		err = l.base.Patiently(ctx, p, func() error {
			_, err := l.client.Status(ctx, GateName(l.name))
			return err
		})
		if err != nil {
			return err
		}
	}
	return engine.Done(ctx)
}

// retry makes attempts until one succeeds. After an attempt that a holder stopped,
// it waits until the next one is due. The store may fail to answer for as long as the
// patience lasts.
func retry[T any](ctx context.Context, l *Lock, p *slots.Patience, attempt func() (*T, error), wait func(*BusyError) error) (*T, error) {
	var met error // at the last attempt; nil if the store gave no answer
	for {
		got, err := attempt()
		var busy *BusyError
		if errors.As(err, &busy) && busy != errLine {
			met = busy
		}
		switch {
		case err == nil:
			return got, nil
		case ctx.Err() != nil:
			return nil, engine.DoneWaiting(ctx, met)
		case errors.As(err, &busy):
			p.Answered()
			if err = wait(busy); err != nil && ctx.Err() != nil {
				return nil, engine.DoneWaiting(ctx, met)
			} else if err != nil {
				return nil, err // it has asked for long enough
			}
			p.Answered()
		case errors.Is(err, tenure.ErrSessionClosed), errors.Is(err, tenure.ErrUnreadable), errors.Is(err, tenure.ErrTokenLimit), errors.Is(err, tenure.ErrSteppedDown):
			return nil, err
		case errors.Is(err, tenure.ErrLost):
			// It was paused, or cut off, while it got its lease.
			p.Answered()
			err = nil
		}
		switch {
		case ctx.Err() != nil:
			return nil, engine.DoneWaiting(ctx, met)
		case err != nil && p.Ends(err):
			return nil, err
		case err != nil:
			met = nil
			slots.Pause(ctx, l.client.Options().RefreshPeriod/4)
		}
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/slots"
)

// Lease is the lease of a reader or a writer. All methods may be called concurrently.
// Readers of one process have separate leases on a shared slot, which is released with
// the last of them.
//
// It is a [github.com/tenurelock/tenure/fence.Grant]: its name is that of the lock, so
// readers and writers meet at one fence.
type Lease struct {
	l      *Lock
	ctx    context.Context
	cancel context.CancelCauseFunc
	grip   atomic.Pointer[grip]
	ended  atomic.Pointer[error] // why it has ended before its grip has

	mu       sync.Mutex // held by Downgrade and Release
	unhook   func() bool
	released bool
	result   error
}

// grip is the lock by which a lease is held: the gate, or a slot.
type grip struct {
	inner *tenure.Lease
	share *share // nil: the gate
	token uint64
	epoch uint64
	last  *tenure.Term
}

func newLease(l *Lock, g *grip) *Lease {
	lease := &Lease{l: l}
	lease.ctx, lease.cancel = context.WithCancelCause(context.Background())
	lease.hold(g)
	return lease
}

// hold holds the lease by another lock from now on.
func (l *Lease) hold(g *grip) {
	if l.unhook != nil {
		l.unhook()
	}
	l.grip.Store(g)
	life := g.inner.Context()
	l.unhook = context.AfterFunc(life, func() { l.cancel(context.Cause(life)) })
}

// Name returns the name of the lock: the resource that the token fences.
func (l *Lease) Name() string { return l.l.name }

// Writing says that it is a writer's.
func (l *Lease) Writing() bool { return l.grip.Load().share == nil }

// Owner returns the name under which the lock is held.
func (l *Lease) Owner() string { return l.grip.Load().inner.Owner() }

// Epoch returns the gate's token of this writer, or of the writer whose work a reader
// sees. It rises with each writer, by one or more. Readers of one epoch read the same.
func (l *Lease) Epoch() uint64 { return l.grip.Load().epoch }

// Token returns the fencing token: twice the epoch for a writer, and one more for a
// reader. It rises with every term that excludes the one before; readers of one epoch
// have the same. After [Lease.Downgrade] it is another one.
//
// A resource that compares it refuses late writes of former writers. It protects a
// reader from them only from the instant on at which it has seen the reader's token: so a
// reader shows it before it reads.
func (l *Lease) Token() uint64 { return l.grip.Load().token }

// LastWriter returns the last term of the gate before this one in which its holder
// wrote. Its token is an epoch. It returns false if no process has ever written. What
// was written is whole if its End is [tenure.EndReleased]. Otherwise it may be half:
// the writer has crashed, or was paused for too long, or has failed, or was asked to
// stop.
func (l *Lease) LastWriter() (tenure.Term, bool) {
	if last := l.grip.Load().last; last != nil {
		return *last, true
	}
	return tenure.Term{}, false
}

// Slot returns the number of the slot that the readers of this process share, from 0. It
// is false for a writer.
func (l *Lease) Slot() (int, bool) {
	if s := l.grip.Load().share; s != nil {
		return s.n, true
	}
	return 0, false
}

// Lock returns the lease of the lock by which this one is held: the gate, or the slot that
// the readers of this process share. It is for programs that watch over a holder, as by
// [admin.ReleaseCrashed]. Do not release it.
func (l *Lease) Lock() *tenure.Lease { return l.grip.Load().inner }

// Session returns the session that keeps the lease alive, nil for a lease without one.
func (l *Lease) Session() *tenure.Session { return l.grip.Load().inner.Session() }

// Remaining returns the time until the deadline, 0 when the right to act has ended.
func (l *Lease) Remaining() time.Duration {
	if l.ended.Load() != nil {
		return 0
	}
	return l.grip.Load().inner.Remaining()
}

// Check is as [tenure.Lease.Check]: it returns nil while the holder may act, reads a
// clock and nothing else, and fails for ever once it has failed. Call it before every
// side effect, and before what was read counts.
func (l *Lease) Check() error {
	if err := l.ended.Load(); err != nil {
		return *err
	}
	return l.grip.Load().inner.Check()
}

// Context is as [tenure.Lease.Context]: it is cancelled at the deadline, on a loss, when
// the process is asked to stop, and when this lease is released. [context.Cause] says
// why.
func (l *Lease) Context() context.Context { return l.ctx }

// Bind is as [tenure.Lease.Bind]: it returns a context with the values and the
// cancellation of ctx that also ends with the lease. stop frees what it holds.
func (l *Lease) Bind(ctx context.Context) (bound context.Context, stop context.CancelFunc) {
	bound, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return bound, func() {
		unhook()
		cancel(nil)
	}
}

// Release ends the lease: it cancels its context with [tenure.ErrReleased], and makes
// Check fail. Call it when the work has returned, and not before. The release of a
// writer, or of the last reader of a process, releases the record, and waits for the
// store as [tenure.Lease.Release] does, with the same errors. Releasing again returns
// the same.
func (l *Lease) Release(ctx context.Context) error { return l.release(ctx, nil) }

func (l *Lease) release(ctx context.Context, failed *tenure.ReleaseOptions) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return l.result
	}
	l.released = true
	g := l.grip.Load()
	lost := l.Check()
	l.end(tenure.ErrReleased)
	l.unhook() // the slot may be held for much longer
	switch {
	case g.share == nil:
		l.result = g.inner.ReleaseWith(ctx, failed)
		l.l.turn.opened()
	case l.l.leaveShare(g.share):
		l.result = g.inner.Release(ctx)
	}
	if l.result == nil {
		l.result = lost // of a downgrade, or of a slot that others have still
	}
	l.result = wrap("release", l.l.name, l.result)
	return l.result
}

// end ends the right to act.
func (l *Lease) end(why error) {
	l.ended.CompareAndSwap(nil, &why)
	l.cancel(why)
}

// run runs work under the lease, and releases it.
func (l *Lease) run(ctx context.Context, op string, work func(context.Context, *Lease) error) error {
	bound, stop := l.Bind(ctx)
	defer stop()
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			_ = l.release(context.WithoutCancel(ctx), slots.Failure(ctx, l, slots.ErrBroken))
		}
	}()
	err := work(bound, l)
	returned = true
	lost := l.release(context.WithoutCancel(ctx), slots.Failure(ctx, l, err))
	return slots.Outcome(l, lost, err, func(err error) error { return wrap(op, l.l.name, err) })
}

// Downgrade makes a writer a reader, with no other writer in between: what it has
// written is what it reads. Others may read as well from then on. The caller has
// stopped writing before. The lease has another token afterwards: a reader that uses a
// fence shows that one, as every reader does, or a late write of its own may change
// what it reads.
//
// An error that matches [tenure.ErrLost] says that the lease has ended. After another
// error the lease still writes, unless Check fails; [ErrBusy] says that there was no
// slot. There is no way back: two readers that want to write would wait for each other.
func (l *Lease) Downgrade(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return wrap("downgrade", l.l.name, l.downgrade(ctx))
}

func (l *Lease) downgrade(ctx context.Context) error {
	g := l.grip.Load()
	if g.share != nil {
		return fmt.Errorf("%w: this lease already reads", ErrNotWriting)
	}
	if err := errors.Join(l.Check(), context.Cause(l.ctx)); err != nil {
		return err
	}
	lock, gate := l.l, g.inner
	bound, stop := gate.Bind(ctx)
	defer stop()
	own := note{gate.Token(), gate.Token(), &tenure.Term{
		Owner: gate.Owner(), Token: gate.Token(), Host: lock.client.Options().Host, Label: lock.client.Options().Label,
		Until: time.Now(), End: tenure.EndReleased,
	}}
	// The gate's life is bound enough.
	taken, k, err := lock.takeSlot(bound, lock.base.Taker(&tenure.AcquireOptions{StoreTimeout: -1}))
	if err != nil {
		return err
	}
	slot := taken.(*tenure.Lease) //nolint:forcetypeassert // of [slots.Base.Taker]
	// As long as the gate is held no other writer has looked at the slots: from here on
	// each writer that comes sees this one.
	if lost := errors.Join(gate.Check(), context.Cause(l.ctx)); lost != nil {
		lock.base.GiveBack(ctx, slot)
		return lost
	}
	s := &share{slot: slot, n: k, epoch: g.epoch, last: own.Last, users: 1, seenOpen: time.Now()}
	l.hold(&grip{inner: slot, share: s, token: readerToken(s.epoch), epoch: s.epoch, last: s.last})
	lock.turn.read()
	lock.mu.Lock()
	lock.shares[s], lock.former = true, k
	lock.mu.Unlock()
	// A release with data says whether it was this write that has opened the gate.
	err = gate.ReleaseWith(ctx, &tenure.ReleaseOptions{Data: own.bytes()})
	lock.turn.opened()
	if err != nil {
		if err = l.confirm(ctx, slot, gate.Token()); err != nil {
			l.end(err)
			return err
		}
		return nil // others may have the gate by now: no reader joins
	}
	lock.mu.Lock()
	defer lock.mu.Unlock()
	lock.open = s
	return nil
}

// confirm reads a gate whose release was not confirmed, for the reader that its holder
// has become. If it shows this same term, released or not, no other writer was there
// since.
func (l *Lease) confirm(ctx context.Context, slot *tenure.Lease, epoch uint64) error {
	gate, err := l.l.look(context.WithoutCancel(ctx), slot)
	switch {
	case err != nil:
		return errors.Join(fmt.Errorf("%w: it is not known whether another writer has held the gate", tenure.ErrLost), err)
	case gate.Token != epoch:
		return fmt.Errorf("%w: %q has held the gate since, with epoch %d", tenure.ErrLost, gate.Owner, gate.Token)
	}
	return slot.Check()
}

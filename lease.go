// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Lease is what a holder has in hand: the time-bounded right to a lock.
//
// All methods may be called concurrently. Only Renew, SetData, Release and
// ReleaseWith wait for a heartbeat that is under way.
type Lease struct {
	keeping
	id     string
	token  uint64
	former *Previous
	past   []driver.Tenure // what the history may lack yet; read before the work begins
	under  *parent         // keeps the lock alive; nil if the lock is its own lease

	progress atomic.Int64 // on the holder's clock: when Progress was called last
	hint     engine.Timer // that the record has changed
	report   engine.Timer // of how busy the holder is, on the contender's clock
	meter    *engine.BusyMeter

	unwatch func()        // ends the watch for requests; guarded by mu
	left    chan struct{} // made by Release under a session: closed when the session's closing is to free the lock
}

type leaseKey struct{}

// FromContext returns the lease that ctx lives under: one that [Lease.Bind],
// [Client.Run] or [Election.Run] made, or one derived from it.
func FromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.key }

// Token returns the fencing token: one higher with every change of holder, and
// never lower again. Hand it to the resource, and have the resource refuse a token
// lower than one that it has seen.
func (l *Lease) Token() uint64 { return l.token }

// ID returns what tells this lease from all others: a string of letters and digits that
// its acquire has made, and that no other acquire makes, whatever the names of its owner
// and the token are. It stays the same while the lease is renewed. A process that watches
// over the holder's, and sees it end, names the lease by it: [Client.ReleaseCrashed].
func (l *Lease) ID() string { return l.id }

// Owner returns the name under which the lock is held.
func (l *Lease) Owner() string { return l.c.options.Owner }

// Timing returns the durations that the lease has: those of its options, of its session,
// or of the client.
func (l *Lease) Timing() Timing {
	t := l.t
	return Timing{
		LeaseDuration: t.Lease, HeartbeatPeriod: t.Heartbeat, RefreshPeriod: t.Refresh, Grace: t.Grace,
		RequestTimeout: t.RequestTimeout, StopTimeout: t.StopTimeout, ProgressTimeout: t.Progress,
	}
}

// Context returns a context that lives as long as the right to act: it is
// cancelled at the deadline, on a loss, and when the lease is told to stop.
// context.Cause says why: an error that matches [ErrLost], or [ErrReleased],
// or [ErrClosed], a [*StepDownError], or the cause of the context that was given to [Client.Run].
func (l *Lease) Context() context.Context { return l.ctx }

// Bind returns a context with the values and the cancellation of ctx that also
// ends with the lease, as [Lease.Context] does. stop frees what it holds.
func (l *Lease) Bind(ctx context.Context) (bound context.Context, stop context.CancelFunc) {
	bound, cancel := context.WithCancelCause(context.WithValue(ctx, leaseKey{}, l))
	unhook := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	if l.ctx.Err() != nil {
		cancel(context.Cause(l.ctx)) // not a moment later
	}
	return bound, func() {
		unhook()
		cancel(context.Canceled)
	}
}

// Check returns nil while the holder may act. After that it returns why the holder
// may not act any more: an error that matches [ErrLost], or [ErrReleased], or
// [ErrStopTimeout]. It reads a clock and nothing else: it is exact where timers are
// late, it never blocks, and once it has failed it fails for ever.
//
// Call it before every side effect. The process can still be paused between the
// check and the effect: a resource that must never be overwritten has to check the
// token as well.
//
// While work drains after it was told to stop, Check stays nil, so that a last
// checkpoint can be written.
func (l *Lease) Check() error {
	if why := l.deadline.Check(); why != engine.NotEnded {
		return wrap("check", l.key, l.endedError(why))
	}
	return nil
}

// Remaining returns the time until the deadline, 0 when the right to act has
// ended.
func (l *Lease) Remaining() time.Duration { return l.deadline.Remaining() }

// Progress says that the work moves. It matters only with
// [Options.ProgressTimeout].
func (l *Lease) Progress() { l.progress.Store(int64(l.c.clock.Holder())) }

// Renew sends a heartbeat now, and waits until one that was sent after the call is
// confirmed. It tries again until ctx or the lease ends. The heartbeat of a lock
// under a session is the session's.
func (l *Lease) Renew(ctx context.Context) error {
	if l.under != nil && l.deadline.Own() == engine.NotEnded {
		return l.under.wrapped("renew", l.under.renew(ctx))
	}
	return l.wrapped("renew", l.renew(ctx))
}

// SetData writes data into the record, where others see it and the next holder
// finds it, and waits until that is confirmed. It renews the lease as well. Of
// several calls at once the last one wins.
//
// After an error that matches [ErrUncertain], the data may be in the record, or may
// still get there. One that matches [errors.ErrUnsupported] says that the store never
// writes such data: the lease goes on with those that it had.
func (l *Lease) SetData(ctx context.Context, data []byte) error {
	err := checkData(data)
	if err == nil {
		err = l.setData(ctx, data)
	}
	return l.wrapped("set data", err)
}

// wrapped returns err as that of an operation on the lock, nil for nil.
func (l *Lease) wrapped(op string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(op, l.key, err)
}

// HandOver ends the lease in favour of another owner, as if that owner had asked
// for it: see [Client.Transfer]. It cancels the context with a [*StepDownError] and
// returns. Heartbeats go on while the work drains, for [Options.StopTimeout] at
// most. Release then leaves the lock reserved for the new owner, for as long as
// after a transfer. What ends a lease first counts: a lease that was told to stop
// already, or has ended, is not handed over.
//
// It costs no request of its own. The new owner is not told: it takes the lock if
// it waits for it. If it does not come, the others wait until the reservation has
// run out.
func (l *Lease) HandOver(to, reason string) error {
	err := checkHeir(to)
	if err == nil {
		err = checkReason(reason)
	}
	if err == nil && to == l.Owner() {
		err = refused("%q holds it already, under token %d", to, l.token)
	}
	if err == nil {
		err = l.makeWay(to, reason)
	}
	return l.wrapped("hand over", err)
}

// StepDown ends the lease as if somebody had asked its holder to step down: see
// [Client.StepDown]. It is like HandOver, but Release leaves the lock free for the
// first contender that takes it. This holds even if the holder was asked before to
// hand over, or is asked to after its right to act has ended: StepDown is for a
// holder that knows that the other one has gone. The reason is written into the
// record, unless something else has ended the right to act before; it must not be
// empty.
func (l *Lease) StepDown(reason string) error {
	err := checkReason(reason)
	if err == nil {
		err = l.makeWay("", reason)
	}
	return l.wrapped("step down", err)
}

func (l *Lease) makeWay(to, reason string) error {
	if why := l.deadline.Ended(); why != engine.NotEnded {
		return l.endedError(why)
	}
	q := driver.Request{By: l.Owner(), To: to, Reason: reason, At: time.Now()}
	l.do(func(now time.Duration) protocol.Action { return l.h.HandOver(now, q) })
	return nil
}

// Previous returns how the tenure before this one ended, and the data that it left,
// so that unfinished work can be repeated. It returns false if there was none.
func (l *Lease) Previous() (Previous, bool) {
	if l.former == nil {
		return Previous{}, false
	}
	return *l.former, true
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Lease is what a holder has in hand: the time-bounded right to a lock.
//
// All methods may be called concurrently, and none of them waits for a
// heartbeat that is under way, but Renew, SetData and Release, which say so.
type Lease struct {
	c      *Client
	key    string
	token  uint64
	former *Previous
	past   []driver.Tenure // what the history may lack yet; read before the work begins
	since  time.Duration   // on the holder's clock: when it was acquired
	ctx    context.Context
	cancel context.CancelCauseFunc
	under  *Session // keeps the lock alive; nil if the lock is its own lease
	heads  *Session // whose own record this is; nil in the lease of a lock

	// limit is the deadline on the holder's clock, or one of the ended codes. For
	// a lock under a session it is no instant but unlimited: the session's counts.
	// Whoever finds the clock past it makes it endedExpired, for good: a
	// heartbeat that is confirmed at the same moment cannot move it any more.
	limit    atomic.Int64
	progress atomic.Int64 // on the holder's clock: when Progress was called last

	deadline entry // on the agenda of deadlines, which takes no lock of ours
	beat     entry
	hint     entry // that the record has changed
	report   entry // of how busy the holder is, on the agenda of looks
	meter    *meter

	mu       *sync.Mutex // guards the fields below; one for a session and all under it; never held across I/O
	h        *protocol.Holder
	cause    error // why the context was cancelled
	waits    []leaseWait
	over     chan struct{} // closed when nothing is sent any more
	unwatch  func()        // ends the watch for requests
	finished bool          // over, or quiet: the client need not wait
	returned bool          // under a session: the work has returned
	left     chan struct{} // made by Release under a session: closed when the session's closing is to free the lock
}

// unlimited is the limit of a lock under a session that is open.
const unlimited = math.MaxInt64

type leaseKey struct{}

// FromContext returns the lease that ctx lives under: one that [Lease.Bind],
// [Client.Run] or [Election.Run] made, or one derived from it.
func FromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.key }

// Token returns the fencing token: one higher with every change of holder,
// never lower again. Hand it to the resource, and have the resource refuse a
// token lower than one that it has seen.
func (l *Lease) Token() uint64 { return l.token }

// Owner returns the name under which the lock is held.
func (l *Lease) Owner() string { return l.c.options.Owner }

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

// Check returns nil while the holder may act, and else why it may not any
// more: an error that matches [ErrLost], or [ErrReleased], or
// [ErrStopTimeout]. It reads a clock and nothing else: it is exact where
// timers are late, it never blocks, and once it has failed it fails for ever.
//
// Call it before every side effect. The process can still be paused between
// the check and the effect: who must never be overwritten fences at the
// resource, with the token.
//
// While work drains after it was told to stop, Check stays nil, so that a last
// checkpoint can be written.
func (l *Lease) Check() error {
	limit := l.limit.Load()
	if limit == unlimited {
		limit = l.under.l.limit.Load()
	}
	if limit > 0 && int64(l.c.clock.Holder()) < limit {
		return nil
	}
	return l.checkEnded(limit)
}

func (l *Lease) checkEnded(limit int64) error {
	if l.under != nil {
		return l.checkUnder()
	}
	for limit > 0 {
		// The clock was past this limit. If it has moved meanwhile, look again.
		if l.limit.CompareAndSwap(limit, endedExpired) {
			l.c.deadlines.poke() // the context is late
			limit = endedExpired
			break
		}
		if limit = l.limit.Load(); limit > 0 && int64(l.c.clock.Holder()) < limit {
			return nil
		}
	}
	return wrap("check", l.key, l.endedError(limit))
}

// Remaining returns the time until the deadline, 0 when the right to act has
// ended.
func (l *Lease) Remaining() time.Duration {
	limit := l.bound()
	if limit <= 0 {
		return 0
	}
	return max(0, time.Duration(limit)-l.c.clock.Holder())
}

// Progress says that the work moves. It matters with
// [Options.ProgressTimeout] alone.
func (l *Lease) Progress() { l.progress.Store(int64(l.c.clock.Holder())) }

// checkEnd returns why the right to act has ended, as far as somebody has found
// out.
func (l *Lease) checkEnd() error {
	if limit := l.bound(); limit < 0 {
		return l.endedError(limit)
	}
	return nil
}

// Renew sends a heartbeat now, and waits until one that was sent after the
// call is confirmed. Until ctx ends, or the lease, it is tried again. The
// heartbeat of a lock under a session is the session's.
func (l *Lease) Renew(ctx context.Context) error {
	if l.under != nil {
		if limit := l.limit.Load(); limit < 0 {
			return wrap("renew", l.key, l.endedError(limit))
		}
		return l.under.Renew(ctx)
	}
	return l.await(ctx, "renew", func(now time.Duration) (leaseWait, protocol.Action) {
		return leaseWait{sent: now}, l.h.Renew(now)
	})
}

// SetData lays data down in the record, where others see it and the next
// holder finds it, and waits until that is confirmed. It renews the lease as
// well. Of several calls at once the last one wins.
//
// An error that matches [ErrUncertain] says that the data may be there, or
// come to be there yet.
func (l *Lease) SetData(ctx context.Context, data []byte) error {
	if err := checkData(data); err != nil {
		return wrap("set data", l.key, err)
	}
	data = append([]byte{}, data...)
	return l.await(ctx, "set data", func(now time.Duration) (leaseWait, protocol.Action) {
		serial, a := l.h.SetData(now, data)
		return leaseWait{data: serial}, a
	})
}

func (l *Lease) await(ctx context.Context, op string, ask func(time.Duration) (leaseWait, protocol.Action)) error {
	if err := ctx.Err(); err != nil {
		return wrap(op, l.key, err)
	}
	if err := l.checkEnd(); err != nil {
		return wrap(op, l.key, err)
	}
	w := leaseWait{done: make(chan error, 1)}
	l.do(func(now time.Duration) protocol.Action {
		asked, a := ask(now)
		w.data, w.sent = asked.data, asked.sent
		l.waits = append(l.waits, w)
		return a
	})
	select {
	case err := <-w.done:
		if err != nil {
			return wrap(op, l.key, err)
		}
		return nil
	case <-ctx.Done():
		return wrap(op, l.key, uncertain(done(ctx)))
	case <-l.c.gone:
		return wrap(op, l.key, uncertain(ErrClosed))
	}
}

// HandOver ends the lease in favour of another owner, as if that one had asked for
// it: see [Client.Transfer]. It cancels the context with a [*StepDownError] and
// returns; heartbeats go on while the work drains, for [Options.StopTimeout] at
// most, and Release leaves the lock reserved for the new owner, for as long as
// after a transfer. What ends a lease first counts: one that was told to stop
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
	if err != nil {
		return wrap("hand over", l.key, err)
	}
	return nil
}

// StepDown ends the lease as if somebody had asked its holder to step down: see
// [Client.StepDown]. It is as HandOver, but Release leaves the lock free for
// whoever takes it first: also one that its holder was asked before to hand over, or
// is asked to after its right to act has ended, for a holder that knows that the
// other one has gone. The reason lands in the record, unless something else has ended
// the right to act before; it must not be empty.
func (l *Lease) StepDown(reason string) error {
	err := checkReason(reason)
	if err == nil {
		err = l.makeWay("", reason)
	}
	if err != nil {
		return wrap("step down", l.key, err)
	}
	return nil
}

func (l *Lease) makeWay(to, reason string) error {
	if err := l.checkEnd(); err != nil {
		return err
	}
	q := driver.Request{By: l.Owner(), To: to, Reason: reason, At: time.Now()}
	l.do(func(now time.Duration) protocol.Action { return l.h.HandOver(now, q) })
	return nil
}

// Release ends the lease: it cancels the context with [ErrReleased], lets
// Check fail, and releases the record, so that others need not wait. Call it
// when the work has returned, and not before. It waits for the store's answer:
// for one lease duration, and for the request that is under way then. A context
// that is done already before the call is ignored, so that a deferred Release
// works; one that ends meanwhile ends the waiting, and the release goes on in the
// background.
//
// The result is nil if the lease was good until now. It matches [ErrLost] if
// the lease had been lost before the work was done, and [ErrStopTimeout] if
// the work outlasted its heartbeats; whatever could be released is released
// nevertheless. It matches [ErrUncertain] if no answer came: the record is
// released, or runs out by itself; and [ErrNotReleased] if the store has refused
// it all the time. Releasing again returns the same.
//
// When the session of the lock is closing, Release does not wait: the lock is free
// when the session is closed.
func (l *Lease) Release(ctx context.Context) error { return l.ReleaseWith(ctx, nil) }

// ReleaseOptions are what a release tells besides. Nil means nothing.
type ReleaseOptions struct {
	// Data is laid down in the record by the release, in the same write, where the
	// next holder finds it. If nil, the data stay as they are; to empty them, use
	// one that is empty but not nil.
	Data []byte

	// Failed says that the work has failed. If not nil, the tenure ends as
	// [EndFailed] instead of EndReleased, with the error's text as the reason:
	// [Lease.Previous] of the next holder and the history show it. What cannot be
	// printed is left out of the text, and it is cut to 1,024 bytes.
	//
	// What has ended the tenure otherwise goes before: a lease that was lost, work
	// that did not stop in time. So does a request to step down or to hand over that
	// the holder knows of: its end is that, the lock is kept for the heir, and who
	// has asked is answered. Failed is not kept then.
	Failed error
}

// ReleaseWith is as [Lease.Release], and lays down data and whether the work has
// failed by the same write.
//
// Of several releases of one lease the first counts; the data of another one are
// not laid down, and it returns an error that matches [ErrReleased]. Data that are
// too large are an error, and nothing is released. If the result is nil the data
// are in the record. If it matches [ErrUncertain] or ErrLost they may be.
//
// A lock under a session is written for it by itself, where a plain release of a
// session that is closing costs nothing.
func (l *Lease) ReleaseWith(ctx context.Context, options *ReleaseOptions) error {
	const op = "release"
	var data []byte
	var failed *driver.Request
	if options != nil {
		if err := checkData(options.Data); err != nil {
			return wrap(op, l.key, err)
		}
		if options.Data != nil {
			data = append([]byte{}, options.Data...)
		}
		if options.Failed != nil {
			failed = &driver.Request{By: l.Owner(), Reason: reasonOf(options.Failed), At: time.Now()}
		}
	}
	first := l.leave(data, failed)
	err := l.awaitEnd(ctx)
	switch {
	case err != nil || data == nil:
	case !first:
		err = refused("%w before, without these data", ErrReleased)
	default:
		err = l.lacksData()
	}
	if err != nil {
		return wrap(op, l.key, err)
	}
	return nil
}

// awaitEnd waits until the release has ended, and returns how.
func (l *Lease) awaitEnd(ctx context.Context) error {
	ended := ctx.Done()
	if ctx.Err() != nil {
		ended = nil
	}
	select {
	case <-l.over:
	case <-l.left: // what is left to do is the session's
	case <-ended:
		if errors.Is(context.Cause(ctx), ErrReleased) {
			// A context of the lease's own, which this release has ended.
			return l.awaitEnd(context.WithoutCancel(ctx))
		}
		return uncertain(done(ctx))
	case <-l.c.gone:
		select {
		case <-l.over:
		default:
			if err := l.result(); err != nil {
				return err
			}
			return uncertain(ErrClosed)
		}
	}
	return l.result()
}

// lacksData returns an error if the data of a release are not known to be kept.
func (l *Lease) lacksData() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch serial, missing := l.h.DataMissing(); {
	case !missing:
		return nil
	case l.h.DataRisked(serial):
		return uncertain(errDataUnknown) // a write of them stayed without an answer
	}
	return refused("the lock is free by the end of its session, without these data")
}

var errDataUnknown = errors.New("the lock is free; whether the data were laid down is not known")

// reasonOf returns the text of an error as the reason of a request.
func reasonOf(err error) string {
	text := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(err.Error(), ""))
	if text = strings.TrimSpace(text); text == "" {
		return "the work has failed"
	}
	if len(text) > driver.MaxReasonLen {
		text = strings.ToValidUTF8(text[:driver.MaxReasonLen], "") // not a part of a character
	}
	return text
}

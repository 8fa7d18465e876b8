// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

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
	since  time.Duration // on the holder's clock: when it was acquired
	ctx    context.Context
	cancel context.CancelCauseFunc

	// limit is the deadline on the holder's clock, or one of the ended codes.
	// Whoever finds the clock past it makes it endedExpired, for good: a
	// heartbeat that is confirmed at the same moment cannot move it any more.
	limit    atomic.Int64
	busy     atomic.Int64 // nanoseconds that Do was at work
	progress atomic.Int64 // on the holder's clock: when Progress was called last

	deadline entry // on the agenda of deadlines, which takes no lock of ours
	beat     entry

	mu       sync.Mutex // guards the fields below; never held across I/O
	h        *protocol.Holder
	cause    error // why the context was cancelled
	waits    []leaseWait
	over     chan struct{} // closed when nothing is sent any more
	finished bool          // over, or quiet: the client need not wait
}

// Codes of Lease.limit after the right to act has ended.
const (
	endedExpired = -1 - iota
	endedReleased
	endedSuperseded
	endedStalled
	endedStopTimeout
)

// leaseWait is a caller who waits for a write of the holder.
type leaseWait struct {
	data uint64        // serial number of the data that must be confirmed
	sent time.Duration // the confirmed write must not be older
	done chan error
}

type leaseKey struct{}

// FromContext returns the lease that ctx lives under: one that [Lease.Bind],
// [Client.Run] or [Election.Run] made, or one derived from it.
func FromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// newLease returns the lease that was granted, and false if the client is
// closed, so that it must be released again.
func (c *Client) newLease(g protocol.Grant, data []byte) (_ *Lease, open bool) {
	l := &Lease{
		c: c, key: g.Record.Key, token: g.Record.Token, since: c.clock.Holder(),
		former: previous(g, data != nil), h: protocol.NewHolder(c.timing, c.env, g), over: make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(context.Background(), leaseKey{}, l))
	l.deadline.run = l.reachDeadline
	l.beat.run = func(time.Duration) { l.do(l.h.Step) }
	l.limit.Store(int64(l.h.Deadline()))
	open = c.began(l)
	c.deadlines.set(&l.deadline, l.h.Deadline())
	l.do(l.h.Step)
	return l, open
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
// or [ErrClosed], or the cause of the context that was given to [Client.Run].
func (l *Lease) Context() context.Context { return l.ctx }

// Bind returns a context with the values and the cancellation of ctx that also
// ends with the lease, as [Lease.Context] does. stop frees what it holds.
func (l *Lease) Bind(ctx context.Context) (bound context.Context, stop context.CancelFunc) {
	bound, cancel := context.WithCancelCause(context.WithValue(ctx, leaseKey{}, l))
	unhook := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
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
	if limit > 0 && int64(l.c.clock.Holder()) < limit {
		return nil
	}
	return l.checkEnded(limit)
}

func (l *Lease) checkEnded(limit int64) error {
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
	return wrap("check", l.key, endedError(limit))
}

func endedError(code int64) error {
	switch code {
	case endedReleased:
		return ErrReleased
	case endedSuperseded:
		return ErrSuperseded
	case endedStalled:
		return ErrStalled
	case endedStopTimeout:
		return ErrStopTimeout
	default:
		return ErrExpired
	}
}

// Remaining returns the time until the deadline, 0 when the right to act has
// ended.
func (l *Lease) Remaining() time.Duration {
	limit := l.limit.Load()
	if limit <= 0 {
		return 0
	}
	return max(0, time.Duration(limit)-l.c.clock.Holder())
}

// Do runs work if at least need of the lease remains, and returns its error.
// Otherwise it returns an error that matches [ErrTooLate], or what Check says,
// and does nothing. The context of the work is that of Bind.
//
// The time that work takes counts as busy: see [Lease.Busy].
func (l *Lease) Do(ctx context.Context, need time.Duration, work func(context.Context) error) error {
	if err := l.Check(); err != nil {
		return err
	}
	if left := l.Remaining(); left < need {
		return wrap("do", l.key, refused("%w: %v is left, %v is needed", ErrTooLate, left.Round(time.Millisecond), need))
	}
	bound, stop := l.Bind(ctx)
	defer stop()
	start := l.c.clock.Contender()
	defer func() { l.busy.Add(int64(l.c.clock.Contender() - start)) }()
	return work(bound)
}

// Busy returns for how long the holder was at work in Do, of how long it has
// held the lease. Work that ran in parallel counts for each.
func (l *Lease) Busy() (busy, held time.Duration) {
	return time.Duration(l.busy.Load()), l.c.clock.Holder() - l.since
}

// Progress says that the work moves. It matters with
// [Options.ProgressTimeout] alone.
func (l *Lease) Progress() { l.progress.Store(int64(l.c.clock.Holder())) }

// Renew sends a heartbeat now, and waits until one that was sent after the
// call is confirmed. Until ctx ends, or the lease, it is tried again.
func (l *Lease) Renew(ctx context.Context) error {
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
	if limit := l.limit.Load(); limit < 0 {
		return wrap(op, l.key, endedError(limit))
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
		return wrap(op, l.key, uncertain(context.Cause(ctx)))
	case <-l.c.gone:
		return wrap(op, l.key, uncertain(ErrClosed))
	}
}

// Release ends the lease: it cancels the context with [ErrReleased], lets
// Check fail, and releases the record, so that others need not wait. Call it
// when the work has returned, and not before. It waits for the store's answer,
// for one lease duration at most. A context that is done already before the
// call is taken no notice of, so that a deferred Release works; one that ends
// meanwhile ends the waiting, and the release goes on in the background.
//
// The result is nil if the lease was good until now. It matches [ErrLost] if
// the lease had been lost before the work was done, and [ErrStopTimeout] if
// the work outlasted its heartbeats; whatever could be released is released
// nevertheless. It matches [ErrUncertain] if no answer came: the record is
// released, or runs out by itself. Releasing again returns the same.
func (l *Lease) Release(ctx context.Context) error {
	l.free()
	done := ctx.Done()
	if ctx.Err() != nil {
		done = nil
	}
	select {
	case <-l.over:
	case <-done:
		if errors.Is(context.Cause(ctx), ErrReleased) {
			// A context of the lease's own, which this release has ended.
			return l.Release(context.WithoutCancel(ctx))
		}
		return wrap("release", l.key, uncertain(context.Cause(ctx)))
	case <-l.c.gone:
		select {
		case <-l.over:
		default:
			err := l.result()
			if err == nil {
				err = uncertain(ErrClosed)
			}
			return wrap("release", l.key, err)
		}
	}
	if err := l.result(); err != nil {
		return wrap("release", l.key, err)
	}
	return nil
}

// free begins the release.
func (l *Lease) free() {
	l.end(endedReleased)
	l.do(func(now time.Duration) protocol.Action {
		l.stopFor(ErrReleased)
		return l.h.Done(now)
	})
}

// stop tells the holder to stop, and has the heartbeats go on meanwhile.
func (l *Lease) stop(cause error) {
	l.do(func(now time.Duration) protocol.Action {
		l.stopFor(cause)
		return l.h.Stop(now)
	})
}

// stopFor notes the cause of a stop, if nothing else has ended the lease.
func (l *Lease) stopFor(cause error) {
	if l.h.Cause() == protocol.None {
		l.cause = cause
	}
}

// result says how the lease ended, once it is over.
func (l *Lease) result() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	freed, _ := l.h.Over()
	switch {
	case l.h.Cause() == protocol.Stalled:
		return ErrStalled
	case l.h.Quiet() && l.h.Cause() == protocol.Stopped && l.h.Expired():
		return refused("%w: %w", ErrStopTimeout, ErrExpired)
	case l.h.Expired():
		return ErrExpired
	case freed == protocol.Gone:
		return l.superseded()
	case l.h.Quiet():
		return ErrStopTimeout
	case freed == protocol.Uncertain:
		return uncertain(l.h.Err())
	}
	return nil
}

func (l *Lease) superseded() error {
	by, _ := l.h.By()
	return &SupersededError{Owner: by.Owner, Token: by.Token, Released: by.State == driver.Released}
}

// reachDeadline is run when the deadline, as it was when it was last looked
// at, has come. It takes no lock of the lease.
func (l *Lease) reachDeadline(now time.Duration) {
	for {
		limit := l.limit.Load()
		if limit > int64(now) {
			l.c.deadlines.set(&l.deadline, time.Duration(limit))
			return
		}
		if limit < 0 && limit != endedExpired {
			return
		}
		if limit == endedExpired || l.limit.CompareAndSwap(limit, endedExpired) {
			break
		}
	}
	l.cancel(ErrExpired)
	l.c.beats.set(&l.beat, 0) // the machine learns it there
}

// end makes Check fail with the given code, unless it fails already.
func (l *Lease) end(code int64) {
	for {
		limit := l.limit.Load()
		if limit < 0 {
			return
		}
		if now := int64(l.c.clock.Holder()); now >= limit {
			code = endedExpired
		}
		if l.limit.CompareAndSwap(limit, code) {
			return
		}
	}
}

// do makes one step of the machine and carries out what it wants.
func (l *Lease) do(step func(now time.Duration) protocol.Action) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.c.clock.Holder()
	if p := l.progress.Load(); p > 0 {
		l.h.Progress(time.Duration(p))
	}
	if l.limit.Load() == endedExpired && !l.h.Expired() {
		l.apply(now, l.h.Expire(now)) // Check, or a timer, was quicker
	}
	l.apply(now, step(now))
}

func (l *Lease) apply(now time.Duration, a protocol.Action) {
	l.extend()
	for _, n := range a.Notes {
		l.note(n, now)
	}
	if a.Request != nil {
		l.send(a.Request)
	}
	l.settle()
	if at, ok := l.h.Next(); ok {
		l.c.beats.set(&l.beat, at)
	} else {
		l.c.beats.drop(&l.beat)
	}
}

// extend moves the limit to the deadline of the machine, unless the limit has
// ended.
func (l *Lease) extend() {
	if l.h.Expired() {
		l.end(endedExpired)
		return
	}
	deadline := int64(l.h.Deadline())
	for {
		limit := l.limit.Load()
		if limit < 0 || limit >= deadline || l.limit.CompareAndSwap(limit, deadline) {
			return
		}
	}
}

func (l *Lease) note(n protocol.Note, now time.Duration) {
	e := Event{Lock: l.key, Owner: l.Owner(), Token: l.token}
	switch n {
	case protocol.NoteRenewed:
		e.Kind, e.Took, e.Remaining = EventRenewed, now-l.h.Sent(), l.h.Deadline()-now
	case protocol.NoteJeopardy:
		e.Kind, e.Err, e.Remaining = EventJeopardy, l.h.Err(), max(0, l.h.Deadline()-now)
	case protocol.NoteSafe:
		e.Kind, e.Remaining = EventSafe, l.h.Deadline()-now
	case protocol.NoteEnded:
		e.Kind, e.Err = l.noteEnded()
	case protocol.NoteQuiet:
		if l.h.Cause() != protocol.Stalled {
			l.end(endedStopTimeout)
			e.Kind, e.Err = EventStopTimeout, ErrStopTimeout
		}
		l.finish()
	case protocol.NoteOver:
		freed, _ := l.h.Over()
		e.Kind, e.Held, e.Busy = EventReleased, now-l.since, time.Duration(l.busy.Load())
		if freed != protocol.Released {
			e.Kind, e.Err = EventEnded, l.h.Err()
			if freed == protocol.Gone {
				l.end(endedSuperseded) // while the work drained
				e.Err = l.superseded()
			}
		}
		l.c.deadlines.drop(&l.deadline)
		close(l.over)
		l.finish()
		l.c.released(l.key)
	}
	if e.Kind != "" {
		l.c.events.emit(e)
	}
}

// noteEnded cancels the context, for the first cause that the machine knows.
func (l *Lease) noteEnded() (EventKind, error) {
	kind := EventLost
	switch l.h.Cause() {
	case protocol.Expired:
		l.end(endedExpired)
		l.cause = ErrExpired
	case protocol.Superseded:
		l.end(endedSuperseded)
		l.cause = l.superseded()
	case protocol.Stalled:
		l.end(endedStalled)
		l.cause = ErrStalled
	default:
		kind = EventStopping
	}
	l.cancel(l.cause)
	return kind, l.cause
}

// finish tells the client that it need not wait for this lease any longer.
func (l *Lease) finish() {
	if !l.finished {
		l.finished = true
		l.c.finished(l)
	}
}

func (l *Lease) send(r *protocol.Request) {
	if r.Kind == protocol.Release {
		r.Next.Until = time.Now()
	}
	l.c.requests.send(l.h.Deadline(), request{
		kind: r.Kind,
		ask: func(ctx context.Context) (rec, former driver.Record, err error) {
			rec, err = l.c.store.Swap(ctx, r.Prev, r.Next)
			return rec, former, err
		},
		answer: func(res protocol.Result) {
			l.do(func(now time.Duration) protocol.Action { return l.h.Reply(now, res) })
		},
	})
}

// settle answers the callers whose write is confirmed, or never will be.
func (l *Lease) settle() {
	if len(l.waits) == 0 {
		return
	}
	_, over := l.h.Over()
	ended := over || l.h.Quiet() || l.h.Expired()
	kept := l.waits[:0]
	for _, w := range l.waits {
		switch {
		case l.h.DataKept() >= w.data && l.h.Sent() >= w.sent:
			w.done <- nil
		case ended:
			err := endedError(l.limit.Load())
			if w.data > 0 {
				err = uncertain(err) // an attempt may have been applied
			}
			w.done <- err
		default:
			kept = append(kept, w)
		}
	}
	clear(l.waits[len(kept):])
	l.waits = kept
}

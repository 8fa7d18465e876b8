// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Codes of Lease.limit after the right to act has ended.
const (
	endedExpired = -1 - iota
	endedReleased
	endedSuperseded
	endedStalled
	endedStopTimeout
	endedReplaced
)

// leaseWait is a caller who waits for a write of the holder.
type leaseWait struct {
	data uint64        // serial number of the data that must be confirmed
	sent time.Duration // the confirmed write must not be older
	done chan error
}

// newLease returns the lease that was granted, and false if the client is
// closed, so that it must be released again.
func (c *Client) newLease(g protocol.Grant, o AcquireOptions) (_ *Lease, open bool) {
	l := c.leaseOf(g, o)
	l.mu = new(sync.Mutex)
	l.h = protocol.NewHolder(c.timing, c.env, g)
	return l, l.begin(context.Background(), o.Attentive && !c.timing.Manual)
}

func (c *Client) leaseOf(g protocol.Grant, o AcquireOptions) *Lease {
	return &Lease{
		c: c, key: g.Record.Key, token: g.Record.Token, since: c.clock.Holder(), meter: newMeter(c.clock.Contender(), o.Capacity),
		former: previous(g, o.Data != nil), past: g.Past(), over: make(chan struct{}),
	}
}

// begin begins a lease that lives no longer than ctx. It returns false if the
// client is closed.
func (l *Lease) begin(ctx context.Context, attentive bool) (open bool) {
	open = l.prepare(ctx)
	if l.under == nil {
		l.limit.Store(int64(l.h.Deadline()))
		l.c.deadlines.set(&l.deadline, l.h.Deadline())
	}
	l.do(l.h.Step)
	if attentive {
		l.attend()
	}
	return l.standing() && open
}

// standing ends a lease that has begun when the store was replaced, and returns
// false then.
func (l *Lease) standing() bool {
	if err := l.c.store.gone(); err != nil {
		l.replaced(err)
		return false
	}
	return true
}

// prepare makes all that a lease needs before its machine is stepped.
func (l *Lease) prepare(ctx context.Context) (open bool) {
	c := l.c
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(ctx, leaseKey{}, l))
	l.report.run = l.reportBusy
	l.hint.run = l.hinted
	l.deadline.run = l.reachDeadline
	l.beat.run = func(time.Duration) { l.do(l.h.Step) }
	l.limit.Store(unlimited)
	return c.began(l) == nil
}

func (l *Lease) endedError(code int64) error {
	switch code {
	case endedReplaced:
		return &SupersededError{Replaced: l.c.store.gone()}
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

// free begins the release.
func (l *Lease) free() { l.leave(nil, nil) }

// leave begins the release, with data and what has failed. It returns false if it
// had begun before.
func (l *Lease) leave(data []byte, failed *driver.Request) (first bool) {
	if s := l.under; s != nil {
		s.turn.Lock()
		defer s.turn.Unlock()
	}
	l.end(endedReleased)
	l.do(func(now time.Duration) protocol.Action {
		l.stopFor(ErrReleased)
		if l.heads != nil {
			return l.h.Stop(now) // closed when all work under it has returned
		}
		l.back()
		var a protocol.Action
		first, a = l.h.Leave(now, data, failed)
		if l.under != nil && l.left == nil {
			l.left = make(chan struct{})
		}
		return a
	})
	return first
}

// discard releases a lease that nobody waits for any more.
func (l *Lease) discard() {
	l.mu.Lock()
	l.h.Abandon()
	l.mu.Unlock()
	l.free()
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
	case l.h.Quiet() && l.stopped() && l.h.Expired():
		return refused("%w: %w", ErrStopTimeout, ErrExpired)
	case l.h.Expired():
		return ErrExpired
	case freed == protocol.Gone:
		return l.superseded()
	case l.h.Quiet():
		return ErrStopTimeout
	case freed == protocol.Uncertain:
		return uncertain(l.h.Err())
	case freed == protocol.Kept:
		return l.notReleased(l.h.Err())
	}
	return nil
}

// notReleased is the error of a release of which no attempt was applied.
func (l *Lease) notReleased(err error) error {
	if l.under != nil {
		return refused("%w; it is free when its session has ended, or soon after somebody waits for it: %w", ErrNotReleased, err)
	}
	return refused("%w; it runs out by itself within %v: %w", ErrNotReleased, l.c.options.LeaseDuration, err)
}

// freed says that the record is this holder's no more, for certain.
func (l *Lease) freed() bool {
	select {
	case <-l.over:
	default:
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	freed, _ := l.h.Over()
	return freed == protocol.Released || freed == protocol.Gone
}

// stopped says that the right to act was ended on purpose.
func (l *Lease) stopped() bool {
	return l.h.Cause() == protocol.Stopped || l.h.Cause() == protocol.Asked
}

func (l *Lease) superseded() error {
	if l.h.Replaced() {
		return l.endedError(endedReplaced)
	}
	by, _ := l.h.By()
	if by.State.OfSession() {
		return &SupersededError{Session: by.Key[len(driver.SessionPrefix):], Released: by.State == driver.Closed}
	}
	err := &SupersededError{Owner: by.Owner, Token: by.Token, Released: by.State == driver.Released}
	// How the record says that this tenure ended: itself, or what came after.
	ended := by.Prev
	if by.State == driver.Released && by.Token == l.token {
		ended = by.Tenure(by.End)
	}
	if ended != nil && ended.Token == l.token && ended.Asked != nil && (ended.End == driver.EndRevoked || ended.End == driver.EndFreed) {
		err.Request = requestOf(ended.Asked)
	}
	return err
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
	l.cancelFor(ErrExpired)
	l.c.beats.set(&l.beat, 0) // the machine learns it there
}

// end makes Check fail with the given code, unless it fails already.
func (l *Lease) end(code int64) {
	for {
		limit := l.limit.Load()
		if limit < 0 {
			return
		}
		if due := l.bound(); due == endedExpired || due >= 0 && int64(l.c.clock.Holder()) >= due {
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
	if l.under != nil {
		l.under.closeIdle(now)
	}
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
	if l.left != nil && l.h.Left() {
		select {
		case <-l.left:
		default:
			close(l.left)
		}
	}
	if at, ok := l.h.Next(); ok {
		l.c.beats.set(&l.beat, at)
	} else {
		l.c.beats.drop(&l.beat)
	}
	if l.heads != nil {
		l.heads.lead(now, a.Notes)
	}
}

// extend moves the limit to the deadline of the machine, unless the limit has
// ended.
func (l *Lease) extend() {
	if l.h.Expired() {
		l.end(endedExpired)
		return
	}
	if l.under != nil {
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
	switch {
	case l.heads != nil:
		e.Lock, e.Token, e.Session = "", 0, l.heads.id
	case l.under != nil:
		e.Session = l.under.id
	}
	switch n {
	case protocol.NoteRenewed, protocol.NoteSafe:
		if l.h.Expired() {
			return // it only keeps others away while the work drains
		}
	}
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
		e.Kind, e.Held, e.Busy = EventReleased, now-l.since, l.meter.until(l.c.clock.Contender())
		if freed != protocol.Released {
			e.Kind, e.Err = EventEnded, l.h.Err()
			if freed == protocol.Gone {
				l.end(endedSuperseded) // while the work drained
				e.Err = l.superseded()
			}
		}
		l.c.deadlines.drop(&l.deadline)
		close(l.over)
		l.c.looks.drop(&l.report)
		l.finish()
		if l.under != nil {
			l.under.drop(l)
		}
		if l.heads != nil {
			l.end(endedReleased)
		}
		l.c.released(l.key)
	}
	if l.heads != nil && e.Kind == EventReleased {
		e.Kind = EventClosed
	}
	if l.under != nil && n == protocol.NoteRenewed {
		e.Took = 0 // a write of the lock alone: the session's heartbeats are its own
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
	case protocol.Asked:
		kind, l.cause = EventStopping, steppedDown(l.h.Asked())
	default:
		kind = EventStopping
	}
	if u := l.under; u != nil && u.l.h.Cause() != protocol.None {
		// It has ended with its session, whose context ends this one's. To end it
		// here is to wait for all the others, under the mutex.
		l.cause = u.l.cause
	} else {
		l.cancelFor(l.cause)
	}
	return kind, l.cause
}

// cancelFor cancels the context. That of a session ends those of all locks under
// it, one by one: not under the mutex of its heartbeats, and not while others wait
// for an agenda.
func (l *Lease) cancelFor(cause error) {
	if l.heads == nil {
		l.cancel(cause)
		return
	}
	l.c.requests.beside(func() { l.cancel(cause) })
}

// finish tells the client that it need not wait for this lease any longer.
func (l *Lease) finish() {
	if !l.finished {
		l.finished = true
		if l.heads != nil {
			close(l.heads.finished)
		}
		l.unattend()
		l.c.finished(l)
	}
}

func (l *Lease) send(r *protocol.Request) {
	l.c.send(l.h.Deadline(), r, func(res protocol.Result) {
		l.do(func(now time.Duration) protocol.Action { return l.h.Reply(now, res) })
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
		case l.h.DataKept() >= w.data && (w.sent == 0 || l.h.Sent() >= w.sent):
			w.done <- nil
		case ended:
			err := l.endedError(l.limit.Load())
			if w.data > 0 && !l.h.Withdraw(w.data) {
				err = uncertain(err) // an attempt may have been applied, or may be yet
			}
			w.done <- err
		default:
			kept = append(kept, w)
		}
	}
	clear(l.waits[len(kept):])
	l.waits = kept
}

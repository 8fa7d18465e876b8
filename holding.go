// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
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
	l := &Lease{
		c: c, key: g.Record.Key, token: g.Record.Token, since: c.clock.Holder(),
		former: previous(g, o.Data != nil), past: g.Past(), h: protocol.NewHolder(c.timing, c.env, g), over: make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(context.Background(), leaseKey{}, l))
	l.meter = newMeter(c.clock.Contender(), o.Capacity)
	l.report.run = l.reportBusy
	l.hint.run = l.hinted
	l.deadline.run = l.reachDeadline
	l.beat.run = func(time.Duration) { l.do(l.h.Step) }
	l.limit.Store(int64(l.h.Deadline()))
	open = c.began(l)
	c.deadlines.set(&l.deadline, l.h.Deadline())
	l.do(l.h.Step)
	if o.Attentive && !c.timing.Manual {
		l.attend()
	}
	return l, open
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

// free begins the release.
func (l *Lease) free() {
	l.end(endedReleased)
	l.do(func(now time.Duration) protocol.Action {
		l.stopFor(ErrReleased)
		return l.h.Done(now)
	})
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
	}
	return nil
}

// stopped says that the right to act was ended on purpose.
func (l *Lease) stopped() bool {
	return l.h.Cause() == protocol.Stopped || l.h.Cause() == protocol.Asked
}

func (l *Lease) superseded() error {
	by, _ := l.h.By()
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
	case protocol.Asked:
		kind, l.cause = EventStopping, steppedDown(l.h.Asked())
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

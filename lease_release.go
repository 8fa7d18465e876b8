// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
)

// Release ends the lease: it cancels the context with [ErrReleased], makes Check
// fail, and releases the record, so that others need not wait. Call it when the
// work has returned, and not before. It waits for the store's answer: for one lease
// duration, and for the request that is under way then. A context that is already
// done at the call is ignored, so that a deferred Release works. One that ends
// meanwhile ends the waiting, and the release goes on in the background.
//
// The result is nil if the lease was good until now. Otherwise it matches
//
//   - [ErrLost] if the lease had been lost before the work was done
//   - [ErrStopTimeout] if the work outlasted its heartbeats
//   - [ErrUncertain] if no answer came: the record is released, or runs out by
//     itself
//   - [ErrNotReleased] if the store has refused the release all the time
//
// With ErrLost and ErrStopTimeout, whatever could be released is released
// nevertheless. Releasing again returns the same.
//
// When the session of the lock is closing, Release does not wait: the lock is free
// when the session is closed.
func (l *Lease) Release(ctx context.Context) error { return l.ReleaseWith(ctx, nil) }

// ReleaseOptions are what a release records besides. Nil means nothing.
type ReleaseOptions struct {
	// Data is written into the record by the release, in the same write, where the
	// next holder finds it. If nil, the data stay as they are; to empty them, use a
	// slice that is empty but not nil.
	Data []byte

	// Failed says that the work has failed. If not nil, the tenure ends as
	// [EndFailed] instead of EndReleased, with the error's text as the reason:
	// [Lease.Previous] of the next holder and the history show it. What cannot be
	// printed is left out of the text, and the text is cut to 1,024 bytes.
	//
	// Any other end of the tenure goes before: a lease that was lost, work that did
	// not stop in time, or a request to step down or to hand over that the holder
	// knows of. After such a request the tenure ends as it asked, the lock is kept
	// for the heir, and the requester is answered. Failed is not kept then.
	Failed error
}

// ReleaseWith is like [Lease.Release], and records data and whether the work has
// failed in the same write.
//
// Of several releases of one lease the first counts. A later one writes no data,
// and returns an error that matches [ErrReleased]. Data that are too large are an
// error, and nothing is released. If the result is nil the data are in the record.
// If it matches [ErrUncertain] or ErrLost they may be.
//
// Under a session, ReleaseWith writes the record of the lock itself. A plain
// Release under a session that is closing costs no write.
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
	return l.wrapped(op, err)
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

// lacksData returns an error unless the data of a release are known to be kept.
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
func reasonOf(err error) string { return textOf(err.Error()) }

func textOf(reason string) string {
	line := strings.TrimSpace(text.Line(reason))
	if line == "" {
		return "the work has failed"
	}
	if len(line) > driver.MaxReasonLen {
		line = strings.ToValidUTF8(line[:driver.MaxReasonLen], "") // not a part of a character
	}
	return line
}

// free begins the release.
func (l *Lease) free() { l.leave(nil, nil) }

// leave begins the release, with data and the failure of the work. It returns false
// if the release had begun before.
func (l *Lease) leave(data []byte, failed *driver.Request) (first bool) {
	l.back(func(now time.Duration) (a protocol.Action) {
		first, a = l.h.Leave(now, data, failed)
		return a
	})
	return first
}

// discard releases a lease that nobody waits for any more.
func (l *Lease) discard() { l.back(func(now time.Duration) protocol.Action { return l.h.GiveUp(now) }) }

// back tells the machine that the work has returned.
func (l *Lease) back(leave func(now time.Duration) protocol.Action) {
	if p := l.under; p != nil {
		p.turn.Lock()
		defer p.turn.Unlock()
	}
	l.deadline.End(engine.EndedReleased)
	l.do(func(now time.Duration) protocol.Action {
		l.stopFor(ErrReleased)
		if l.under != nil && l.left == nil {
			l.left = make(chan struct{})
		}
		return leave(now)
	})
}

// record writes the history before the work begins: see [protocol.Chronicler].
func (l *Lease) record(ctx context.Context) error {
	if len(l.past) == 0 || l.c.options.HistoryLimit < 0 {
		return nil
	}
	l.c.chronicle(ctx, l.key, l.past)
	if errors.Is(l.Check(), ErrLost) {
		// Paused meanwhile. The work has not begun.
		l.free()
		return ErrExpired
	}
	return nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore

import (
	"context"
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// ErrInjected is returned by calls with a fault that names no error of its
// own.
var ErrInjected = errors.New("injected fault")

// Effect says how far a call gets.
type Effect int

const (
	// Applied calls reach the inner store, and the reply comes back.
	Applied Effect = iota
	// Refused calls do not reach the inner store and return an error that says
	// so: it matches [driver.ErrNotApplied].
	Refused
	// RequestLost calls do not reach the inner store, but the caller cannot
	// know.
	RequestLost
	// ReplyLost calls reach the inner store, but the caller cannot know.
	ReplyLost
)

// Fault is what happens to a call. The zero value is no fault. Its fields
// combine.
type Fault struct {
	// Effect says how far the call gets.
	Effect Effect

	// Err is the error of a call that is not Applied; ErrInjected if it is
	// nil. Refused marks it with [driver.NotApplied].
	Err error

	// Hang makes a call that is RequestLost or ReplyLost return only when its
	// context is done, with the context's error instead of Err.
	Hang bool

	// Before passes before the inner store is called, or the call fails. If
	// the context is done meanwhile, the call returns the context's error, and
	// the inner store is never called; unless Late is set.
	Before time.Duration

	// Late has the inner store called when Before has passed even if the
	// context was done before that: a write comes late.
	Late bool

	// After passes between the inner store's reply and the return of the call.
	// If the context is done meanwhile, the call returns the context's error.
	After time.Duration

	// Again sends a copy of a write to the inner store after each of these
	// durations, counted from when the inner store was called, or would have
	// been if the request had not been lost. A Refused call sends none, and
	// neither does a read.
	Again []time.Duration

	// Deaf is how long, from its beginning, the call ignores its
	// context, as in a bad driver.
	Deaf time.Duration

	// Stale has a read that is not Strong show each record as it was before the
	// last Stale writes of its key, from any client, or not at all if it did not
	// exist then: a Get that is Eventual, and a List. Strong reads are never
	// stale. States more than MaxStale writes old, or older than the first Store
	// of this package over the same records, are not known: the oldest known
	// state is shown instead. It needs an inner store that is a [Past], as
	// memstore is, and panics with another one.
	Stale int
}

// LoseReply makes the write and returns [ErrInjected].
func LoseReply() Fault { return Fault{Effect: ReplyLost} }

// LoseReplyHang makes the write and hangs until the context is done.
func LoseReplyHang() Fault { return Fault{Effect: ReplyLost, Hang: true} }

// LoseRequest makes no write and returns [ErrInjected], which does not say so.
func LoseRequest() Fault { return Fault{Effect: RequestLost} }

// Refuse makes no write and returns [ErrInjected] marked as not applied.
func Refuse() Fault { return Fault{Effect: Refused} }

// BlackHole makes no write and hangs until the context is done.
func BlackHole() Fault { return Fault{Effect: RequestLost, Hang: true} }

// Slow delays the call before the write and after it.
func Slow(before, after time.Duration) Fault { return Fault{Before: before, After: after} }

// Late makes the write after d, and the caller wait for it unless its context
// is done before.
func Late(d time.Duration) Fault { return Fault{Before: d, Late: true} }

// LateAfterError returns [ErrInjected] at once and makes the write after d.
func LateAfterError(d time.Duration) Fault {
	return Fault{Effect: RequestLost, Again: []time.Duration{d}}
}

// Duplicate makes the write in the ordinary way, and again after d.
func Duplicate(d time.Duration) Fault { return Fault{Again: []time.Duration{d}} }

// Stale has reads that are not Strong show the state of n writes ago: see
// [Fault.Stale].
func Stale(n int) Fault { return Fault{Stale: n} }

// carryOut makes the call with its fault.
func (s *Store) carryOut(ctx context.Context, call Call, f Fault) (reply, error) {
	w := waiter{ctx: ctx, closing: s.ctx.Done(), deaf: call.Begin.Add(f.Deaf)}
	if f.Before > 0 {
		if err := w.wait(f.Before); err != nil {
			if f.Late && (f.Effect == Applied || f.Effect == ReplyLost) {
				s.later(f.Before-time.Since(call.Begin), call)
			}
			return reply{}, err
		}
	}
	if f.Effect != Refused {
		for _, d := range f.Again {
			s.later(d, call)
		}
	}
	if f.Effect == Refused {
		return reply{}, driver.NotApplied(f.err())
	}
	if f.Effect == RequestLost {
		return reply{}, f.lost(w)
	}
	if f.Deaf > 0 {
		ctx = context.WithoutCancel(ctx)
	}
	r, err := s.send(ctx, call, f.Stale)
	if f.After > 0 {
		if err := w.wait(f.After); err != nil {
			return reply{}, err
		}
	}
	if f.Effect == ReplyLost {
		return reply{}, f.lost(w)
	}
	return r, err
}

func (f Fault) err() error {
	if f.Err != nil {
		return f.Err
	}
	return ErrInjected
}

func (f Fault) lost(w waiter) error {
	if f.Hang {
		return w.wait(forever)
	}
	return f.err()
}

// later makes the write after d, in a goroutine that Wait and Close wait for.
func (s *Store) later(d time.Duration, call Call) {
	if !call.Op.IsWrite() {
		return
	}
	s.async(d, func() { _, _ = s.send(s.ctx, call, 0) }) // its outcome is not awaited
}

// async runs f after d, unless the store is closed before.
func (s *Store) async(d time.Duration, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.pending++
	go func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.pending--; s.pending == 0 {
				s.idle.Broadcast()
			}
		}()
		w := waiter{ctx: s.ctx, closing: s.ctx.Done()}
		if w.wait(d) == nil {
			f()
		}
	}()
}

// forever is a wait that only the context or Close ends. No timer runs for it:
// in a synctest bubble that would end the wait after 292 years of fake time.
const forever = time.Duration(1<<63 - 1)

// waiter waits on behalf of one call.
type waiter struct {
	ctx     context.Context
	closing <-chan struct{}
	deaf    time.Time // before this the context is not heard
}

// wait returns nil after d, the context's error if it is done before, and
// ErrClosed if the store is closed before.
func (w waiter) wait(d time.Duration) error {
	var over <-chan time.Time
	if d < forever {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	if deaf := time.Until(w.deaf); deaf > 0 {
		hears := time.NewTimer(deaf)
		defer hears.Stop()
		select {
		case <-over:
			return nil
		case <-w.closing:
			return driver.ErrClosed
		case <-hears.C:
		}
	}
	select {
	case <-over:
		return nil
	case <-w.closing:
		return driver.ErrClosed
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

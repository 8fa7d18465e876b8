// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
)

// Session is one heartbeat that keeps any number of locks of a process alive. A
// lock under a session is written only when it changes hands. When the session
// ends, all of them end. The session's record in the store is no lock's: see
// [Session.ID].
//
// All methods may be called concurrently. A session that was lost does not come
// back: open another one.
type Session struct {
	parent
	client *Client
	closed chan struct{} // when it is over, or its heartbeats have stopped
	ending engine.Timer  // on the contender's clock: fails the acquires that wait under it
}

// SessionOptions are for one session. Nil means the defaults.
type SessionOptions struct {
	// Data is written into the session's record, for others to read: the address of
	// the process, say. It has at most 64 KiB.
	Data []byte

	// Timing has the durations of the session and of all locks under it, if they are not
	// to be the client's. ProgressTimeout counts for each lock.
	Timing Timing

	// StoreTimeout is how long the store may fail to give any answer before
	// OpenSession returns its error. If zero, it is the lease duration; negative
	// means for ever.
	StoreTimeout time.Duration
}

// ID returns the id of the session. No id is ever used twice.
func (s *Session) ID() string { return s.id }

// Client returns the client that opened the session.
func (s *Session) Client() *Client { return s.client }

// Context returns a context that ends when no lock may be held under the session
// any more: at its deadline, on its loss, and when it is closed. The contexts of
// all leases under it end with it. context.Cause says why: an error that matches
// [ErrLost], or [ErrSessionClosed], or [ErrClosed].
func (s *Session) Context() context.Context { return s.ctx }

// Check returns nil while the holders of the locks under the session may act, if
// nothing else has ended their leases, as [Lease.Check] does.
func (s *Session) Check() error {
	switch why := s.deadline.Check(); why {
	case engine.NotEnded:
		return nil
	case engine.EndedReleased:
		return wrap("check", s.name(), ErrSessionClosed)
	default:
		return wrap("check", s.name(), s.endedError(why))
	}
}

// Remaining returns the time until the deadline, 0 when the session has ended.
func (s *Session) Remaining() time.Duration { return s.deadline.Remaining() }

// Renew sends a heartbeat now, as [Lease.Renew] does.
func (s *Session) Renew(ctx context.Context) error { return s.wrapped("renew", s.renew(ctx)) }

// SetData writes data into the session's record, as [Lease.SetData] does into that
// of a lock. It has at most 64 KiB.
func (s *Session) SetData(ctx context.Context, data []byte) error {
	err := checkSessionData(data)
	if err == nil {
		err = s.setData(ctx, data)
	}
	return s.wrapped("set data", err)
}

// Leases returns how many locks are held under the session, including those whose
// work is still stopping.
func (s *Session) Leases() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keeper.Locks()
}

// Acquire takes a lock under the session, as [Client.Acquire] does for one that is
// its own lease. If the session ends meanwhile, or has ended, the error matches
// [ErrSessionClosed] and the reason for the end.
func (s *Session) Acquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.client.acquire(ctx, "acquire", name, options, &s.parent, false)
}

// TryAcquire takes a lock under the session, as [Client.TryAcquire] does for one
// that is its own lease.
func (s *Session) TryAcquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.client.acquire(ctx, "try acquire", name, options, &s.parent, true)
}

// Run runs work while it holds a lock under the session, as [Client.Run] does
// under one that is its own lease.
func (s *Session) Run(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error) error {
	if err := checkWork("run", name, work == nil); err != nil {
		return err
	}
	return run(ctx, name, options, work, s.Acquire)
}

// Election returns the election of the given name, as [Client.Election] does; its
// winner leads under the session. When the session is lost, the election's Run
// returns an error that matches [ErrSessionClosed]; when the session is closed, Run
// returns what work returned.
func (s *Session) Election(name string, options *ElectionOptions) *Election {
	return s.client.election(name, options, &s.parent)
}

// Close ends the session. It cancels the contexts of all leases under it with
// [ErrSessionClosed], and fails the acquires that wait for a lock under it. When
// every lease has been released by its holder, one write frees all their locks;
// until then heartbeats go on, for [Options.StopTimeout] at most.
//
// Close waits for that, or until ctx ends, and returns nil or an error as
// [Lease.Release] does: [ErrStopTimeout] if a lease was not released by then, so
// that the session's record runs out by itself. Closing again returns the same.
//
// A context that is already done at the call, or that Close itself ends, is
// ignored, so that a deferred Close works under the context of a signal. Close then
// takes no longer than [Options.StopTimeout], a lease duration, and the request
// that is under way then.
func (s *Session) Close(ctx context.Context) error {
	ended := ctx.Done()
	if ctx.Err() != nil {
		ended = nil
	}
	s.stop(ErrSessionClosed)
	select {
	case <-s.closed:
	case <-ended:
		if errors.Is(context.Cause(ctx), ErrSessionClosed) {
			// A context of a lease under it, which this call has ended.
			return s.Close(context.WithoutCancel(ctx))
		}
		return wrap("close", s.name(), uncertain(done(ctx)))
	case <-s.c.gone:
		select {
		case <-s.closed:
		default:
			return wrap("close", s.name(), uncertain(ErrClosed))
		}
	}
	return s.wrapped("close", s.result())
}

// Session returns the session that keeps the lock alive, nil if the lock is its
// own lease.
func (l *Lease) Session() *Session {
	if l.under == nil {
		return nil
	}
	return l.under.of.(*Session)
}

func checkSessionData(data []byte) error {
	if len(data) > driver.MaxSessionDataLen {
		return invalid("data has %d bytes: at most %d are allowed for a session", len(data), driver.MaxSessionDataLen)
	}
	return nil
}

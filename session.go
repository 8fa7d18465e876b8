// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Session is one heartbeat that keeps any number of locks of a process alive. A
// lock under a session is written when it changes hands, and not in between; when
// the session ends, all of them end. Its record in the store is that of no lock:
// see [Session.ID].
//
// All methods may be called concurrently. A session that was lost does not come
// back: open another one.
type Session struct {
	c  *Client
	id string
	l  *Lease // of its own record: the heartbeat, and the deadline of all locks

	finished chan struct{} // closed when it is over, or its heartbeats have stopped

	ending entry // on the agenda of looks: what needs the contests
	inbox  entry
	follow entry    // on the agenda of beats: has the locks follow, some at a time
	behind []*Lease // that have not followed yet; guarded by l.mu

	// turn is taken before l.mu by who releases a lock, and never by an agenda: of
	// very many who do so at once, one at a time can be in front of a heartbeat.
	turn sync.Mutex

	acquires    map[*acquire]struct{} // guarded by the client's seeing; not ended
	disclaiming map[claimed]*disclaiming

	// Guarded by l.mu.
	leases  map[*Lease]struct{} // not over
	named   map[string]*Lease   // the latest of each lock
	kept    map[string]time.Duration
	working int // leases whose work has not returned
	closing bool
}

// claimed is a lock under a token.
type claimed struct {
	lock  string
	token uint64
}

// SessionOptions are for one session. Nil means the defaults.
type SessionOptions struct {
	// Data is laid down in the session's record, for others to read: the address
	// of the process, say. It has at most 64 KiB.
	Data []byte

	// StoreTimeout is how long the store may fail to give any answer before
	// OpenSession returns its error. If zero, it is the lease duration; negative
	// means for ever.
	StoreTimeout time.Duration
}

// ID returns the id of the session, which was never used before and never will be
// again.
func (s *Session) ID() string { return s.id }

// Client returns the client that opened the session.
func (s *Session) Client() *Client { return s.c }

// Context returns a context that ends when no lock is to be held under the session
// any more: at its deadline, on its loss, and when it is closed. The contexts of
// all leases under it end with it. context.Cause says why: an error that matches
// [ErrLost], or [ErrSessionClosed], or [ErrClosed].
func (s *Session) Context() context.Context { return s.l.ctx }

// Check returns nil while the holders of the locks under the session may act, if
// nothing else has ended their leases, as [Lease.Check] does.
func (s *Session) Check() error {
	limit := s.l.limit.Load()
	if limit > 0 && int64(s.c.clock.Holder()) < limit {
		return nil
	}
	switch err := s.l.checkEnded(limit); {
	case err == nil:
		return nil
	case errors.Is(err, ErrReleased):
		return wrap("check", s.name(), ErrSessionClosed)
	default:
		return s.renamed(err)
	}
}

// Remaining returns the time until the deadline, 0 when the session has ended.
func (s *Session) Remaining() time.Duration { return s.l.Remaining() }

// Renew sends a heartbeat now, as [Lease.Renew] does.
func (s *Session) Renew(ctx context.Context) error { return s.renamed(s.l.Renew(ctx)) }

// SetData lays data down in the session's record, as [Lease.SetData] does in that
// of a lock. It has at most 64 KiB.
func (s *Session) SetData(ctx context.Context, data []byte) error {
	if err := checkSessionData(data); err != nil {
		return wrap("set data", s.name(), err)
	}
	return s.renamed(s.l.SetData(ctx, data))
}

// Leases returns how many locks are held under the session, those included whose
// work is still stopping.
func (s *Session) Leases() int {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if _, over := s.l.h.Over(); over {
		return 0
	}
	return len(s.leases)
}

// Acquire takes a lock under the session, as [Client.Acquire] does for one that is
// its own lease. The error matches [ErrSessionClosed] if the session ends
// meanwhile, or has ended, and the reason for which it did.
func (s *Session) Acquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.c.acquire(ctx, "acquire", name, options, s, false)
}

// TryAcquire takes a lock under the session, as [Client.TryAcquire] does for one
// that is its own lease.
func (s *Session) TryAcquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.c.acquire(ctx, "try acquire", name, options, s, true)
}

// Run runs work while it holds a lock under the session, as [Client.Run] does
// under one that is its own lease.
func (s *Session) Run(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error) error {
	if err := checkWork("run", name, work == nil); err != nil {
		return err
	}
	l, err := s.Acquire(ctx, name, options)
	if err != nil {
		return err
	}
	return l.hold(ctx, work)
}

// Election returns the election of the given name, as [Client.Election] does; who
// is elected by it leads under the session. When the session is lost, its Run
// returns an error that matches [ErrSessionClosed]; when it is closed, what work
// returned.
func (s *Session) Election(name string, options *ElectionOptions) *Election {
	return s.c.election(name, options, s)
}

// Close ends the session. It cancels the contexts of all leases under it with
// [ErrSessionClosed], and fails who waits for a lock under it. When each lease has
// been released by who holds it, all their locks are free by one write; until
// then heartbeats go on, for [Options.StopTimeout] at most.
//
// Close waits for that, or until ctx ends, and returns nil or an error as
// [Lease.Release] does: [ErrStopTimeout] if a lease was not released by then, so
// that the session's record runs out by itself. Closing again returns the same.
//
// A context that is done already before the call, or that Close itself ends, is
// ignored, so that a deferred Close works under the context of a signal. Close
// takes no longer then than [Options.StopTimeout], a lease duration, and the request
// that is under way then.
func (s *Session) Close(ctx context.Context) error {
	ended := ctx.Done()
	if ctx.Err() != nil {
		ended = nil
	}
	s.l.stop(ErrSessionClosed)
	select {
	case <-s.finished:
	case <-ended:
		if errors.Is(context.Cause(ctx), ErrSessionClosed) {
			// A context of a lease under it, which this call has ended.
			return s.Close(context.WithoutCancel(ctx))
		}
		return wrap("close", s.name(), uncertain(done(ctx)))
	case <-s.c.gone:
		select {
		case <-s.finished:
		default:
			return wrap("close", s.name(), uncertain(ErrClosed))
		}
	}
	if err := s.l.result(); err != nil {
		return wrap("close", s.name(), err)
	}
	return nil
}

// Session returns the session that keeps the lock alive, nil if the lock is its
// own lease.
func (l *Lease) Session() *Session { return l.under }

func (s *Session) name() string { return "session " + s.id }

// renamed has an error name the session in place of the key of its record.
func (s *Session) renamed(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return wrap(e.Op, s.name(), e.Err)
	}
	return err
}

// ended says why no lock can be had under the session.
func (s *Session) ended() error {
	s.l.mu.Lock()
	cause := s.l.cause // not the context's: that may be busy with ending all others
	s.l.mu.Unlock()
	switch {
	case cause == nil && s.c.isClosed():
		cause = ErrClosed
	case cause == nil:
		cause = ErrExpired // nobody has been told yet
	}
	if errors.Is(cause, ErrSessionClosed) {
		return cause
	}
	return refused("%w: %w", ErrSessionClosed, cause)
}

func checkSessionData(data []byte) error {
	if len(data) > driver.MaxSessionDataLen {
		return refused("data has %d bytes: at most %d are allowed for a session", len(data), driver.MaxSessionDataLen)
	}
	return nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

const maxBatch = 100 // locks in one call

// Session keeps any number of locks alive by one heartbeat. When it ends, all its locks end. A lost session
// does not come back: open another one.
//
// All methods may be called concurrently.
type Session struct {
	c       *Client
	id      string
	ctx     context.Context
	cancel  context.CancelCauseFunc
	renewer *renewer
	pack    *pack // guarded by renewer.mu

	mu     sync.Mutex
	works  int                // of Run, which Close waits for
	idle   chan struct{}      // closed when all have returned; nil: nobody waits for that
	leases map[*member]*Lease // that are not released

	once   sync.Once // the close
	done   chan struct{}
	result error // of the close, when done is closed
}

// OpenSession opens a session: one heartbeat that keeps any number of locks alive. ctx bounds only the opening.
// Servers that do not answer are asked again.
//
// The error matches the context's, if ctx ended; [ErrNoSessions] if the store of the service keeps none;
// [ErrUnavailable] if all servers refuse the certificate, or do not speak TLS; [ErrClosed]; or it is a
// [*ProblemError].
func (c *Client) OpenSession(ctx context.Context) (*Session, error) {
	s, err := c.session(ctx)
	return s, wrap("open", "session", err)
}

func (c *Client) session(ctx context.Context) (*Session, error) {
	if c.isClosed() {
		return nil, ErrClosed
	}
	to, body := c.caller(), c.introduction()
	var pauses backoff
	var last *problem
	for wrong := 0; ctx.Err() == nil; {
		sent := c.now()
		g, p := call(ctx, to, callMargin, "/v1/sessions/open", body, readSession)
		switch {
		case p == nil:
			s := c.sessionOf(g, sent)
			if s.renewer.start(ctx, sent) {
				return s, nil
			}
			s.begin() // another one is opened
		case p.kind == "bad-request" && body["clock"] != nil:
			delete(body, "clock")
			continue
		case p.kind == "no-sessions":
			return nil, fmt.Errorf("%w: %s", ErrNoSessions, p.detail)
		case p.kind != "" && !again[p.kind]:
			return nil, &ProblemError{p.kind, p.status, p.detail}
		}
		if wrong++; p == nil || !p.permanent {
			wrong = 0
		}
		if wrong >= len(c.servers) {
			return nil, unavailable(p)
		}
		last = p
		sleep(ctx, pauses.next())
	}
	if last != nil {
		return nil, done(ctx, unavailable(last))
	}
	return nil, done(ctx, nil)
}

// sessionOf returns a session that was opened by a call that was sent after the instant sent.
func (c *Client) sessionOf(g grant, sent time.Duration) *Session {
	s := &Session{c: c, id: g.name, leases: map[*member]*Lease{}, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.pack = newPack(newSessionTerm(g, sent), c.stopTimeout(g))
	s.renewer = c.renewer(s.pack.term)
	s.renewer.beat, s.renewer.over, s.renewer.tick = s.beat, s.end, s.tick
	s.renewer.confirmed = func(c confirmation, now time.Duration) { s.pack.hear(c.requests, now) }
	return s
}

// ID returns the id of the session, which the status of its locks shows.
func (s *Session) ID() string { return s.id }

// Context returns a context that ends with the session. context.Cause says why: an error that matches [ErrLost]
// or [ErrSessionClosed].
func (s *Session) Context() context.Context { return s.ctx }

// Check returns nil while the locks of the session may be held, as [Lease.Check] does for one of them.
func (s *Session) Check() error { return wrap("check", "session "+s.id, s.check()) }

func (s *Session) check() error {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	return s.why(s.pack.sessionState(s.c.now()))
}

// why says in words what the session is. renewer.mu is held.
func (s *Session) why(is state) error {
	if is == released {
		return ErrSessionClosed
	}
	return s.renewer.why(is)
}

// Remaining returns the time until the deadline of all locks, 0 when the session has ended.
func (s *Session) Remaining() time.Duration {
	if s.check() != nil {
		return 0
	}
	return s.renewer.remaining()
}

// checkOf returns why the holder of a lock may not act, nil if it may.
func (s *Session) checkOf(m *member) error {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	switch is := s.pack.stateOf(m, s.c.now()); {
	case m.with:
		return s.why(is)
	case is == expired && m.asked:
		return ErrStopTimeout
	case is == lost:
		return fmt.Errorf("%w: it was not attached to the session", ErrSuperseded)
	case is == expired:
		return fmt.Errorf("%w: it was not attached to the session in time", ErrExpired)
	default:
		return s.renewer.why(is)
	}
}

func (s *Session) remainingOf(m *member) time.Duration {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	return s.pack.remainingOf(m, s.c.now())
}

// Acquire takes a lock under the session, as [Client.Acquire] does without one. The lock has no heartbeats of
// its own. If the session ends meanwhile, or has ended, the error matches [ErrSessionClosed].
func (s *Session) Acquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.acquire(ctx, "acquire", want{name: name}, options, false)
}

// TryAcquire takes a lock under the session if it is free, as [Client.TryAcquire] does.
func (s *Session) TryAcquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.acquire(ctx, "try acquire", want{name: name}, options, true)
}

// Run runs work while it holds a lock under the session, as [Client.Run] does without one. [Session.Close] waits
// for it.
func (s *Session) Run(
	ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error,
) error {
	return s.runs(func() error {
		l, err := s.Acquire(ctx, name, options)
		if err != nil {
			return err
		}
		return l.run(ctx, func(ctx context.Context) error { return work(ctx, l) })
	})
}

// runs does what Close waits for: it acquires a lock, and works.
func (s *Session) runs(do func() error) error {
	s.mu.Lock()
	s.works++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.works--; s.works == 0 && s.idle != nil {
			close(s.idle)
			s.idle = nil
		}
	}()
	return do()
}

func (s *Session) acquire(ctx context.Context, op string, w want, o *AcquireOptions, try bool) (*Lease, error) {
	var l *Lease
	err := s.within(ctx, func(ctx context.Context) (err error) {
		l, err = s.c.take(ctx, w, o, try, s.hold, func() error { return nil })
		return err
	})
	return l, wrap(op, w.name, err)
}

// within does something that ends with the session.
func (s *Session) within(ctx context.Context, do func(context.Context) error) error {
	bound, stop := bind(ctx, s.ctx)
	defer stop()
	err := s.check()
	if err == nil {
		err = do(bound)
	} else if !errors.Is(err, ErrSessionClosed) {
		err = fmt.Errorf("%w: %w", ErrSessionClosed, err)
	}
	if err != nil && ctx.Err() == nil && s.ctx.Err() != nil && !errors.Is(err, ErrSessionClosed) {
		err = fmt.Errorf("%w: %w", ErrSessionClosed, context.Cause(s.ctx))
	}
	return err
}

// hold attaches the lock of a grant to the session. It returns nil if the grant was lost before.
func (s *Session) hold(ctx context.Context, g grant, sent time.Duration) (*Lease, error) {
	l := s.join(g, sent)
	switch err := s.attach(ctx, []*Lease{l}); {
	case err == nil:
		return l, nil
	case errors.Is(err, ErrLost) && ctx.Err() == nil && s.check() == nil:
		return nil, nil
	default:
		return nil, err
	}
}

// join makes a lock that was granted a member. Its caller gets the lease when it is attached.
func (s *Session) join(g grant, sent time.Duration) *Lease {
	l := s.c.bare(g)
	l.session = s
	s.renewer.mu.Lock()
	l.member = s.pack.join(g, sent, s.c.now())
	l.member.cancel = l.cancel
	s.renewer.mu.Unlock()
	s.mu.Lock()
	s.leases[l.member] = l
	s.mu.Unlock()
	return l
}

// attach attaches locks that were granted, by the same call until it is answered. If it returns an error none of
// them is held, and all are released in the background.
func (s *Session) attach(ctx context.Context, leases []*Lease) error {
	locks := make([]fields, len(leases))
	for i, l := range leases {
		locks[i] = fields{"name": l.grant.name, "token": l.grant.token, "after": l.member.after, "next": l.member.next}
	}
	s.renewer.mu.Lock()
	body := fields{"session": s.id, "beat": s.pack.confirmed, "locks": locks}
	s.renewer.mu.Unlock()
	read := func(r reply) ([]result, *problem) { return readResults(r, leases) }
	to := s.c.caller()
	var pauses backoff
	var err error
	for err == nil && s.sends(leases) {
		results, p := call(ctx, to, s.renewer.limit, "/v1/sessions/attach", body, read)
		if p == nil {
			p = s.attached(leases, results)
		}
		switch {
		case ctx.Err() != nil:
			err = done(ctx, nil)
		case p.lost():
			err = fmt.Errorf("%w: %v", ErrSuperseded, p)
		case p != nil && !p.again():
			err = &ProblemError{p.kind, p.status, p.detail}
		case p != nil:
			sleep(ctx, pauses.next())
		}
	}
	for _, l := range leases {
		if err == nil {
			err = l.check()
		}
	}
	if err == nil {
		return nil
	}
	for _, l := range leases {
		l.giveBack()
	}
	return err
}

// sends reports whether the attachment of locks is to be sent now: not once all are attached, or one has ended.
func (s *Session) sends(leases []*Lease) bool {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	some := false
	for _, l := range leases {
		some = s.pack.attach(l.member, s.c.now()) || some
		if l.member.is > held {
			return false
		}
	}
	return some
}

// attached records results, and returns the problem of a lock that was not attached, a final one first.
func (s *Session) attached(leases []*Lease, results []result) (failed *problem) {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	for i, r := range results {
		switch m := leases[i].member; {
		case r.problem == nil:
			s.pack.attaches(m, r.asked, s.c.now())
			continue
		case r.problem.lost():
			s.pack.loses(m)
		}
		if failed == nil || failed.again() {
			failed = r.problem
		}
	}
	return failed
}

// again says that the same call is to be sent again.
func (p *problem) again() bool {
	switch p.status {
	case 401, 403, 429:
		return true
	}
	return p.moves()
}

// beat makes the call of a heartbeat once. The same heartbeat again names the same requests.
func (s *Session) beat(ctx context.Context, h *heartbeat) (confirmation, *problem) {
	body := fields{"session": s.id, "after": h.after, "next": h.next}
	s.renewer.mu.Lock()
	if says := s.pack.saying(h); len(says) > 0 {
		body["answered"] = says
	}
	s.renewer.mu.Unlock()
	return call(ctx, s.renewer.to, s.renewer.limit, "/v1/sessions/heartbeat", body, readHeartbeat)
}

// end ends all locks with the session.
func (s *Session) end(why error) {
	s.cancel(why)
	for _, l := range s.all() {
		l.cancel(why)
	}
}

func (s *Session) all() []*Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.leases))
}

// tick releases locks whose work has not stopped in time.
func (s *Session) tick() {
	for _, l := range s.all() {
		s.renewer.mu.Lock()
		late := s.pack.overdue(l.member, s.c.now())
		s.renewer.mu.Unlock()
		if late { // it may have written: it is not given back
			l.once.Do(func() { l.begin(fields{"name": l.grant.name, "token": l.grant.token}) })
		}
	}
}

// release releases a lock until that is answered, or the session has ended. before is why its right had ended.
func (s *Session) release(l *Lease, before error, body fields) {
	s.renewer.mu.Lock()
	d := s.pack.releaseOf(l.member, s.c.now())
	s.renewer.mu.Unlock()
	l.cancel(ErrReleased)
	s.mu.Lock()
	delete(s.leases, l.member)
	s.mu.Unlock()
	s.c.release(func() {
		var once sync.Once
		answers := func(err error) { // the caller waits no longer
			once.Do(func() {
				if l.result = err; before != nil && !errors.Is(before, ErrSessionClosed) {
					l.result = before
				}
				close(l.done)
			})
		}
		body["after"], body["next"] = l.member.after, l.member.next
		all := fields{"session": s.id, "locks": []fields{body}}
		read := func(r reply) ([]result, *problem) { return readResults(r, []*Lease{l}) }
		to := s.c.caller()
		var pauses backoff
		for until := s.c.now() + s.pack.lease; s.ctx.Err() == nil && s.calls(d); sleep(s.ctx, pauses.next()) {
			results, p := call(s.ctx, to, s.renewer.limit, "/v1/sessions/release", all, read)
			if p == nil {
				p = results[0].problem
			}
			if s.released(d, p) {
				break
			}
			if s.c.now() >= until {
				answers(fmt.Errorf("%w: it is tried until the session ends; last answer: %v", ErrUncertain, p))
			}
		}
		if d.is == wasLost {
			answers(fmt.Errorf("%w before it was released", ErrSuperseded))
		}
		answers(nil)
	})
}

func (s *Session) calls(d *detach) bool {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	return d.call(s.c.now())
}

// released records the answer to a release, and reports whether it is the last one.
func (s *Session) released(d *detach, p *problem) bool {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	switch {
	case p == nil:
		d.applied()
	case p.lost():
		d.refused()
	default:
		d.unknown()
	}
	return d.is != pending
}

// Close ends the session: it makes the checks of all its locks fail, cancels their contexts with
// [ErrSessionClosed], waits until all work that Run has called under it has returned, for [Options.StopTimeout] at
// most, and frees all locks by one call. Call it when other work has returned.
//
// The result is nil if the session was good until now. Otherwise it matches [ErrLost], [ErrStopTimeout] if work
// has not returned, so that the session is not closed and expires by itself, or [ErrUncertain]. ctx bounds the
// waiting as in [Lease.Release]. Closing again returns the same.
func (s *Session) Close(ctx context.Context) error {
	s.begin()
	if ctx.Err() != nil {
		ctx = context.Background()
	}
	select {
	case <-s.done:
		return wrap("close", "session "+s.id, s.result)
	case <-ctx.Done():
		return wrap("close", "session "+s.id, done(ctx, nil))
	}
}

// begin ends the rights of all locks, and begins the close.
func (s *Session) begin() {
	s.once.Do(func() {
		before := s.check()
		s.renewer.mu.Lock()
		s.pack.closing = true
		s.renewer.mu.Unlock()
		s.mu.Lock()
		var idle chan struct{}
		if s.works > 0 {
			idle = make(chan struct{})
			s.idle = idle
		}
		s.mu.Unlock()
		s.end(ErrSessionClosed)
		s.c.release(func() {
			defer close(s.done)
			stopped := s.waits(idle)
			r := s.renewer.release()
			s.renewer.end()
			if !stopped {
				s.result = ErrStopTimeout
				return
			}
			s.result = s.renewer.carryOut(r, "/v1/sessions/close", fields{"session": s.id})
			if before != nil {
				s.result = before
			}
		})
	})
}

// waits waits for work, under heartbeats. It reports whether all has returned.
func (s *Session) waits(idle <-chan struct{}) bool {
	for until := s.c.now() + s.pack.stopTimeout; idle != nil; {
		left := until - s.c.now()
		if left <= 0 {
			return false
		}
		bound, stop := context.WithTimeout(context.Background(), min(left, step))
		select {
		case <-idle:
			idle = nil
		case <-bound.Done():
		}
		stop()
	}
	return true
}

// Semaphore returns a semaphore whose slots are held under the session: see [Client.Semaphore].
func (s *Session) Semaphore(name string, n int) *Semaphore { return &Semaphore{s, name, n} }

// RWLock returns a lock for readers and writers that is held under the session: see [Client.RWLock].
func (s *Session) RWLock(name string) *RWLock { return &RWLock{by: s, name: name} }

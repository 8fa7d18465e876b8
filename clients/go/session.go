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

const (
	maxBatch    = 100 // locks in one call
	maxAnswered = 64  // ids in one heartbeat
)

// Session keeps any number of locks alive by one heartbeat. When it ends, all its locks end. A lost session
// does not come back: open another one.
//
// All methods may be called concurrently.
type Session struct {
	c       *Client
	id      string
	lease   time.Duration
	ctx     context.Context
	cancel  context.CancelCauseFunc
	renewer *renewer

	mu       sync.Mutex // nothing waits under it
	closing  bool
	works    int           // of Run, which Close waits for
	idle     chan struct{} // closed when all have returned; nil: nobody waits for that
	members  map[lockTerm]*member
	answered []string   // ids of requests that need nothing more, for the next heartbeat
	open     *heartbeat // the newest one
	says     []string   // what it has as answered, in each sending

	once   sync.Once // the close
	done   chan struct{}
	result error // of the close, when done is closed
}

// lockTerm names a term of a lock.
type lockTerm struct {
	name  string
	token uint64
}

// Session opens a session: one heartbeat that keeps any number of locks alive. ctx bounds only the opening.
// Servers that do not answer are asked again.
//
// The error matches the context's, if ctx ended; [ErrNoSessions] if the store of the service keeps none;
// [ErrUnavailable] if all servers refuse the certificate, or do not speak TLS; [ErrClosed]; or it is a
// [*ProblemError].
func (c *Client) Session(ctx context.Context) (*Session, error) {
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
	s := &Session{c: c, id: g.name, lease: g.lease, members: map[lockTerm]*member{}, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.renewer = c.renewer(newSessionTerm(g, sent))
	s.renewer.beat, s.renewer.told, s.renewer.over, s.renewer.tick = s.beat, s.told, s.end, s.tick
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
	s.mu.Lock()
	closing := s.closing
	s.mu.Unlock()
	if err := s.renewer.check(); err != nil && !errors.Is(err, ErrReleased) {
		return err
	} else if err != nil || closing {
		return ErrSessionClosed
	}
	return nil
}

// Remaining returns the time until the deadline of all locks, 0 when the session has ended.
func (s *Session) Remaining() time.Duration {
	if s.check() != nil {
		return 0
	}
	return s.renewer.remaining()
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
func (s *Session) Run(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error) error {
	l, err := s.Acquire(ctx, name, options)
	if err != nil {
		return err
	}
	return s.runs(func() error {
		return l.run(ctx, func(ctx context.Context) error { return work(ctx, l) })
	})
}

// runs does what Close waits for.
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
func (s *Session) hold(ctx context.Context, g grant, _ time.Duration) (*Lease, error) {
	l := s.join(g)
	switch err := s.attach(ctx, []*Lease{l}); {
	case err == nil:
		return l, nil
	case errors.Is(err, ErrLost) && ctx.Err() == nil && s.check() == nil:
		return nil, nil
	default:
		return nil, err
	}
}

// member is a lock under a session. It never has heartbeats of its own. Its holder may act once it is attached,
// as long as the deadline of the session has not passed.
type member struct {
	s           *Session
	l           *Lease
	to          *caller
	after, next string // of its attachment

	// Guarded by s.mu.
	attached bool
	gone     bool // it is not the client's any more
	asked    bool
	request  string        // the id of what was asked, if that came with a heartbeat of the session
	stopBy   time.Duration // if asked: the right ends
}

// join makes a lock that was granted a member. Nothing counts before it is attached.
func (s *Session) join(g grant) *Lease {
	l := s.c.lease(g, s)
	t := newTerm(g, 0)
	l.under = &member{s: s, l: l, to: s.c.caller(), after: g.beat, next: t.successor(g.beat)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[lockTerm{g.name, g.token}] = l.under
	return l
}

func (m *member) check() error {
	if err := m.s.check(); err != nil {
		return err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	switch {
	case m.gone, !m.attached:
		return fmt.Errorf("%w: it is not attached to the session", ErrSuperseded)
	case m.asked && m.s.renewer.now() >= m.stopBy:
		return ErrStopTimeout
	}
	return nil
}

// attach attaches locks that were granted, by the same call until it is answered. If it returns an error none of
// them is held, and all are released in the background.
func (s *Session) attach(ctx context.Context, leases []*Lease) error {
	var pauses backoff
	locks := make([]fields, len(leases))
	for i, l := range leases {
		locks[i] = fields{"name": l.grant.name, "token": l.grant.token, "after": l.under.after, "next": l.under.next}
	}
	body := fields{"session": s.id, "beat": s.confirmed(), "locks": locks}
	read := func(r reply) ([]result, *problem) { return readResults(r, leases) }
	to := s.c.caller()
	var err error
	for {
		results, p := call(ctx, to, s.renewer.limit, "/v1/sessions/attach", body, read)
		if p == nil {
			p = s.attached(leases, results)
		}
		if p == nil {
			if err = errors.Join(s.check(), ctx.Err()); err == nil {
				return nil
			}
			break
		}
		if !p.again() {
			err = &ProblemError{p.kind, p.status, p.detail}
			if p.lost() {
				err = fmt.Errorf("%w: %v", ErrSuperseded, p)
			}
			break
		}
		if ctx.Err() != nil {
			err = done(ctx, unavailable(p))
			break
		}
		if err = s.check(); err != nil {
			break
		}
		sleep(ctx, pauses.next())
	}
	for _, l := range leases {
		l.giveBack()
	}
	return err
}

// again says that the same call is to be sent again.
func (p *problem) again() bool {
	switch p.status {
	case 401, 403, 429:
		return true
	}
	return p.moves()
}

// attached records results, and returns the problem of a lock that was not attached, a final one first.
func (s *Session) attached(leases []*Lease, results []result) *problem {
	var failed *problem
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range results {
		switch m := leases[i].under; {
		case r.problem == nil:
			m.attached = true
			s.ask(m, r.asked)
		case failed == nil || failed.again():
			failed = r.problem
		}
		if r.problem.lost() {
			s.leave(leases[i].under)
		}
	}
	return failed
}

// ask has a lock make way, on the first request. s.mu is held.
func (s *Session) ask(m *member, asked *StepDownError) {
	if asked == nil || m.asked || m.gone {
		return
	}
	m.asked, m.stopBy = true, s.renewer.now()+s.c.stopTimeout(grant{lease: s.lease})
	m.l.cancel(asked)
}

// leave removes a lock that is not the client's any more. s.mu is held.
func (s *Session) leave(m *member) {
	if m.gone {
		return
	}
	m.gone = true
	delete(s.members, lockTerm{m.l.grant.name, m.l.grant.token})
	if m.request != "" {
		s.answer(m.request)
	}
}

// answer has the next heartbeat name a request that needs nothing more. s.mu is held.
func (s *Session) answer(id string) {
	if id != "" && !slices.Contains(s.answered, id) {
		s.answered = append(s.answered, id)
	}
}

// confirmed returns a beat of the session.
func (s *Session) confirmed() string {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	return s.renewer.term.confirmed
}

// beat makes the call of a heartbeat once. The same heartbeat again names the same requests.
func (s *Session) beat(ctx context.Context, h *heartbeat) (confirmation, *problem) {
	s.mu.Lock()
	if s.open != h {
		s.open, s.says = h, slices.Clone(s.answered[:min(len(s.answered), maxAnswered)])
	}
	says := s.says
	s.mu.Unlock()
	body := fields{"session": s.id, "after": h.after, "next": h.next}
	if len(says) > 0 {
		body["answered"] = says
	}
	c, p := call(ctx, s.renewer.to, s.renewer.limit, "/v1/sessions/heartbeat", body, readHeartbeat)
	if p == nil {
		s.mu.Lock()
		s.answered = slices.DeleteFunc(s.answered, func(id string) bool { return slices.Contains(says, id) })
		s.mu.Unlock()
	}
	return c, p
}

// told has single locks make way. A request for a lock that the client does not hold needs nothing.
func (s *Session) told(c confirmation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range c.requests {
		m := s.members[lockTerm{q.Name, q.Token}]
		if m == nil {
			s.answer(q.ID)
			continue
		}
		m.request = q.ID
		if asked, err := q.err(); err == nil {
			s.ask(m, asked)
		}
	}
}

// end ends all locks with the session.
func (s *Session) end(why error) {
	s.cancel(why)
	for _, m := range s.all() {
		m.l.cancel(why)
	}
}

func (s *Session) all() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.members))
}

// tick releases locks whose work has not stopped: a lease after their right has ended, as if they had expired.
func (s *Session) tick() {
	for _, m := range s.all() {
		s.mu.Lock()
		late := m.asked && s.renewer.now() >= m.stopBy+s.lease
		s.mu.Unlock()
		if late {
			m.l.giveBack()
		}
	}
}

// release releases a lock until that is answered, or the session has ended. before is why its right had ended.
func (m *member) release(before error, body fields) {
	s := m.s
	given := sync.OnceFunc(func() { // the caller waits no longer
		if before != nil && !errors.Is(before, ErrSessionClosed) {
			m.l.result = before
		}
		close(m.l.done)
	})
	defer given()
	body["after"], body["next"] = m.after, m.next
	release := fields{"session": s.id, "locks": []fields{body}}
	read := func(r reply) ([]result, *problem) { return readResults(r, []*Lease{m.l}) }
	var pauses backoff
	doubt := false
	for until := s.renewer.now() + s.lease; s.renewer.state() == held && s.ctx.Err() == nil && !m.isGone(); {
		results, p := call(s.ctx, m.to, s.renewer.limit, "/v1/sessions/release", release, read)
		if p == nil {
			p = results[0].problem
		}
		if p == nil || p.lost() {
			if p != nil && !doubt {
				m.l.result = fmt.Errorf("%w before it was released", ErrSuperseded)
			}
			s.mu.Lock()
			s.leave(m)
			s.mu.Unlock()
			return
		}
		doubt = true
		if s.renewer.now() >= until && before == nil {
			select {
			case <-m.l.done:
			default:
				m.l.result = fmt.Errorf("%w: it is tried until the session ends; last answer: %v", ErrUncertain, p)
				given()
			}
		}
		sleep(s.ctx, pauses.next())
	}
}

func (m *member) isGone() bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.gone
}

// remaining returns the time until the right ends.
func (m *member) remaining() time.Duration {
	left := m.s.renewer.remaining()
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.asked {
		left = min(left, m.stopBy-m.s.renewer.now())
	}
	return max(0, left)
}

// Close ends the session: it makes the checks of all its locks fail, cancels their contexts with
// [ErrSessionClosed], waits until all work of [Session.Run] has returned, for [Options.StopTimeout] at most, and
// frees all locks by one call. Call it when other work has returned.
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
		s.mu.Lock()
		s.closing = true
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
	for until := s.renewer.now() + s.c.stopTimeout(grant{lease: s.lease}); idle != nil; {
		left := until - s.renewer.now()
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

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

// OpenSession opens a session: one heartbeat that keeps any number of locks of
// this process alive. It is open until it is closed or lost. It costs one write,
// and one each heartbeat period. ctx bounds the opening alone.
//
// Its heartbeats are sent in the background, whatever [Options.Heartbeat] says;
// [Options.ProgressTimeout] counts for each lock under it.
//
// The error matches the context's, [ErrClosed], [ErrExpired] if the process was
// paused until the session was over again, or the store's own error if the store
// cannot be used, cannot keep sessions, or gave no answer for StoreTimeout.
func (c *Client) OpenSession(ctx context.Context, options *SessionOptions) (*Session, error) {
	const op, what = "open", "session"
	var o SessionOptions
	if options != nil {
		o = *options
	}
	err := checkSessionData(o.Data)
	if err == nil && ctx.Err() != nil {
		err = done(ctx)
	}
	if err != nil {
		return nil, wrap(op, what, err)
	}
	patience := c.timing.Lease
	if o.StoreTimeout != 0 {
		patience = max(0, o.StoreTimeout)
	}
	p := c.open(append([]byte(nil), o.Data...), patience)
	select {
	case <-p.ended:
	case <-ctx.Done():
		err = done(ctx)
	case <-c.closing:
		err = ErrClosed
	case <-c.voided:
		err = c.refusal()
	}
	if err != nil {
		p.giveUp()
		return nil, wrap(op, what, err)
	}
	if p.err != nil {
		return nil, wrap(op, what, p.err)
	}
	return p.s, nil
}

// opening is one call of OpenSession.
type opening struct {
	entry
	c     *Client
	begun time.Duration
	ended chan struct{} // closed when s or err is there

	mu   sync.Mutex // guards the fields below; taken before a lease's
	m    *protocol.Opener
	sent map[string]time.Duration // when a version was sent, on the holder's clock
	left bool                     // nobody waits for it
	over bool
	s    *Session
	err  error
}

func (c *Client) open(data []byte, patience time.Duration) *opening {
	t := c.timing
	t.Manual, t.Progress = false, 0
	p := &opening{
		c: c, begun: c.clock.Contender(), ended: make(chan struct{}), sent: map[string]time.Duration{},
		m: protocol.NewOpener(t, c.env, driver.Record{
			Owner: c.options.Owner, Host: c.options.Host, Label: c.options.Label, Data: data,
		}, patience),
	}
	p.run = func(time.Duration) { p.do((*protocol.Opener).Step) }
	if c.began(nil) != nil {
		p.left = true
	}
	p.do((*protocol.Opener).Step)
	return p
}

func (p *opening) giveUp() {
	p.mu.Lock()
	p.left = true
	s := p.s
	p.mu.Unlock()
	if s != nil {
		s.l.discard() // it came at the same moment
		return
	}
	p.do(func(m *protocol.Opener, now time.Duration) protocol.Action {
		m.GiveUp()
		return m.Step(now)
	})
}

func (p *opening) do(step func(*protocol.Opener, time.Duration) protocol.Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	c := p.c
	// A session that is open counts on the holder's clock, from before the request
	// that this step may make.
	before := c.clock.Holder()
	act := step(p.m, c.clock.Contender())
	if r := act.Request; r != nil {
		if !r.Kind.Reads() {
			p.sent[r.Next.Version] = before
		}
		c.send(unhurried, r, func(res protocol.Result) {
			p.do(func(m *protocol.Opener, now time.Duration) protocol.Action { return m.Reply(now, res) })
			if res.Err != nil {
				c.events.emit(Event{Kind: EventStoreError, Err: res.Err})
			}
		})
	}
	err, over := p.m.Over()
	if g, ok := p.m.Granted(); ok {
		p.opened(g)
	} else if err != nil && p.err == nil {
		p.err = err
		close(p.ended)
	}
	switch at, ok := p.m.Next(); {
	case over:
		p.over = true
		c.looks.drop(&p.entry)
		c.finished(nil)
	case ok:
		c.looks.set(&p.entry, at)
	default:
		c.looks.drop(&p.entry)
	}
}

// opened begins the session.
func (p *opening) opened(g protocol.Grant) {
	c := p.c
	g.Sent = p.sent[g.Record.Beat]
	t := c.timing
	t.Manual, t.Progress = false, 0
	s := &Session{
		c: c, id: g.Record.Key[len(driver.SessionPrefix):], finished: make(chan struct{}),
		acquires: map[*acquire]struct{}{}, disclaiming: map[claimed]*disclaiming{},
		leases: map[*Lease]struct{}{}, named: map[string]*Lease{}, kept: map[string]time.Duration{},
	}
	s.follow.run = func(time.Duration) { s.followOn() }
	s.ending.run = func(time.Duration) { s.fail() }
	s.inbox.run = func(time.Duration) { s.read() }
	s.l = c.leaseOf(g, AcquireOptions{})
	s.l.mu, s.l.heads, s.l.h = new(sync.Mutex), s, protocol.NewHolder(t, c.env, g)
	open := s.l.begin(context.Background(), true)
	c.events.emit(Event{
		Kind: EventOpened, Session: s.id, Owner: g.Record.Owner,
		Took: c.clock.Contender() - p.begun, Remaining: s.l.Remaining(),
	})
	switch {
	case p.left || !open:
		s.l.discard()
		if p.err = c.refusal(); p.err == nil {
			p.err = ErrClosed // given up
		}
	case s.l.Check() != nil:
		s.l.discard()
		p.err = ErrExpired // paused between the request and now
	default:
		p.s = s
	}
	close(p.ended)
}

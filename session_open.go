// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
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
	t, err := o.Timing.of(c.timing)
	if err != nil {
		return nil, wrap(op, what, err)
	}
	patience := t.Lease
	if o.StoreTimeout != 0 {
		patience = max(0, o.StoreTimeout)
	}
	p := c.open(t, append([]byte(nil), o.Data...), patience)
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
	c     *Client
	t     protocol.Timing
	begun time.Duration
	ended chan struct{} // closed when s or err is there

	mu   sync.Mutex // guards the fields below; taken before a session's
	run  engine.Run
	m    *protocol.Opener
	left bool // nobody waits for it
	over bool
	s    *Session
	err  error
}

func (c *Client) open(t protocol.Timing, data []byte, patience time.Duration) *opening {
	p := &opening{
		c: c, t: t, begun: c.clock.Contender(), ended: make(chan struct{}),
		m: protocol.NewOpener(t, c.env, driver.Record{
			Owner: c.options.Owner, Host: c.options.Host, Label: c.options.Label, Data: data, Bell: c.ringer.own(),
		}, patience),
	}
	p.run = engine.Run{
		Machine: p.m, Mutex: &p.mu, Clock: c.contender, Timers: c.looks, Send: c.sender(t),
		Stepped: p.stepped,
		Replied: func(_ time.Duration, _ *protocol.Call, r protocol.Result) {
			if r.Err != nil {
				c.events.emit(Event{Kind: EventStoreError, Err: r.Err})
			} else if r.Err == nil {
				c.events.answered()
			}
		},
	}
	if c.began(nil) != nil {
		p.left = true
	}
	p.run.Step()
	return p
}

func (p *opening) giveUp() {
	p.mu.Lock()
	p.left = true
	s := p.s
	p.mu.Unlock()
	if s != nil {
		s.discard() // it came at the same moment
		return
	}
	p.run.Do(p.m.GiveUp)
}

func (p *opening) stepped(time.Duration, protocol.Action) {
	if p.over {
		return
	}
	if g, ok := p.m.Granted(); ok {
		p.opened(g)
	} else if err := p.m.Err(); err != nil && p.err == nil {
		p.err = err
		close(p.ended)
	}
	if p.over = p.m.Over(); p.over {
		p.c.finished(nil)
	}
}

// opened begins the session.
func (p *opening) opened(g protocol.Grant) {
	c := p.c
	s := &Session{client: c, closed: make(chan struct{})}
	s.id, s.keeper = driver.SessionID(g.Record.Key), protocol.NewKeeper(p.t, c.env, g)
	s.waiters, s.leases = map[waiter]struct{}{}, map[*protocol.Holder]*keeping{}
	s.c, s.t, s.key, s.since = &c.base, p.t, g.Record.Key, c.clock.Holder()
	s.prepare(context.Background(), s, new(sync.Mutex), nil)
	s.loop.Wake, s.loop.Begin = s.wake, s.drive
	s.ending.Run = func(time.Duration) { s.fail() }
	s.mu.Lock()
	s.begin(s.keeper, s.keeper.Holder)
	open := c.began(&s.keeping) == nil
	s.mu.Unlock()
	s.do(s.m.Step)
	open = s.standing() && open
	c.events.emit(Event{
		Kind: EventOpened, Session: s.id, Owner: g.Record.Owner,
		Took: c.clock.Contender() - p.begun, Remaining: s.Remaining(), Grace: p.t.Grace,
	})
	switch {
	case p.left || !open:
		s.discard()
		if p.err = c.refusal(); p.err == nil {
			p.err = ErrClosed // given up
		}
	case s.Check() != nil:
		s.discard()
		p.err = ErrExpired // paused between the call and now
	default:
		p.s = s
	}
	close(p.ended)
}

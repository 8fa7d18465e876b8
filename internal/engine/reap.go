// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// SessionReaper watches one session that may have ended, and deletes its record when it
// may.
type SessionReaper struct {
	nobody
	c     *Client
	run   run
	m     *protocol.Reaper
	ended chan struct{}
}

// ReapSession begins to watch a session.
func (c *Client) ReapSession(id string) *SessionReaper {
	c.viewMu.Lock()
	defer c.viewMu.Unlock()
	r := c.reaping(id)
	r.run.act(r.m.Step)
	return r
}

// reapLater deletes a session that was closed just now, when it may be. The caller
// holds viewMu.
func (c *Client) reapLater(id string) {
	rec, _ := c.sessions.Of(id).Record()
	c.reaping(id).run.setAt(c.contender() + c.timing.Linger(rec))
}

func (c *Client) reaping(id string) *SessionReaper {
	r := &SessionReaper{c: c, ended: make(chan struct{}), m: protocol.NewReaper(c.timing, c.env, id, c.sessions.Of(id))}
	r.run = c.run(r.m, r, &c.viewMu)
	return r
}

func (r *SessionReaper) stepped(time.Duration, protocol.Action) {
	if r.m.Over() {
		closeOnce(r.ended)
	}
}

// Ended returns what is closed when it is known what Wait returns.
func (r *SessionReaper) Ended() <-chan struct{} { return r.ended }

// Wait returns whether the session's record was deleted, or why not.
func (r *SessionReaper) Wait(ctx context.Context) (bool, error) {
	if err := r.c.wait(ctx, r.ended); err != nil {
		r.run.do(r.m.GiveUp)
		return false, err
	}
	r.c.viewMu.Lock()
	defer r.c.viewMu.Unlock()
	answer, rec, failed := r.m.Answer()
	if answer == protocol.Unusable && rec.Key != "" {
		failed = Unreadable(rec)
	}
	return r.m.Swept(), failed
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"time"

	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// reaping watches one session that may have ended, and deletes its record when it
// may.
type reaping struct {
	c     *base
	run   engine.Run
	m     *protocol.Reaper
	ended chan struct{}
	over  bool
}

// reap begins to watch a session.
func (c *base) reap(id string) *reaping {
	c.seeing.Lock()
	defer c.seeing.Unlock()
	r := c.reaping(id)
	r.run.Act(r.m.Step)
	return r
}

// reapLater deletes a session that was closed just now, when it may be. The caller
// holds the trackers.
func (c *base) reapLater(id string) {
	rec, _ := c.sessions.Of(id).Record()
	c.reaping(id).run.SetAt(c.clock.Contender() + c.timing.Linger(rec))
}

func (c *base) reaping(id string) *reaping {
	r := &reaping{c: c, ended: make(chan struct{}), m: protocol.NewReaper(c.timing, c.env, id, c.sessions.Of(id))}
	r.run = engine.Run{
		Machine: r.m, Mutex: &c.seeing, Clock: c.contender, Timers: c.looks, Send: c.last,
		Stepped: func(time.Duration, protocol.Action) {
			if r.m.Over() && !r.over {
				r.over = true
				close(r.ended)
			}
		},
	}
	return r
}

// wait returns whether the session's record was deleted, or why not.
func (r *reaping) wait(ctx context.Context) (bool, error) {
	select {
	case <-r.ended:
	case <-ctx.Done():
		r.run.Do(r.m.GiveUp)
		return false, done(ctx)
	case <-r.c.closing:
		return false, ErrClosed
	case <-r.c.voided:
		return false, r.c.refusal()
	}
	r.c.seeing.Lock()
	defer r.c.seeing.Unlock()
	answer, rec, failed := r.m.Answer()
	if answer == protocol.Unusable && rec.Key != "" {
		failed = unreadable(rec)
	}
	return r.m.Swept(), failed
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"sync"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/shell"
)

// sweepAtOnce is how many sessions are watched at once.
const sweepAtOnce = 64

// Sweep clears what ended sessions have left in the store. It closes sessions whose
// heartbeat has stood still for their lease, so that their locks are free. It
// deletes closed sessions, whoever closed them, once it has seen them closed for
// longer than any write of theirs can be late. It watches each session for itself,
// which takes up to five times the longer of its lease and this client's. It returns
// how many records it has deleted. Sessions that show life are left alone.
//
// It reads the records of all sessions, and is for now and then: a client deletes
// by itself what it has closed, if it lives for so long. The error is that of the
// store, or matches the context's; swept still counts what was deleted before it.
func (c *Client) Sweep(ctx context.Context) (swept int, err error) {
	var ids []string
	for st, err := range c.Sessions(ctx) {
		if err != nil {
			return 0, err
		}
		ids = append(ids, st.ID)
	}
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		places = make(chan struct{}, sweepAtOnce)
	)
	for _, id := range ids {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-places }()
			gone, failed := c.reap(id).wait(ctx)
			mu.Lock()
			defer mu.Unlock()
			if gone {
				swept++
			}
			if failed != nil && err == nil {
				err = wrap("sweep", "session "+id, failed)
			}
		})
	}
	all.Wait()
	if err == nil && ctx.Err() != nil {
		err = wrap("sweep", "sessions", done(ctx))
	}
	return swept, err
}

// reaping watches one session that may have ended, and deletes its record when it
// may.
type reaping struct {
	c     *Client
	run   shell.Run
	m     *protocol.Reaper
	ended chan struct{}
	over  bool
}

// reap begins to watch a session.
func (c *Client) reap(id string) *reaping {
	c.seeing.Lock()
	defer c.seeing.Unlock()
	r := c.reaping(id)
	r.run.Act(r.m.Step)
	return r
}

// reapLater deletes a session that was closed just now, when it may be. The caller
// holds the trackers.
func (c *Client) reapLater(id string) {
	rec, _ := c.seen.of(id).Record()
	c.reaping(id).run.SetAt(c.clock.Contender() + c.timing.Linger(rec))
}

func (c *Client) reaping(id string) *reaping {
	r := &reaping{c: c, ended: make(chan struct{}), m: protocol.NewReaper(c.timing, c.env, id, c.seen.of(id))}
	r.run = shell.Run{
		Machine: r.m, Mutex: &c.seeing, Clock: c.contender, Timers: c.looks, Send: c.unhurried,
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// step is the longest sleep of a goroutine that waits for an instant: Go's timers stand still in a suspend,
// and the clock is read this soon after it.
const step = time.Second

// renewer sends the heartbeats of a lock, or of a session, and ends its work at the deadline. All methods may
// be called concurrently, but for start.
type renewer struct {
	now   func() time.Duration
	to    *caller
	limit time.Duration // of one try of a call
	// beat makes the call of a heartbeat once.
	beat func(context.Context, *heartbeat) (confirmation, *problem)
	// confirmed gets what a confirmed heartbeat says, and when. mu is held.
	confirmed func(confirmation, time.Duration)
	// over is called once with the reason when the right has ended without a release.
	over func(error)
	// tick is called at least each second while the right goes on. It may be nil.
	tick func()

	ctx  context.Context // of heartbeats
	stop context.CancelFunc
	runs sync.WaitGroup
	once sync.Once

	mu   sync.Mutex // nothing waits under it
	term *term
	last string // what the last heartbeat was answered, if that was not confirmed
}

func (c *Client) renewer(t *term) *renewer {
	r := &renewer{now: c.now, to: c.caller(), limit: max(t.lease/10, minLimit), term: t}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// start begins to hold what was granted to a call that was sent after the instant sent: at once if the grant
// counts, else when the first heartbeat is confirmed. Heartbeats go on in the background then. It returns
// false if the grant was lost before, or ctx has ended.
func (r *renewer) start(ctx context.Context, sent time.Duration) bool {
	r.mu.Lock()
	r.term.granted(sent, r.now())
	r.mu.Unlock()
	var pauses backoff
	for ctx.Err() == nil && r.state() == unconfirmed {
		h := r.heartbeat()
		if h == nil || r.exchange(ctx, h) {
			break
		}
		sleep(ctx, pauses.next())
	}
	if ctx.Err() != nil || r.state() != held {
		return false
	}
	r.runs.Go(r.keep)
	r.runs.Go(r.watch)
	return true
}

// end ends the heartbeats, and returns when no call of one is under way.
func (r *renewer) end() {
	r.stop()
	r.runs.Wait()
}

func (r *renewer) state() state {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term.state(r.now())
}

func (r *renewer) remaining() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term.remaining(r.now())
}

// check returns why the holder may not act, nil if it may.
func (r *renewer) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why(r.term.state(r.now()))
}

// why says in words what a term is. r.mu is held.
func (r *renewer) why(s state) error {
	switch s {
	case held:
		return nil
	case released:
		return ErrReleased
	case lost:
		if r.term.refusedBy != "" {
			return fmt.Errorf("%w: %q is there now", ErrSuperseded, r.term.refusedBy)
		}
		return ErrSuperseded
	case unconfirmed:
		return fmt.Errorf("%w: no heartbeat is confirmed yet", ErrLost)
	}
	if r.last != "" {
		return fmt.Errorf("%w: no heartbeat was confirmed in time; last answer: %s", ErrExpired, r.last)
	}
	return fmt.Errorf("%w: no heartbeat was confirmed in time", ErrExpired)
}

// release begins the release: from now on the holder must not act.
func (r *renewer) release() *release {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term.release(r.now())
}

// heartbeat returns the heartbeat to send now, nil after the last one.
func (r *renewer) heartbeat() *heartbeat {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term.send(r.now())
}

// exchange sends a heartbeat once, and reports whether it was answered.
func (r *renewer) exchange(ctx context.Context, h *heartbeat) bool {
	c, p := r.beat(ctx, h)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch now := r.now(); {
	case p == nil:
		r.last = ""
		if r.term.confirm(h, c.renewal, now) {
			r.confirmed(c, now)
		}
	case p.lost():
		r.term.refuse(h, p.held.Owner, now)
	default:
		r.last = p.String()
	}
	return p == nil || p.lost()
}

// keep sends heartbeats as they are due, until the last one.
func (r *renewer) keep() {
	var pauses backoff
	for r.ctx.Err() == nil {
		r.mu.Lock()
		wait, goes := r.term.due(r.now())
		r.mu.Unlock()
		if !goes {
			return
		}
		if wait > 0 {
			sleep(r.ctx, min(wait, step))
			continue
		}
		h := r.heartbeat()
		switch {
		case h == nil:
			return
		case r.exchange(r.ctx, h):
			pauses = backoff{}
			r.ends()
		default:
			sleep(r.ctx, pauses.next())
		}
	}
}

// watch ends the work at the deadline. It needs no network.
func (r *renewer) watch() {
	for r.ctx.Err() == nil && !r.ends() {
		if r.tick != nil {
			r.tick()
		}
		sleep(r.ctx, min(max(r.remaining(), time.Millisecond), step))
	}
}

// ends reports whether the right has ended, and tells so once, unless a release has ended it.
func (r *renewer) ends() bool {
	r.mu.Lock()
	s := r.term.state(r.now())
	why := r.why(s)
	r.mu.Unlock()
	if s == expired || s == lost {
		r.once.Do(func() { r.over(why) })
	}
	return s > held
}

// carryOut makes the calls of a release, and returns what it came to.
func (r *renewer) carryOut(of *release, path string, body fields) error {
	var pauses backoff
	var last *problem
	for beat := of.call(r.now()); beat != ""; beat = of.call(r.now()) {
		body["after"] = beat
		_, p := call(context.Background(), r.to, r.limit, path, body, readDone)
		switch {
		case p == nil:
			of.applied()
		case p.lost():
			of.refused()
		default:
			of.unknown()
			last = p
			sleep(context.Background(), pauses.next())
		}
	}
	switch {
	case of.is == wasLost:
		return fmt.Errorf("%w before it was released", ErrSuperseded)
	case of.is == maybeRelease && last != nil:
		return fmt.Errorf("%w: it is released, or expires by itself; last answer: %v", ErrUncertain, last)
	case of.is == maybeRelease:
		return ErrUncertain
	}
	return nil
}

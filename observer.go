// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

func (k *tracker) observe() *observer {
	o := &observer{changed: make(chan struct{}, 1), begun: k.c.clock.Contender()}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.follow()
	k.observers[o] = struct{}{}
	k.hurry()
	k.awaited.Store(true)
	k.c.sessions.Observes(k.seer.Observer, &k.seer.run)
	k.seer.Want(len(k.queue) == 0)
	k.hint() // the first read is a strong one
	return o
}

// follow makes what looks for observers. Most locks never have one.
func (k *tracker) follow() {
	if k.seer != nil {
		return
	}
	c := k.c
	k.seer = &seer{Observer: protocol.NewObserver(c.timing, c.env, k.key, k.sight)}
	k.seer.run = engine.Run{
		Machine: k.seer.Observer, Mutex: k.mu, Clock: c.contender, Timers: c.looks, Send: c.last,
		Stepped: k.looked, Wake: c.sessions.Wake,
	}
	k.observers = map[*observer]struct{}{}
}

func (k *tracker) unobserve(o *observer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.observers, o)
	k.hurry()
	if len(k.observers) == 0 {
		k.seer.run.Act(k.seer.GiveUp)
		k.c.sessions.Rests(k.seer.Observer)
	}
	k.rest()
}

// observed returns the latest state, and an error that was not taken yet.
func (k *tracker) observed(o *observer) (sighting, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := o.err
	o.err = nil
	return k.sighting(), err
}

// wait waits until the state may have changed: by a read, or because no sign of
// life came for a lease.
func (o *observer) wait(ctx context.Context, c *base, s sighting) error {
	// If the session of a lock was not read yet, nobody can tell when the lock is
	// free. The read that is under way will.
	var dead <-chan time.Time
	if (s.alive || s.rec.State == driver.Reserved) && s.freeIn > 0 {
		timer := time.NewTimer(s.freeIn)
		defer timer.Stop()
		dead = timer.C
	}
	select {
	case <-o.changed:
		return nil
	case <-dead:
		return nil
	case <-ctx.Done():
		return done(ctx)
	case <-c.closing:
		return ErrClosed
	case <-c.voided:
		return c.refusal()
	}
}

// StandBack lets others take the lock first, after a step-down. A contender on
// another machine polls only now and then, and needs the time to see that the lock
// is free. StandBack returns when another owner has the lock, or when the lock is
// reserved for this client; otherwise after twice the time of a poll and a write,
// 5 s by default. [Election.Run] does it by itself. The error matches the
// context's, or [ErrClosed].
func (c *Client) StandBack(ctx context.Context, name string) error {
	return c.standBack(ctx, name, c.timing)
}

func (c *Client) standBack(ctx context.Context, name string, t protocol.Timing) error {
	k, err := c.tracker(name)
	if err != nil {
		return wrap("stand back", name, err)
	}
	defer k.leave()
	o := k.observe()
	defer k.unobserve(o)
	bound, stop := context.WithTimeoutCause(ctx, t.Reservation(), errWaited)
	defer stop()
	for {
		s, _ := k.observed(o) // a store that fails is asked again
		if mine := s.rec.Owner == c.options.Owner; s.known && s.looked >= o.begun && s.found &&
			(s.rec.State == driver.Held && !mine || protocol.KeptFor(s.rec, c.options.Owner, c.options.Label)) {
			return nil
		}
		switch err := o.wait(bound, k.c, s); {
		case errors.Is(err, errWaited):
			return nil
		case err != nil:
			return wrap("stand back", name, err)
		}
	}
}

var errWaited = errors.New("waited long enough")

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Ask sends a request to the holder of a lock, and waits until it is honoured.
func (c *Client) Ask(ctx context.Context, key string, q driver.Request) error {
	q.By = cmp.Or(q.By, c.options.Owner)
	o, err := c.Observe(key) // so that polls go on, and a watch reports the end
	if err != nil {
		return err
	}
	defer o.Close()
	return o.k.ask(q).wait(ctx, o)
}

// asking is one call that sends a request to a holder, or releases a crashed holder's lock.
type asking struct {
	nobody
	c     *Client
	k     *tracker // of the lock; nil for a crashed holder's, whose end no caller waits for
	run   run
	m     *protocol.Requester
	ended chan struct{} // closed when the machine has its answer
}

func (k *tracker) ask(q driver.Request) *asking {
	c := k.c
	a := &asking{c: c, k: k, m: protocol.NewRequester(c.timing, c.env, k.key, q, c.timing.Lease, k.view)}
	return a.begin()
}

func (a *asking) begin() *asking {
	a.ended = make(chan struct{})
	a.run = a.c.run(a.m, a, &a.c.viewMu)
	if k := a.k; k != nil {
		a.c.viewMu.Lock()
		if k.askings == nil {
			k.askings = map[*asking]struct{}{}
		}
		k.askings[a] = struct{}{}
		a.c.viewMu.Unlock()
	}
	a.run.step()
	return a
}

func (a *asking) stepped(time.Duration, protocol.Action) {
	if answer, _, _ := a.m.Answer(); answer != protocol.NoAnswer {
		closeOnce(a.ended)
		if a.k != nil {
			delete(a.k.askings, a)
		}
	}
	if a.k != nil {
		a.k.notify()
	}
}

func (a *asking) replied(_ time.Duration, call *protocol.Call, r protocol.Result) {
	if call.Kind == protocol.Request && r.Outcome == protocol.Applied {
		a.c.notifier.asks(call.Key, r.Record.Notify)
	}
	a.c.events.storeFailed(a.m.Key(), 0, r.Err)
	if r.Err == nil {
		a.c.events.answered()
	}
}

// wait waits for the answer, and then until the request is honoured. The observer is nil if
// there is no holder to ask.
func (a *asking) wait(ctx context.Context, o *Observer) error {
	c := a.c
	if err := c.wait(ctx, a.ended); err != nil {
		a.run.do(a.m.GiveUp)
		return err
	}
	c.viewMu.Lock()
	answer, rec, err := a.m.Answer()
	token, before := a.m.Token(), a.m.Before()
	c.viewMu.Unlock()
	switch answer {
	case protocol.Delivered:
		return a.honoured(ctx, o, token)
	case protocol.Done:
		if before != nil && c.options.HistoryLimit > 0 {
			// The revoked holder may have crashed before it wrote that entry.
			c.putHistory(ctx, a.m.Key(), []driver.Term{*before})
		}
		c.Released(a.m.Key())
		return nil
	case protocol.NoHolder:
		if rec.State == driver.Reserved && o != nil {
			s, _, _ := o.Latest()
			return fmt.Errorf("%w: %w", ErrNotHeld, c.heldBy(rec, s.FreeIn))
		}
		return ErrNotHeld
	case protocol.HolderChanged:
		return fmt.Errorf("%w: %q has the lock now, under token %d", ErrNotHeld, rec.Owner, rec.Token)
	case protocol.OtherPending:
		return c.options.API.Requested(&rec.Requests[0])
	case protocol.Foreign:
		return fmt.Errorf("%w: %q", ErrForeign, rec.Owner)
	case protocol.UnderSession:
		return fmt.Errorf("%w: %q holds the lock under a session, and ending the session would free all its locks: ask the holder to step down", ErrAlive, rec.Owner)
	case protocol.Alive:
		return fmt.Errorf("%w: %q has shown life under token %d", ErrAlive, rec.Owner, rec.Token)
	case protocol.Self:
		if a.m.Asked().ToLabel != "" {
			return fmt.Errorf("%q already holds the lock, under token %d, and has label %q", rec.Owner, rec.Token, rec.Label)
		}
		return fmt.Errorf("%q already holds the lock, under token %d", rec.Owner, rec.Token)
	case protocol.Unusable:
		if rec.Key != "" {
			return Unreadable(rec)
		}
		return err
	default:
		return ErrClosed
	}
}

// honoured waits until the term that was asked to end has ended.
func (a *asking) honoured(ctx context.Context, o *Observer, token uint64) error {
	for {
		s, _, _ := o.Latest() // after a store error, the observer reads again
		same := s.Found && s.Record.Token == token
		// A holder that was revoked meanwhile may be at work until its lease has certainly
		// expired.
		revoked := same && protocol.ReservedForNobody(s.Record) && s.FreeIn > 0
		switch {
		case revoked:
		case s.known && (!same || s.Record.State != driver.Held || s.closed):
			return nil
		case s.known && !s.Alive:
			return fmt.Errorf("%w: %q has shown no sign of life for %v", ErrUnanswered, s.Record.Owner, s.Since.Round(time.Millisecond))
		}
		if err := o.Wait(ctx, s); err != nil {
			return fmt.Errorf("%w: %w", ErrUnanswered, err)
		}
	}
}

// ReleaseCrashed releases the lock of a lease whose holder has certainly ended. after is how
// long the lock stays held; within bounds the calls to the store.
func (c *Client) ReleaseCrashed(ctx context.Context, key, id string, after, within time.Duration) error {
	if err := c.Usable(); err != nil {
		return err
	}
	now := c.clock()
	crash := protocol.ProvenCrash{Key: key, ID: id, From: now + max(after, 0), Until: now + within}
	a := &asking{c: c, m: protocol.NewCrashReleaser(c.timing, c.env, crash)}
	return a.begin().wait(ctx, nil)
}

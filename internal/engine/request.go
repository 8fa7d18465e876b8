// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Ask asks something of the holder of a lock, and waits until that is done.
func (c *Client) Ask(ctx context.Context, key string, q driver.Request) error {
	q.By = cmp.Or(q.By, c.options.Owner)
	o, err := c.Observe(key) // so that polls go on, and a watch tells of the end
	if err != nil {
		return err
	}
	defer o.Close()
	return o.k.ask(q).wait(ctx, o)
}

// asking is one call that asks something of a holder.
type asking struct {
	nobody
	k     *tracker
	run   run
	m     *protocol.Asker
	ended chan struct{} // closed when the machine has its answer
}

func (k *tracker) ask(q driver.Request) *asking {
	c := k.c
	a := &asking{k: k, ended: make(chan struct{}), m: protocol.NewAsker(c.timing, c.env, k.key, q, c.timing.Lease, k.sight)}
	a.run = c.run(a.m, a, &c.viewMu)
	a.run.step()
	return a
}

func (a *asking) stepped(time.Duration, protocol.Action) {
	a.k.notify()
	if answer, _, _ := a.m.Answer(); answer != protocol.NoAnswer {
		closeOnce(a.ended)
	}
}

func (a *asking) replied(_ time.Duration, call *protocol.Call, r protocol.Result) {
	c := a.k.c
	if call.Kind == protocol.Ask && r.Outcome == protocol.Applied {
		c.notifier.asks(call.Key, r.Record.Bell)
	}
	c.events.storeFailed(a.k.key, 0, r.Err)
	if r.Err == nil {
		c.events.answered()
	}
}

// wait waits for the answer, and then for what was asked.
func (a *asking) wait(ctx context.Context, o *Observer) error {
	c := a.k.c
	if err := c.wait(ctx, a.ended); err != nil {
		a.run.do(a.m.GiveUp)
		return err
	}
	a.k.c.viewMu.Lock()
	answer, rec, err := a.m.Answer()
	token, before := a.m.Token(), a.m.Before()
	a.k.c.viewMu.Unlock()
	switch answer {
	case protocol.Laid:
		return a.honoured(ctx, o, token)
	case protocol.Done:
		if before != nil && c.options.HistoryLimit > 0 {
			// The revoked holder may have crashed before it had written that.
			c.putHistory(ctx, a.k.key, []driver.Tenure{*before})
		}
		c.Released(a.k.key)
		return nil
	case protocol.Nobody:
		if rec.State == driver.Reserved {
			s, _, _ := o.Latest()
			return fmt.Errorf("%w: %w", ErrNotHeld, c.heldBy(rec, s.FreeIn))
		}
		return ErrNotHeld
	case protocol.Changed:
		return fmt.Errorf("%w: %q has it now, under token %d", ErrNotHeld, rec.Owner, rec.Token)
	case protocol.Pending:
		return c.options.API.Requested(&rec.Requests[0])
	case protocol.Foreign:
		return fmt.Errorf("%w: %q", ErrForeign, rec.Owner)
	case protocol.Sessioned:
		return fmt.Errorf("%w: %q holds it under a session, and to end that would free all locks under it: ask it to step down", ErrAlive, rec.Owner)
	case protocol.Alive:
		return fmt.Errorf("%w: %q has shown life under token %d", ErrAlive, rec.Owner, rec.Token)
	case protocol.Self:
		if a.m.Asked().ToLabel != "" {
			return fmt.Errorf("%q holds it already, under token %d, and has label %q", rec.Owner, rec.Token, rec.Label)
		}
		return fmt.Errorf("%q holds it already, under token %d", rec.Owner, rec.Token)
	case protocol.Unusable:
		if rec.Key != "" {
			return Unreadable(rec)
		}
		return err
	default:
		return ErrClosed
	}
}

// honoured waits until the tenure that was asked has ended.
func (a *asking) honoured(ctx context.Context, o *Observer, token uint64) error {
	for {
		s, _, _ := o.Latest() // a store that fails is asked again
		same := s.Found && s.Record.Token == token
		// One that was revoked meanwhile is at work until its lease is over for certain.
		revoked := same && protocol.KeptForNobody(s.Record) && s.FreeIn > 0
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

// ReleaseCrashed releases the lock of a lease whose holder has certainly ended. The lock stays
// held for after, and the store is asked for within.
func (c *Client) ReleaseCrashed(ctx context.Context, key, id string, after, within time.Duration) error {
	if err := c.Usable(); err != nil {
		return err
	}
	now := c.contender()
	w := &crashRelease{c: c, ended: make(chan struct{})}
	w.m = protocol.NewUndertaker(c.timing, c.env, protocol.Death{Key: key, ID: id, From: now + max(after, 0), Until: now + within})
	w.run = c.run(w.m, w, &w.mu)
	w.run.step()
	if err := c.wait(ctx, w.ended); err != nil {
		w.run.do(w.m.GiveUp)
		return err
	}
	w.mu.Lock()
	answer, rec, err := w.m.Answer()
	w.mu.Unlock()
	switch answer {
	case protocol.Done:
		c.Released(key)
		return nil
	case protocol.Nobody:
		return ErrNotHeld
	case protocol.Changed:
		return fmt.Errorf("%w: %q has it now, under token %d", ErrNotHeld, rec.Owner, rec.Token)
	}
	if rec.Key != "" {
		return Unreadable(rec)
	}
	if errors.Is(err, protocol.ErrNotProved) {
		return fmt.Errorf("not settled within %v: the lock runs out by itself", within)
	}
	return err
}

// crashRelease is one call that frees what a dead holder has left.
type crashRelease struct {
	nobody
	c     *Client
	mu    sync.Mutex
	run   run
	m     *protocol.Undertaker
	ended chan struct{} // closed when the machine has its answer
}

func (w *crashRelease) stepped(time.Duration, protocol.Action) {
	if answer, _, _ := w.m.Answer(); answer != protocol.NoAnswer {
		closeOnce(w.ended)
	}
}

func (w *crashRelease) replied(_ time.Duration, call *protocol.Call, r protocol.Result) {
	w.c.events.storeFailed(call.Key, 0, r.Err)
}

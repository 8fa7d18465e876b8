// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// A store is replaced when others find another one under its name: its file was
// deleted, or another one was put in its place. What this client reads and writes
// then excludes nobody any more, and a successor may have begun already. So all that
// rests on the store ends at once: leases and sessions as superseded, waits with the
// store's error. Nothing more is sent to the store, a release included: no other
// process would see it.

var errNotified = errors.New("others find another store under the name of this one: restart every program that uses it")

// notice ends the client's leases when the store says without a call that it was
// replaced. It is one goroutine of the client, which ends with it.
func (c *Client) notice(store driver.Store) {
	n, ok := store.(driver.ReplacedNotifier)
	if !ok {
		return
	}
	replaced := n.Replaced()
	if replaced == nil {
		return
	}
	c.calls.Beside(func() {
		select {
		case <-replaced:
			c.Store.Replace(driver.Replaced(errNotified))
		case <-c.gone:
		}
	})
}

// endAll ends all that rests on the store.
func (c *Client) endAll(err error) {
	c.mu.Lock()
	held, trackers := c.everything()
	c.mu.Unlock()

	close(c.voided)
	for _, k := range held {
		k.void() // Check fails from here on, whatever else is to be done
	}
	for _, k := range trackers {
		k.fails(err)
	}
	for _, k := range held {
		k.replaced(err)
	}
}

// everything returns what is held, sessions in front of leases, and the trackers: the locks
// under a session follow it. The caller holds the client.
func (c *Client) everything() ([]*heldRecord, []*tracker) {
	var sessions, leases []*heldRecord
	for k := range c.held {
		if k.lease == nil {
			sessions = append(sessions, k)
		} else {
			leases = append(leases, k)
		}
	}
	return append(sessions, leases...), slices.Collect(maps.Values(c.trackers))
}

// Close ends the client: waiting acquires and contexts at once, all else when it is over, or
// when ctx ends. It returns an error if leases were left behind, and ErrClosed if the client
// was closed before.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.closed = true
	close(c.closing)
	held, trackers := c.everything()
	c.checkDrained()
	c.mu.Unlock()

	for _, k := range trackers {
		k.fails(ErrClosed)
	}
	for _, k := range held { // with a session its locks are freed by one write
		k.Stop(ErrClosed)
	}

	w := c.closeWait(ctx, held)
	defer func() { w.stop() }()
	drained := w.until(c.drained)
	w.within(c.timing.Lease/2, c.written) // what was not written at once is tried again each tenth of a lease
	c.end()
	ended := make(chan struct{})
	go func() {
		c.calls.Wait()
		close(ended)
	}()
	all := w.until(ended) && drained
	// OnEvent and the logger are the caller's, and may hang where nothing else does.
	w.bound()
	all = w.until(c.events.done) && all

	left, within := 0, time.Duration(0)
	for _, k := range held {
		if !k.freed() {
			left++
			within = max(within, k.t.Lease)
		}
	}
	var err error
	if !all {
		err = Done(w.ctx)
	}
	switch {
	case left > 0:
		return errors.Join(fmt.Errorf("tenure: close: leases not released: %d; their records run out within %v", left, within), err)
	case err != nil:
		return fmt.Errorf("tenure: close: %w", err)
	}
	return nil
}

var errCloseTimeout = errors.New("the stop timeout and a lease duration have passed")

var errEventTimeout = errors.New("OnEvent or the logger has not returned, although the stop timeout and a lease duration have passed")

// closeWait bounds the waiting of a Close by the context of its caller. A context
// that was done before, or that belongs to a lease that the closing has ended, does
// not count.
type closeWait struct {
	ctx  context.Context
	stop context.CancelFunc
	most time.Duration
}

func (c *Client) closeWait(ctx context.Context, all []*heldRecord) *closeWait {
	w := &closeWait{ctx: ctx, stop: func() {}, most: c.timing.StopTimeout + c.timing.Lease}
	for _, k := range all {
		t := k.t
		w.most = max(w.most, t.StopTimeout+t.Lease)
	}
	if ctx.Err() != nil {
		w.ignore()
	}
	return w
}

// ignore has the waiting end by itself instead of with the context.
func (w *closeWait) ignore() {
	w.ctx, w.stop = context.WithTimeoutCause(context.WithoutCancel(w.ctx), w.most, errCloseTimeout)
}

// bound has the waiting end by itself too, even under a context that never ends.
func (w *closeWait) bound() {
	ctx, stop := context.WithTimeoutCause(w.ctx, w.most, errEventTimeout)
	outer := w.stop
	w.ctx, w.stop = ctx, func() { stop(); outer() }
}

// within waits for what a store that gives no answer must not hold up for longer.
func (w *closeWait) within(most time.Duration, ended <-chan struct{}) {
	if errors.Is(context.Cause(w.ctx), ErrClosed) {
		w.ignore()
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	case <-w.ctx.Done():
	}
}

// until waits, and returns false if the waiting has ended before.
func (w *closeWait) until(ended <-chan struct{}) bool {
	for {
		select {
		case <-ended:
			return true
		case <-w.ctx.Done():
		}
		select {
		case <-ended:
			return true
		default:
		}
		if !errors.Is(context.Cause(w.ctx), ErrClosed) {
			return false
		}
		w.ignore()
	}
}

// end ends all that runs by itself. Nothing is sent any more.
func (c *Client) end() {
	close(c.gone)
	c.notifier.close()
	c.calls.Close()
	c.looks.Close()
	c.beats.Close()
	c.deadlines.Close()
	c.events.close()
}

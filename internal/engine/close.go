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

// A store is replaced when other processes find another store under its name: its file
// was deleted, or exchanged. Then this client's records exclude no other process any
// more, and a successor may have begun already. So everything that depends on the store
// ends at once: leases and sessions as superseded, waits with the store's error. The
// client sends nothing more to the store, not even a release: no other process would
// read it.

var errNotified = errors.New("the store was replaced (its file was deleted or exchanged): restart every program that uses it")

// notice ends the client's leases when the store reports, without a call, that it was
// replaced. It runs in a goroutine that ends with the client.
func (c *Client) notice(store driver.Store) {
	n, ok := store.(driver.ReplacedNotifier)
	if !ok {
		return
	}
	replaced := n.Replaced()
	if replaced == nil {
		return
	}
	c.calls.Go(func() {
		select {
		case <-replaced:
			c.Store.Replace(driver.Replaced(errNotified))
		case <-c.gone:
		}
	})
}

// endAll ends everything that depends on the store.
func (c *Client) endAll(err error) {
	c.mu.Lock()
	held, trackers := c.everything()
	c.mu.Unlock()

	close(c.voided)
	for _, k := range held {
		k.void() // Check fails from here on, before anything else is done
	}
	for _, k := range trackers {
		k.fails(err)
	}
	for _, k := range held {
		k.replaced(err)
	}
}

// everything returns the held records, sessions before leases because locks follow their
// session, and the trackers. The caller holds c.mu.
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

// Close ends the client: waiting acquires and contexts at once, everything else when it is
// done, or when ctx ends. It returns an error if leases were left behind, and ErrClosed if
// the client was closed before.
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
	for _, k := range held { // one write closes a session and frees its locks
		k.Stop(ErrClosed)
	}

	w := c.closeWait(ctx, held)
	defer func() { w.stop() }()
	drained := w.until(c.drained)
	w.within(c.timing.Lease/2, c.written) // a failed history write is retried every tenth of a lease
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
		return errors.Join(fmt.Errorf("tenure: close: leases not released: %d; their records expire within %v", left, within), err)
	case err != nil:
		return fmt.Errorf("tenure: close: %w", err)
	}
	return nil
}

var errCloseTimeout = errors.New("not done within the stop timeout and a lease duration")

var errEventTimeout = errors.New("OnEvent or the logger did not return within the stop timeout and a lease duration")

// closeWait bounds the waiting of a Close by its caller's context. A context that was
// done before, or that belongs to a lease that Close has ended, does not count.
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

// ignore bounds the waiting by a time of its own instead of the context.
func (w *closeWait) ignore() {
	w.ctx, w.stop = context.WithTimeoutCause(context.WithoutCancel(w.ctx), w.most, errCloseTimeout)
}

// bound bounds the waiting by a time of its own too, in case the context never ends.
func (w *closeWait) bound() {
	ctx, stop := context.WithTimeoutCause(w.ctx, w.most, errEventTimeout)
	outer := w.stop
	w.ctx, w.stop = ctx, func() { stop(); outer() }
}

// within waits for ended, for at most that long: a store without an answer must not
// delay Close further.
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

// until waits for ended, and returns false if w.ctx ends first.
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

// end stops the client's timers and goroutines. No call is sent any more.
func (c *Client) end() {
	close(c.gone)
	c.notifier.close()
	c.calls.Close()
	c.readTimers.Close()
	c.beats.Close()
	c.deadlines.Close()
	c.events.close()
}

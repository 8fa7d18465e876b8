// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"container/list"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
)

// Client is what all locks of one process share: the store, the heartbeats,
// the timers. A process needs one for each store. All methods may be called
// concurrently.
type Client struct {
	base
	trackers

	offers offers // of locks that were granted for holders elsewhere
	lately lately // what was seen of theirs
}

// New returns a client that keeps its locks in the store. The store stays the
// caller's to close, after [Client.Close]. Options may be nil; an error names
// each rule that they break, with its numbers.
func New(store driver.Store, options *Options) (*Client, error) {
	o := options.withDefaults()
	err := o.validate()
	if store == nil {
		err = errors.Join(errors.New("store is nil: open one, such as memstore.New()"), err)
	}
	if err != nil {
		return nil, refused("tenure: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	c := &Client{}
	c.begin(o)
	c.trackers = trackers{b: &c.base, all: map[string]*tracker{}, idle: list.New()}
	c.released = c.hint
	c.store = engine.NewCheckedStore(store, c.endAll)
	c.watcher, _ = store.(driver.Watcher)
	if r, ok := store.(driver.RefusalCharger); ok {
		c.charges = r.ChargesRefusals()
	}
	c.notice(store)
	return c, nil
}

// Options returns the options of the client, with the defaults filled in for what
// was left zero, except for the callbacks and the clock.
func (c *Client) Options() Options { return c.options }

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
			c.store.Replace(driver.Replaced(errNotified))
		case <-c.gone:
		}
	})
}

// endAll ends all that rests on the store.
func (c *Client) endAll(err error) {
	c.mu.Lock()
	kept, trackers := c.inOrder(), slices.Collect(maps.Values(c.all))
	c.mu.Unlock()

	close(c.voided)
	for _, k := range kept {
		k.void() // Check fails from here on, whatever else is to be done
	}
	for _, k := range trackers {
		k.fails(err)
	}
	for _, k := range kept {
		k.replaced(err)
	}
}

// Close ends the client. Waiting acquires fail at once with [ErrClosed], and the
// contexts of all leases are cancelled with it. The heartbeats of a lease that is
// not released yet go on until it is, for [Options.StopTimeout] at most. Close
// returns when that is done and everything of the client has ended, or when ctx
// ends. A tenure that the history lacks yet is written for half a lease more. Close
// returns an error if leases were left behind: their records run out by themselves.
// Closing again returns [ErrClosed]. Do not call it from OnEvent: Close waits for
// OnEvent, and for the logger, to return. When all else has ended it waits for them
// no longer than StopTimeout and a lease duration, and returns an error if they have
// not returned by then.
//
// A context that is already done at the call, or that Close itself ends, is
// ignored, so that a deferred Close works under the context of a signal. Close then
// takes no longer than StopTimeout and a lease duration.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.closed = true
	close(c.closing)
	kept, trackers := c.inOrder(), slices.Collect(maps.Values(c.all))
	c.checkDrained()
	c.mu.Unlock()

	for _, k := range trackers {
		k.fails(ErrClosed)
	}
	for _, k := range kept { // with a session its locks are freed by one write
		k.stop(ErrClosed)
	}

	w := c.closeWait(ctx, kept)
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
	for _, k := range kept {
		if !k.freed() {
			left++
			within = max(within, k.t.Lease)
		}
	}
	var err error
	if !all {
		err = done(w.ctx)
	}
	switch {
	case left > 0:
		return errors.Join(refused("tenure: close: leases not released: %d; their records run out within %v", left, within), err)
	case err != nil:
		return refused("tenure: close: %w", err)
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

func (c *Client) closeWait(ctx context.Context, all []*keeping) *closeWait {
	w := &closeWait{ctx: ctx, stop: func() {}, most: c.options.StopTimeout + c.options.LeaseDuration}
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

// Elapsed returns how much time has passed for certain on the client's clock,
// since an origin of its own: [Clock].Contender. It counts suspends, and no step
// of the wall clock. The difference of two readings is never more than the time
// between the two calls, but for the rate error of the machine's clock
// ([Options.MaxClockDrift]). Readings of two clients cannot be compared.
//
// Use it for what must not happen too early: to wait until something has stood for
// long enough, or to add up how long something has been going on. For what must not
// happen too late there is [Lease.Check]. Elapsed may be called concurrently, and
// after Close.
func (c *Client) Elapsed() time.Duration { return c.clock.Contender() }

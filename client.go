// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/shell"
)

// Client is what all locks of one process share: the store, the heartbeats,
// the timers. A process needs one for each store. All methods may be called
// concurrently.
type Client struct {
	store   *witness
	watcher driver.Watcher // nil if the store cannot watch
	options Options
	timing  protocol.Timing
	env     protocol.Env
	clock   Clock

	events    *events
	calls     *shell.Calls
	holder    func() time.Duration // the clock by which leases count
	contender func() time.Duration // and that of all others
	unhurried func(*protocol.Call, func(protocol.Result))
	deadlines *shell.Timers // of leases, on the holder's clock: cancels contexts
	beats     *shell.Timers // of leases, on the holder's clock: steps their machines
	looks     *shell.Timers // of trackers, on the contender's clock

	closing chan struct{} // closed when Close begins
	voided  chan struct{} // closed when the store was replaced
	gone    chan struct{} // closed when nothing is sent any more

	seeing sync.Mutex // guards the trackers, and what was seen; taken first
	seen   sessionSights
	recall *recall // of what was seen, and forgotten

	mu       sync.Mutex // guards the fields below; taken last
	closed   bool
	kept     map[*keeping]struct{} // leases and sessions
	own      map[string]*Lease     // the latest of each lock
	trackers map[string]*tracker
	idle     *list.List // trackers that nobody waits in, oldest first
	active   int        // leases and acquires that Close waits for
	drained  chan struct{}
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
	c := &Client{
		options: o, timing: o.timing(), clock: o.Clock,
		env:     protocol.Env{Fresh: rand.Text, Random: random},
		events:  newEvents(o.OnEvent, o.Logger),
		calls:   shell.NewCalls(o.MaxInFlight, o.RequestTimeout),
		closing: make(chan struct{}), voided: make(chan struct{}), gone: make(chan struct{}), drained: make(chan struct{}),
		kept: map[*keeping]struct{}{}, own: map[string]*Lease{}, trackers: map[string]*tracker{}, idle: list.New(),
	}
	c.store = newWitness(store, c.endAll)
	if c.clock == nil {
		c.clock = clock.New(clock.Options{TrustBootClock: o.TrustBootClock})
	}
	c.recall = &recall{now: c.clock.Contender, lease: c.timing.Lease, marks: map[lifeSum]mark{}}
	c.env.Recall = c.recall.of
	c.holder, c.contender, c.unhurried = c.clock.Holder, c.clock.Contender, c.sendUnhurried // made once: there are many runs
	c.env.Lease = c.holder
	c.env.Differs = (&drifts{own: c.timing.Drift, emit: c.events.emit, told: map[string]struct{}{}}).differs
	c.seen = sessionSights{t: c.timing, env: c.env, recall: c.recall, known: map[string]*protocol.Sight{}, observing: map[*protocol.Observer]*tracker{}}
	c.env.Session = c.seen.of
	c.watcher, _ = store.(driver.Watcher)
	// A suspend, or a step of the wall clock, is noticed within a fraction of
	// the grace.
	nap := max(min(time.Second, o.Grace/4), time.Millisecond)
	c.deadlines = shell.NewTimers(c.clock.Holder, nap)
	c.beats = shell.NewTimers(c.clock.Holder, nap)
	c.looks = shell.NewTimers(c.clock.Contender, time.Second)
	c.notice(store)
	return c, nil
}

// Options returns the options of the client, with the defaults filled in for what
// was left zero, except for the callbacks and the clock.
func (c *Client) Options() Options { return c.options }

// Close ends the client. Waiting acquires fail at once with [ErrClosed], and the
// contexts of all leases are cancelled with it. The heartbeats of a lease that is
// not released yet go on until it is, for [Options.StopTimeout] at most. Close
// returns when that is done and everything of the client has ended, or when ctx
// ends. It returns an error if leases were left behind: their records run out by
// themselves. Closing again returns [ErrClosed]. Do not call it from OnEvent: Close
// waits for OnEvent to return.
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
	kept := slices.Collect(maps.Keys(c.kept))
	trackers := make([]*tracker, 0, len(c.trackers))
	for _, k := range c.trackers {
		trackers = append(trackers, k)
	}
	c.checkDrained()
	c.mu.Unlock()

	for _, k := range trackers {
		k.fails(ErrClosed)
	}
	for _, k := range sessionsFirst(kept) { // with a session its locks are freed by one write
		k.stop(ErrClosed)
	}

	w := c.closeWait(ctx)
	defer func() { w.stop() }()
	drained := w.until(c.drained)
	close(c.gone)
	c.calls.Close()
	c.looks.Close()
	c.beats.Close()
	c.deadlines.Close()
	c.events.close()
	ended := make(chan struct{})
	go func() {
		c.calls.Wait()
		<-c.events.done
		close(ended)
	}()
	all := w.until(ended) && drained

	left := 0
	for _, k := range kept {
		if !k.freed() {
			left++
		}
	}
	var err error
	if !all {
		err = done(w.ctx)
	}
	switch {
	case left > 0:
		return errors.Join(refused("tenure: close: leases not released: %d; their records run out within %v", left, c.options.LeaseDuration), err)
	case err != nil:
		return refused("tenure: close: %w", err)
	}
	return nil
}

var errCloseTimeout = errors.New("the stop timeout and a lease duration have passed")

// closeWait bounds the waiting of a Close by the context of its caller. A context
// that was done before, or that belongs to a lease that the closing has ended, does
// not count.
type closeWait struct {
	ctx  context.Context
	stop context.CancelFunc
	most time.Duration
}

func (c *Client) closeWait(ctx context.Context) *closeWait {
	w := &closeWait{ctx: ctx, stop: func() {}, most: c.options.StopTimeout + c.options.LeaseDuration}
	if ctx.Err() != nil {
		w.ignore()
	}
	return w
}

// ignore has the waiting end by itself instead of with the context.
func (w *closeWait) ignore() {
	w.ctx, w.stop = context.WithTimeoutCause(context.WithoutCancel(w.ctx), w.most, errCloseTimeout)
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

// sessionsFirst puts sessions in front of leases: the locks under a session follow
// it.
func sessionsFirst(kept []*keeping) []*keeping {
	var sessions, leases []*keeping
	for _, k := range kept {
		if _, ok := k.of.(*Session); ok {
			sessions = append(sessions, k)
		} else {
			leases = append(leases, k)
		}
	}
	return append(sessions, leases...)
}

// send sends what a machine asks for, and hands the result to answer.
func (c *Client) send(urgency time.Duration, r *protocol.Call, answer func(protocol.Result)) {
	r.Stamp(time.Now())
	c.calls.Send(urgency, shell.Call{
		Make: func(ctx context.Context) (rec, former driver.Record, err error) {
			switch r.Kind {
			case protocol.Look, protocol.Peek:
				rec, err = c.store.Get(ctx, r.Key, r.Consistency)
			case protocol.Claim, protocol.Enter:
				rec, former, err = c.store.Claim(ctx, r.Next)
			case protocol.Forget, protocol.Erase:
				err = c.store.Delete(ctx, r.Prev)
			default:
				rec, err = c.store.Swap(ctx, r.Prev, r.Next)
				former = r.Prev
			}
			return rec, former, err
		},
		Answer: func(rec, former driver.Record, err error) { answer(protocol.ResultOf(r.Kind, rec, former, err)) },
	})
}

// sendUnhurried is send for calls that no lease depends on.
func (c *Client) sendUnhurried(r *protocol.Call, answer func(protocol.Result)) {
	c.send(shell.Unhurried, r, answer)
}

// get reads a record, and hands the result to answer.
func (c *Client) get(key string, how driver.Consistency, answer func(protocol.Result)) {
	c.sendUnhurried(&protocol.Call{Kind: protocol.Look, Key: key, Consistency: how}, answer)
}

// began counts something that Close must wait for: a lease, a session, or, if k is
// nil, something else. It returns an error if nothing may be begun any more.
func (c *Client) began(k *keeping) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active++
	if k != nil {
		c.kept[k] = struct{}{}
	}
	return c.usable()
}

// beganLease is began for a lease.
func (c *Client) beganLease(l *Lease) error {
	c.mu.Lock()
	c.own[l.key] = l
	c.mu.Unlock()
	return c.began(&l.keeping)
}

// holds reports whether this client has a lease of the lock.
func (c *Client) holds(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own[key] != nil
}

// owns reports whether a record shows a lease of this client.
func (c *Client) owns(rec driver.Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.own[rec.Key]
	return l != nil && rec.State == driver.Held && l.token == rec.Token && l.Owner() == rec.Owner
}

func (c *Client) finished(k *keeping) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	delete(c.kept, k)
	c.checkDrained()
}

// finishedLease is finished for a lease.
func (c *Client) finishedLease(l *Lease) {
	c.mu.Lock()
	if c.own[l.key] == l {
		delete(c.own, l.key)
	}
	c.mu.Unlock()
	c.finished(&l.keeping)
}

func (c *Client) checkDrained() {
	if c.closed && c.active == 0 {
		select {
		case <-c.drained:
		default:
			close(c.drained)
		}
	}
}

// released hints the acquires of this process that wait for the lock.
func (c *Client) released(key string) {
	c.mu.Lock()
	k := c.trackers[key]
	c.mu.Unlock()
	if k != nil {
		k.hint()
	}
}

func (c *Client) isClosed() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

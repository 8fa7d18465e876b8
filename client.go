// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/protocol"
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
	requests  *requests
	deadlines *agenda // of leases, on the holder's clock: cancels contexts
	beats     *agenda // of leases, on the holder's clock: steps their machines
	looks     *agenda // of contests, on the contender's clock

	closing chan struct{} // closed when Close begins
	voided  chan struct{} // closed when the store was replaced
	gone    chan struct{} // closed when nothing is sent any more

	seeing sync.Mutex // guards the contests, and what was seen; taken first
	seen   sessionSights
	recall *recall // of what was seen, and forgotten

	mu       sync.Mutex // guards the fields below; taken last
	closed   bool
	leases   map[*Lease]struct{}
	own      map[string]*Lease // the latest of each lock
	contests map[string]*contest
	idle     *list.List // contests that nobody waits in, oldest first
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
		env:      protocol.Env{Fresh: rand.Text, Random: random},
		events:   newEvents(o.OnEvent, o.Logger),
		requests: newRequests(o.MaxInFlight, o.RequestTimeout),
		closing:  make(chan struct{}), voided: make(chan struct{}), gone: make(chan struct{}), drained: make(chan struct{}),
		leases: map[*Lease]struct{}{}, own: map[string]*Lease{}, contests: map[string]*contest{}, idle: list.New(),
	}
	c.store = newWitness(store, c.endAll)
	if c.clock == nil {
		c.clock = clock.New(clock.Options{TrustBootClock: o.TrustBootClock})
	}
	c.recall = &recall{now: c.clock.Contender, lease: c.timing.Lease, marks: map[lifeSum]mark{}}
	c.env.Recall = c.recall.of
	c.env.Differs = (&drifts{own: c.timing.Drift, emit: c.events.emit, told: map[string]struct{}{}}).differs
	c.seen = sessionSights{t: c.timing, env: c.env, recall: c.recall, known: map[string]*protocol.Sight{}, peeking: map[string][]*contest{}}
	c.env.Session = c.seen.of
	c.watcher, _ = store.(driver.Watcher)
	// A suspend, or a step of the wall clock, is noticed within a fraction of
	// the grace.
	nap := max(min(time.Second, o.Grace/4), time.Millisecond)
	c.deadlines = newAgenda(c.clock.Holder, nap)
	c.beats = newAgenda(c.clock.Holder, nap)
	c.looks = newAgenda(c.clock.Contender, time.Second)
	c.notice(store)
	return c, nil
}

// Options returns the options of the client, with the defaults filled in for
// what was left zero, but for the callbacks and the clock.
func (c *Client) Options() Options { return c.options }

// Close ends the client: waiting acquires fail at once with [ErrClosed], and
// the contexts of all leases are cancelled with it. For each lease that is not
// released yet, heartbeats go on until it is, for [Options.StopTimeout] at
// most. Close returns when that is done and everything of the client has
// ended, or when ctx ends. It returns an error if leases were left behind:
// their records run out by themselves. Closing again returns [ErrClosed]. Do not
// call it from OnEvent, which it waits for.
//
// A context that is done already before the call, or that Close itself ends, is
// ignored, so that a deferred Close works under the context of a signal. Close
// takes no longer then than StopTimeout and a lease duration.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.closed = true
	close(c.closing)
	leases := make([]*Lease, 0, len(c.leases))
	for l := range c.leases {
		leases = append(leases, l)
	}
	contests := make([]*contest, 0, len(c.contests))
	for _, k := range c.contests {
		contests = append(contests, k)
	}
	c.checkDrained()
	c.mu.Unlock()

	for _, k := range contests {
		k.fails(ErrClosed)
	}
	for _, l := range leases {
		if l.heads != nil { // with the session its locks are freed by one write
			l.stop(ErrClosed)
		}
	}
	for _, l := range leases {
		l.stop(ErrClosed)
	}

	w := c.closeWait(ctx)
	defer func() { w.stop() }()
	drained := w.until(c.drained)
	close(c.gone)
	c.requests.close()
	c.looks.close()
	c.beats.close()
	c.deadlines.close()
	c.events.close()
	ended := make(chan struct{})
	go func() {
		c.requests.wg.Wait()
		<-c.events.done
		close(ended)
	}()
	all := w.until(ended) && drained

	left := 0
	for _, l := range leases {
		if !l.freed() {
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

// closeWait bounds the waiting of a Close: by the context of its caller, unless that
// was done before, or is a lease's that the closing itself has ended.
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

// send sends what a machine asks for, and hands the result to answer.
func (c *Client) send(end time.Duration, r *protocol.Request, answer func(protocol.Result)) {
	r.Stamp(time.Now())
	c.requests.send(end, request{
		kind: r.Kind,
		ask: func(ctx context.Context) (rec, former driver.Record, err error) {
			switch r.Kind {
			case protocol.Look, protocol.Peek:
				rec, err = c.store.Get(ctx, r.Key, r.Consistency)
			case protocol.Claim:
				rec, former, err = c.store.Claim(ctx, r.Next)
			case protocol.Forget:
				err = c.store.Delete(ctx, r.Prev)
			default:
				rec, err = c.store.Swap(ctx, r.Prev, r.Next)
				former = r.Prev
			}
			return rec, former, err
		},
		answer: answer,
	})
}

// get reads a record, and hands the result to answer.
func (c *Client) get(key string, how driver.Consistency, answer func(protocol.Result)) {
	c.send(unhurried, &protocol.Request{Kind: protocol.Look, Key: key, Consistency: how}, answer)
}

// began counts something that Close must wait for. It returns why nothing may be
// begun any more, if it may not.
func (c *Client) began(l *Lease) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active++
	if l != nil {
		c.leases[l] = struct{}{}
		c.own[l.key] = l
	}
	return c.usable()
}

// holds says that this client has a lease of the lock.
func (c *Client) holds(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own[key] != nil
}

// owns says that a record shows a lease of this client.
func (c *Client) owns(rec driver.Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.own[rec.Key]
	return l != nil && rec.State == driver.Held && l.token == rec.Token && l.Owner() == rec.Owner
}

func (c *Client) finished(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	if l != nil {
		delete(c.leases, l)
		if c.own[l.key] == l {
			delete(c.own, l.key)
		}
	}
	c.checkDrained()
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

// released hints those who wait in this process for the lock.
func (c *Client) released(key string) {
	c.mu.Lock()
	k := c.contests[key]
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

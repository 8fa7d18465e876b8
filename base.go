// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// base is what everything of one client stands on: the store, the clocks and their
// timers, what was seen, and the account of what is under way.
type base struct {
	store   *engine.CheckedStore
	watcher driver.Watcher // nil if the store cannot watch
	charges bool           // it charges a claim that it refuses
	options Options
	timing  protocol.Timing
	env     protocol.Env
	clock   Clock

	events    *events
	calls     *engine.Calls
	holder    func() time.Duration // the clock by which leases count
	contender func() time.Duration // and that of all others
	last      func(*protocol.Call, engine.Caller)
	deadlines *engine.Timers   // of leases, on the holder's clock: cancels contexts
	beats     *engine.Timers   // of leases, on the holder's clock: steps their machines
	looks     *engine.Timers   // of trackers, on the contender's clock
	poke      func()           // has the deadlines looked at now
	released  func(key string) // tells the acquires of this process that a lock is free
	ringer    *ringer          // tells other processes; nil without a bell

	closing chan struct{} // closed when Close begins
	voided  chan struct{} // closed when the store was replaced
	gone    chan struct{} // closed when nothing is sent any more

	seeing   sync.Mutex // guards the trackers, and what was seen; taken first
	sessions *engine.SessionViews
	liveness *engine.LivenessCache // of what was seen, and forgotten

	mu      sync.Mutex // guards the fields below; taken last
	closed  bool
	kept    map[*keeping]struct{}
	own     map[string]ownLease // the latest of each lock
	active  int                 // leases and acquires that Close waits for
	drained chan struct{}
	writing int // tenures that are not in the history yet, for which Close waits a while
	written chan struct{}
}

// ownLease is a lease of this client.
type ownLease struct {
	*keeping
	token uint64
}

// begin makes all of it but the store, with options that are valid.
func (c *base) begin(o Options) {
	c.options, c.timing, c.clock = o, o.timing(), o.Clock
	if c.clock == nil {
		c.clock = clock.New(clock.Options{TrustBootClock: o.TrustBootClock})
	}
	c.events = newEvents(o.OnEvent, o.Logger)
	c.calls = engine.NewCalls(o.MaxInFlight, o.RequestTimeout)
	c.holder, c.contender, c.last = c.clock.Holder, c.clock.Contender, c.sendLast // made once: there are many runs
	c.closing, c.voided, c.gone = make(chan struct{}), make(chan struct{}), make(chan struct{})
	c.drained, c.written = make(chan struct{}), make(chan struct{})
	c.kept, c.own = map[*keeping]struct{}{}, map[string]ownLease{}

	c.liveness = engine.NewLivenessCache(c.contender, c.timing.Lease)
	c.env = protocol.Env{Fresh: rand.Text, Random: engine.Random, Recall: c.liveness.Of, Lease: c.holder}
	c.env.Differs = (&drifts{own: c.timing.Drift, emit: c.events.emit, told: map[string]struct{}{}}).differs
	c.sessions = engine.NewSessionViews(c.timing, c.env, c.liveness)
	c.env.Session = c.sessions.Of

	// A suspend, or a step of the wall clock, is noticed within a fraction of
	// the grace.
	nap := napOf(c.timing)
	c.deadlines = engine.NewTimers(c.holder, nap)
	c.beats = engine.NewTimers(c.holder, nap)
	c.looks = engine.NewTimers(c.contender, time.Second)
	c.poke = c.deadlines.Poke
	c.ringer = newRinger(o.Bell, c.timing.Lease, c.contender, c.looks, c.calls.Beside)
}

// end ends all that runs by itself. Nothing is sent any more.
func (c *base) end() {
	close(c.gone)
	c.ringer.close()
	c.calls.Close()
	c.looks.Close()
	c.beats.Close()
	c.deadlines.Close()
	c.events.close()
}

// inOrder returns what is kept, sessions in front of leases: the locks under a session
// follow it. The caller holds the mutex.
func (c *base) inOrder() []*keeping {
	var sessions, leases []*keeping
	for k := range c.kept {
		if k.isSession() {
			sessions = append(sessions, k)
		} else {
			leases = append(leases, k)
		}
	}
	return append(sessions, leases...)
}

// send sends what a machine asks for, and hands the result to its caller.
func (c *base) send(timeout, urgency time.Duration, r *protocol.Call, to engine.Caller) {
	r.Stamp(time.Now())
	c.calls.Send(urgency, engine.Call{Timeout: timeout, Request: c.store.Call(r, to)})
}

// sendLast is send for calls that no lease depends on: all others go first.
func (c *base) sendLast(r *protocol.Call, to engine.Caller) {
	c.send(c.timing.RequestTimeout, engine.Last, r, to)
}

// sender is sendLast for a lock of that timing.
func (c *base) sender(t protocol.Timing) func(*protocol.Call, engine.Caller) {
	if t.RequestTimeout == c.timing.RequestTimeout {
		return c.last
	}
	return func(r *protocol.Call, to engine.Caller) { c.send(t.RequestTimeout, engine.Last, r, to) }
}

// watch asks the store to hint. The context bounds the set-up alone.
func (c *base) watch(ctx context.Context, key string, hint func()) (unwatch func(), err error) {
	if err := c.store.Before(); err != nil {
		return nil, err
	}
	unwatch, err = c.watcher.Watch(ctx, key, hint)
	if err != nil {
		err = c.store.Judge(err)
	}
	return unwatch, err
}

// unwatch ends a watch in the background: a store may take its time.
func (c *base) unwatch(unwatch func()) {
	c.alone(func(context.Context) error {
		unwatch()
		return nil
	})
}

// alone makes a call whose answer nobody takes.
func (c *base) alone(call engine.Alone) {
	c.calls.Send(engine.Last, engine.Call{Request: call})
}

// usable returns why nothing can be acquired any more, nil if it can. The caller
// holds the client.
func (c *base) usable() error {
	if c.closed {
		return ErrClosed
	}
	return c.store.Gone()
}

// refusal is usable for callers that do not hold the client.
func (c *base) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usable()
}

// began counts something that Close must wait for: a lease, a session, or, if k is
// nil, something else. It returns an error if nothing may be begun any more.
func (c *base) began(k *keeping) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active++
	if k != nil {
		c.kept[k] = struct{}{}
	}
	return c.usable()
}

// beganLease is began for a lease.
func (c *base) beganLease(k *keeping, key string, token uint64) error {
	c.mu.Lock()
	c.own[key] = ownLease{k, token}
	c.mu.Unlock()
	return c.began(k)
}

// holds reports whether this client has a lease of the lock.
func (c *base) holds(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, own := c.own[key]
	return own
}

// owns reports whether a record shows a lease of this client.
func (c *base) owns(rec driver.Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, own := c.own[rec.Key]
	return own && rec.State == driver.Held && l.token == rec.Token && rec.Owner == c.options.Owner
}

// finished is the end of what began.
func (c *base) finished(k *keeping) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	delete(c.kept, k)
	c.checkDrained()
}

// finishedLease is finished for a lease.
func (c *base) finishedLease(k *keeping, key string) {
	c.mu.Lock()
	if c.own[key].keeping == k {
		delete(c.own, key)
	}
	c.mu.Unlock()
	c.finished(k)
}

// writes counts tenures that are being written into the history, and those that are.
func (c *base) writes(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing += n
	c.checkDrained()
}

func (c *base) checkDrained() {
	if c.closed && c.active == 0 {
		closeOnce(c.drained)
	}
	if c.closed && c.writing == 0 {
		closeOnce(c.written)
	}
}

// closeOnce closes a channel that may be closed. The caller holds what guards it.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

func (c *base) isClosed() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

func (c *base) heldBy(rec driver.Record, freeIn time.Duration) *HeldError {
	e := &HeldError{Owner: rec.Owner, Token: rec.Token, FreeIn: freeIn, Own: c.owns(rec), Reserved: rec.State == driver.Reserved}
	if e.Reserved && e.Owner == "" {
		e.Label = rec.Label
	}
	return e
}

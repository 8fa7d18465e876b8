// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine drives the machines of package protocol on real time. Timers say when one
// has something to do, calls carry out what it asks of the store, and run is the loop that
// ties them together. It decides nothing. A [Client] is all of one process and one store; what
// its callers see of it is the package above.
//
// # Mutexes
//
// A goroutine takes them in this order:
//
//  1. Client.viewMu, of what was seen of locks and sessions: trackers, observers, and the
//     machines of those that wait, ask or reap.
//  2. SessionHolder.turn, of those that release a lock under the session; opening.mu; and the
//     mutex of a machine that shares nothing: of a write into the history, or for a holder
//     elsewhere.
//  3. heldRecord.mu, of the machine of a lease; a session and all leases under it have one.
//  4. Client.mu, of the account of what Close waits for.
//  5. Those of the notifier, the calls, the timers and the caches.
//
// None is held across a call of the store. The timer of a deadline takes those of 5 alone, and
// the deadline, which Check reads, none.
package engine

import (
	"container/list"
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Client is what all locks of one process share: the store, the clocks and their timers,
// what was seen, and the account of what is under way.
type Client struct {
	Store   *CheckedStore
	watcher driver.Watcher // nil if the store cannot watch
	charges bool           // it charges a claim that it refuses
	options Options
	timing  protocol.Timing
	env     protocol.Env

	events    *events
	calls     *calls
	holder    func() time.Duration // the clock by which leases count
	contender func() time.Duration // and that of all others
	deadlines *timers              // of leases, on the holder's clock: cancels contexts
	beats     *timers              // of leases, on the holder's clock: steps their machines
	looks     *timers              // of trackers, on the contender's clock
	notifier  *notifier            // tells other processes; nil without a transport

	closing chan struct{} // closed when Close begins
	voided  chan struct{} // closed when the store was replaced
	gone    chan struct{} // closed when nothing is sent any more

	viewMu   sync.Mutex // guards the trackers, and what was seen
	sessions *sessionViews
	liveness *livenessCache // of what was seen, and forgotten

	mu       sync.Mutex // guards the fields below
	closed   bool
	trackers map[string]*tracker // by key
	idle     *list.List          // the trackers that nobody waits in, those that were left first in front; others may be among them
	held     map[*heldRecord]struct{}
	own      map[string]*LeaseHolder // the latest lease of each lock
	active   int                     // leases and acquires that Close waits for
	drained  chan struct{}
	writing  int // terms that are not in the history yet, for which Close waits a while
	written  chan struct{}

	grants  unconfirmedGrants // to holders elsewhere
	records recordCache       // what was seen last of the locks of holders elsewhere
}

// Options are what a client is made with. They are valid, and complete but for what is said
// to be optional.
type Options struct {
	Owner, Host, Label string
	Timing             protocol.Timing
	HistoryLimit       int
	MaxInFlight        int
	// Holder is the clock by which leases count, Contender that of all others.
	Holder, Contender func() time.Duration
	Transport         Transport // nil: none
	// OnEvent takes each event, from one goroutine. It is optional.
	OnEvent func(Event)
	API     API
}

// API makes what the API declares and the engine hands out.
type API struct {
	// Held returns the error of those who wait for the holder that a record shows, or for
	// whom it is reserved. Own says that the holder is this client.
	Held func(rec driver.Record, freeIn time.Duration, own bool) error
	// Superseded returns the error of a term under a token that by has ended.
	Superseded func(token uint64, by driver.Record) error
	// Replaced returns the error of a term whose store was replaced.
	Replaced func(err error) error
	// SteppedDown returns the cause of a term that ends as somebody has asked.
	SteppedDown func(q *driver.Request) error
	// Requested returns the error of those who ask a holder that was asked before.
	Requested func(q *driver.Request) error
	// NewLease returns a lease that stands in one of the API's.
	NewLease func() *LeaseHolder
}

// New returns a client that keeps its locks in the store.
func New(store driver.Store, o Options) *Client {
	c := &Client{
		options: o, timing: o.Timing, holder: o.Holder, contender: o.Contender,
		events: newEvents(o.OnEvent), calls: newCalls(o.MaxInFlight, o.Timing.RequestTimeout),
		closing: make(chan struct{}), voided: make(chan struct{}), gone: make(chan struct{}),
		drained: make(chan struct{}), written: make(chan struct{}),
		trackers: map[string]*tracker{}, idle: list.New(),
		held: map[*heldRecord]struct{}{}, own: map[string]*LeaseHolder{},
		grants: unconfirmedGrants{all: map[grantKey]*unconfirmedGrant{}}, records: recordCache{all: map[string]*list.Element{}},
	}
	c.liveness = newLivenessCache(c.contender, c.timing.Lease)
	c.env = protocol.Env{Fresh: rand.Text, Random: random, Recall: c.liveness.Of, Lease: c.holder}
	c.env.Differs = (&drifts{own: c.timing.Drift, emit: c.events.emit, reported: map[string]struct{}{}}).differs
	c.sessions = newSessionViews(c.timing, c.env, c.liveness)
	c.env.Session = c.sessions.Of

	// A suspend, or a step of the wall clock, is noticed within a fraction of
	// the grace.
	nap := napOf(c.timing)
	c.deadlines = newTimers(c.holder, nap)
	c.beats = newTimers(c.holder, nap)
	c.looks = newTimers(c.contender, time.Second)
	c.notifier = newNotifier(o.Transport, c.timing.Lease, c.contender, c.looks, c.calls.Beside)

	c.Store = newCheckedStore(store, c.endAll)
	c.watcher, _ = store.(driver.Watcher)
	if r, ok := store.(driver.RefusalCharger); ok {
		c.charges = r.ChargesRefusals()
	}
	c.notice(store)
	return c
}

// random returns a number in [0, 1), for jitter. It comes from where the versions
// come from, so that a test which seeds that (testing/cryptotest) seeds all.
func random() float64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return float64(binary.LittleEndian.Uint64(b[:])>>11) / (1 << 53)
}

// napOf is for how long the timers of a lease may sleep: a suspend, or a step of the wall
// clock, is noticed within a fraction of the grace.
func napOf(t protocol.Timing) time.Duration {
	return max(min(time.Second, t.Grace/4), time.Millisecond)
}

// usable returns why nothing can be acquired any more, nil if it can. The caller
// holds the client.
func (c *Client) usable() error {
	if c.closed {
		return ErrClosed
	}
	return c.Store.Gone()
}

// Usable returns why nothing can be done any more: the client was closed, or the store was
// replaced. It is nil otherwise.
func (c *Client) Usable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usable()
}

// began counts something that Close must wait for. It returns an error if nothing may be
// begun any more.
func (c *Client) began() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active++
	return c.usable()
}

// beganRecord is began for a lease or a session.
func (c *Client) beganRecord(k *heldRecord) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active++
	c.held[k] = struct{}{}
	if k.lease != nil {
		c.own[k.key] = k.lease
	}
	return c.usable()
}

// finished is the end of what began.
func (c *Client) finished() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	c.checkDrained()
}

// finishedRecord is finished for a lease or a session.
func (c *Client) finishedRecord(k *heldRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	delete(c.held, k)
	if k.lease != nil && c.own[k.key] == k.lease {
		delete(c.own, k.key)
	}
	c.checkDrained()
}

// holds reports whether this client has a lease of the lock.
func (c *Client) holds(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own[key] != nil
}

// heldBy returns the error of those who wait for what a record shows.
func (c *Client) heldBy(rec driver.Record, freeIn time.Duration) error {
	return c.options.API.Held(rec, freeIn, c.owns(rec))
}

// owns reports whether a record shows a lease of this client.
func (c *Client) owns(rec driver.Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.own[rec.Key]
	return l != nil && rec.State == driver.Held && l.token == rec.Token && rec.Owner == c.options.Owner
}

// writes counts terms that are being written into the history, and those that are.
func (c *Client) writes(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing += n
	c.checkDrained()
}

func (c *Client) checkDrained() {
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

// Closed reports whether Close has begun.
func (c *Client) Closed() bool { return isClosed(c.closing) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait waits until ended is closed. The error is that of ctx, of a client that is closed, or
// of a store that was replaced, if that comes first.
func (c *Client) wait(ctx context.Context, ended <-chan struct{}) error {
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return Done(ctx)
	case <-c.closing:
		return ErrClosed
	case <-c.voided:
		return c.Usable()
	}
}

// Rest waits for a while. The error is as of wait.
func (c *Client) Rest(ctx context.Context, pause time.Duration) error {
	ended := make(chan struct{})
	timer := time.AfterFunc(pause, func() { close(ended) })
	defer timer.Stop()
	return c.wait(ctx, ended)
}

// Timing returns the durations that the client keeps.
func (c *Client) Timing() protocol.Timing { return c.timing }

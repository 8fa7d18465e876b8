// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine drives the machines of package protocol in real time. Timers say when a
// machine is due, calls carry out its store calls, and run is the loop that connects them. The
// engine decides nothing. A [Client] is the state of one process and one store; package tenure
// is its API.
//
// # Mutexes
//
// A goroutine takes them in this order:
//
//  1. Client.viewMu, of the views of locks and sessions: trackers, observers, and the
//     machines that acquire, request or reap.
//  2. SessionHolder.releaseMu, for releases of locks under the session; opening.mu; and the mutex
//     of a machine that shares nothing: a history write, or a write for a remote holder.
//  3. heldRecord.mu, of the machine of a lease; a session and all leases under it have one.
//  4. Client.mu, of what Close waits for.
//  5. The mutexes of the notifier, the calls, the timers and the caches.
//
// None is held across a store call. The timer of a deadline takes only mutexes of group 5, and
// the deadline itself, which Check reads, takes none.
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
// the views, and what is under way.
type Client struct {
	Store   *CheckedStore
	watcher driver.Watcher // nil if the store cannot watch
	charges bool           // the store charges for a claim that it refuses

	slowWrites bool // a heartbeat may take as long as any request
	options    Options
	timing     protocol.Timing
	env        protocol.Env

	events     *events
	calls      *calls
	leaseClock func() time.Duration // the clock by which leases count
	clock      func() time.Duration // the clock of everything else
	deadlines  *leaseClocks         // of leases, with timers on the holder's clock that cancel contexts
	beats      *timers              // of leases, on the holder's clock: steps their machines
	readTimers *timers              // of trackers, on the contender's clock
	notifier   *notifier            // tells other processes; nil without a transport

	closing chan struct{} // closed when Close begins
	voided  chan struct{} // closed when the store was replaced
	gone    chan struct{} // closed when no call is sent any more

	viewMu   sync.Mutex // guards the trackers and the views
	sessions *sessionViews
	liveness *livenessCache // of views that were dropped

	mu       sync.Mutex // guards the fields below
	closed   bool
	trackers map[string]*tracker // by key
	idle     *list.List          // trackers that had no user when added, least recently used first
	held     map[*heldRecord]struct{}
	own      map[string]*LeaseHolder // the latest lease of each lock
	active   int                     // leases and acquires that Close waits for
	drained  chan struct{}
	writing  int // terms that are not in the history yet; Close waits for them for a while
	written  chan struct{}

	grants  unconfirmedGrants // to remote holders
	records recordCache       // the records of remote holders' locks, as last read
}

// Options are the options of a client. They are valid and, except for optional fields,
// complete.
type Options struct {
	Owner, Host, Label string
	Timing             protocol.Timing
	HistoryLimit       int // how many terms of a lock are kept; negative: none
	MaxInFlight        int
	// Holder is the clock by which leases count, Contender the clock of everything else.
	Holder, Contender func() time.Duration
	// Quick is a clock that is cheaper to read than Holder, counts the same suspends and steps,
	// and runs at most QuickSlowdown times slower. If nil, Check reads Holder.
	Quick         func() time.Duration
	QuickSlowdown int
	Transport     Transport // nil: none
	// OnEvent takes each event, in one goroutine. It is optional.
	OnEvent func(Event)
	API     API
}

// API makes the values that the API declares and the engine returns.
type API struct {
	// Held returns the error of a caller that waits for the holder, or the reservation,
	// that a record shows. own says that the holder is this client.
	Held func(rec driver.Record, freeIn time.Duration, own bool) error
	// Superseded returns the error of a term that the record by has ended.
	Superseded func(token uint64, by driver.Record) error
	// Replaced returns the error of a term whose store was replaced.
	Replaced func(err error) error
	// SteppedDown returns the cause of a term that ends because of a request.
	SteppedDown func(q *driver.Request) error
	// Requested returns the error of a request to a holder that has one already.
	Requested func(q *driver.Request) error
	// NewLease returns a lease that is embedded in a lease of the API.
	NewLease func() *LeaseHolder
}

// New returns a client that keeps its locks in the store.
func New(store driver.Store, o Options) *Client {
	c := &Client{
		options: o, timing: o.Timing, leaseClock: o.Holder, clock: o.Contender,
		events: newEvents(o.OnEvent), calls: newCalls(o.MaxInFlight, o.Timing.RequestTimeout),
		closing: make(chan struct{}), voided: make(chan struct{}), gone: make(chan struct{}),
		drained: make(chan struct{}), written: make(chan struct{}),
		trackers: map[string]*tracker{}, idle: list.New(),
		held: map[*heldRecord]struct{}{}, own: map[string]*LeaseHolder{},
		grants: unconfirmedGrants{all: map[grantKey]*unconfirmedGrant{}}, records: recordCache{all: map[string]*list.Element{}},
	}
	c.liveness = newLivenessCache(c.clock, c.timing.Lease)
	c.env = protocol.Env{Fresh: rand.Text, Random: random, Recall: c.liveness.Of, Lease: c.leaseClock}
	c.Store = newCheckedStore(store, c.endAll)
	if o.Timing.Waits > 0 {
		c.Store.lives = &lives{now: c.clock, of: protocol.NewLives(o.Timing.Waits)}
		c.env.LifeSince = c.Store.lives.since
	}
	c.env.Differs = (&drifts{own: c.timing.Drift, emit: c.events.emit, reported: map[string]struct{}{}}).differs
	c.sessions = newSessionViews(c.timing, c.env, c.liveness)
	c.env.Session = c.sessions.Of

	// A suspend, or a step of the wall clock, must be noticed within a fraction of the
	// grace.
	nap := napOf(c.timing)
	c.deadlines = &leaseClocks{timers: newTimers(c.leaseClock, nap), quick: o.Quick, slowdown: o.QuickSlowdown}
	if o.Quick == nil {
		c.deadlines.quick, c.deadlines.slowdown = o.Holder, 1
	}
	c.beats = newTimers(c.leaseClock, nap)
	c.readTimers = newTimers(c.clock, time.Second)
	c.notifier = newNotifier(o.Transport, c.timing.Lease, c.clock, c.readTimers, c.calls.Go)

	c.watcher, _ = store.(driver.Watcher)
	if r, ok := store.(driver.RefusalCharger); ok {
		c.charges = r.ChargesRefusals()
	}
	_, c.slowWrites = store.(driver.SlowWriter)
	c.notice(store)
	return c
}

// random returns a number in [0, 1), for jitter. It has the same source as the
// versions, so that a test that seeds that source (testing/cryptotest) seeds both.
func random() float64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return float64(binary.LittleEndian.Uint64(b[:])>>11) / (1 << 53)
}

// napOf returns how long the timers of a lease may sleep, so that they notice a suspend,
// or a step of the wall clock, within a fraction of the grace.
func napOf(t protocol.Timing) time.Duration {
	return max(min(time.Second, t.Grace/4), time.Millisecond)
}

// usable returns why the client cannot acquire any more, nil if it can. The caller
// holds c.mu.
func (c *Client) usable() error {
	if c.closed {
		return ErrClosed
	}
	return c.Store.Gone()
}

// Usable returns why the client is unusable: it was closed, or the store was replaced. It
// is nil otherwise.
func (c *Client) Usable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usable()
}

// began counts an operation that Close must wait for. It returns an error if none may
// begin any more.
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

// finished ends what began has counted.
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

// heldBy returns the error of a caller that waits for the holder or reservation in a
// record.
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

// writes adds n to the number of history entries that are being written.
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

// closeOnce closes a channel unless it is closed. The caller holds the mutex that
// guards it.
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

// wait waits until ended is closed. The error says what came first: the end of ctx, the
// closing of the client, or the replacement of the store.
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

// Sleep waits for the given time. Its error is that of wait.
func (c *Client) Sleep(ctx context.Context, pause time.Duration) error {
	ended := make(chan struct{})
	timer := time.AfterFunc(pause, func() { close(ended) })
	defer timer.Stop()
	return c.wait(ctx, ended)
}

// Timing returns the client's durations.
func (c *Client) Timing() protocol.Timing { return c.timing }

// Clock returns the time of the clock by which the client waits. It counts suspends.
func (c *Client) Clock() time.Duration { return c.clock() }

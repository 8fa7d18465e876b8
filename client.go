// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"maps"
	mathrand "math/rand/v2"
	"slices"
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
	store   driver.Store
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
	gone    chan struct{} // closed when nothing is sent any more

	mu       sync.Mutex // guards the fields below; taken last
	closed   bool
	leases   map[*Lease]struct{}
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
	if err := o.validate(); err != nil {
		return nil, refused("tenure: %w", err)
	}
	c := &Client{
		store: store, options: o, timing: o.timing(), clock: o.Clock,
		env:      protocol.Env{Fresh: rand.Text, Random: mathrand.Float64},
		events:   newEvents(o.OnEvent, o.Logger),
		requests: newRequests(o.MaxInFlight, o.RequestTimeout),
		closing:  make(chan struct{}), gone: make(chan struct{}), drained: make(chan struct{}),
		leases: map[*Lease]struct{}{}, contests: map[string]*contest{}, idle: list.New(),
	}
	c.watcher, _ = store.(driver.Watcher)
	if c.clock == nil {
		c.clock = clock.New(clock.Options{TrustBootClock: o.TrustBootClock})
	}
	// A suspend, or a step of the wall clock, is noticed within a fraction of
	// the grace.
	nap := min(time.Second, o.Grace/4)
	c.deadlines = newAgenda(c.clock.Holder, nap)
	c.beats = newAgenda(c.clock.Holder, nap)
	c.looks = newAgenda(c.clock.Contender, time.Second)
	return c, nil
}

// Options returns the options of the client, with all defaults filled in.
func (c *Client) Options() Options { return c.options }

// Close ends the client: waiting acquires fail at once with [ErrClosed], and
// the contexts of all leases are cancelled with it. For each lease that is not
// released yet, heartbeats go on until it is, for [Options.StopTimeout] at
// most. Close returns when that is done and everything of the client has
// ended, or when ctx ends. It returns an error if leases were left behind:
// their records run out by themselves. Closing again returns [ErrClosed]. Do not
// call it from OnEvent, which it waits for.
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
		k.close()
	}
	for _, l := range leases {
		l.stop(ErrClosed)
	}

	var err error
	select {
	case <-c.drained:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
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
	select {
	case <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		default:
			err = context.Cause(ctx)
		}
	}
	left := 0
	for _, l := range leases {
		select {
		case <-l.over:
		default:
			left++
		}
	}
	if left > 0 {
		return errors.Join(refused("tenure: close: %d leases were not released: their records run out within %v", left, c.options.LeaseDuration), err)
	}
	if err != nil {
		return refused("tenure: close: %w", err)
	}
	return nil
}

// Run takes the lock, runs work while it is held, waits for it to return, and
// releases the lock. It is the right default.
//
// The context of work carries ctx's values, and ends with ctx, with the lease,
// and with the client; see [Lease.Context]. When it ends, work must return:
// heartbeats go on meanwhile, for [Options.StopTimeout] at most.
//
// Run returns what work returns. If the lease was lost before that, or work
// outlasted its heartbeats, the error matches [ErrLost] or [ErrStopTimeout]
// too. If the lock was not acquired, work was not run; see [Client.Acquire].
// A panic of work releases the lock and goes on.
func (c *Client) Run(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error) error {
	l, err := c.Acquire(ctx, name, options)
	if err != nil {
		return err
	}
	lost, err := l.run(ctx, work)
	if lost != nil {
		return errors.Join(wrap("run", name, lost), err)
	}
	return err
}

// run runs work under the lease and releases it. It returns how the lease was
// lost before work had returned, if it was, and the error of work.
func (l *Lease) run(ctx context.Context, work func(context.Context, *Lease) error) (lost, err error) {
	bound, stop := l.Bind(ctx)
	defer stop()
	unhook := context.AfterFunc(ctx, func() { l.stop(context.Cause(ctx)) })
	defer unhook()

	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			_ = l.Release(context.WithoutCancel(ctx))
		}
	}()
	err = work(bound, l)
	returned = true

	lost = l.Release(context.WithoutCancel(ctx))
	if errors.Is(lost, ErrLost) || errors.Is(lost, ErrStopTimeout) {
		return errors.Unwrap(lost), err
	}
	return nil, err // released, or running out by itself: the work was covered
}

// Acquire takes the lock, waiting until it is free. ctx bounds the waiting
// alone: the lease goes on until it is released. It honours ctx at once; a
// write that is under way then is cleaned up in the background.
//
// The error matches the context's, or [ErrHeld] if AdditionalWait passed,
// [ErrUnreadable], [ErrClosed], [ErrExpired] if the process was paused while
// the lock was granted until that lease was over, or the store's own error if
// the store cannot be used, or gave no answer for StoreTimeout.
func (c *Client) Acquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return c.acquire(ctx, "acquire", name, options, c.timing.Lease, false)
}

// TryAcquire takes the lock if that is possible without waiting for its
// holder. Otherwise the error is a [*HeldError], which matches [ErrHeld]. What
// it sees is remembered: called again after the lease of a dead holder it
// takes that one's lock.
func (c *Client) TryAcquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return c.acquire(ctx, "try acquire", name, options, 3*c.timing.RequestTimeout, true)
}

func (c *Client) acquire(ctx context.Context, op, name string, options *AcquireOptions, patience time.Duration, try bool) (*Lease, error) {
	o, err := options.copied()
	if err == nil {
		err = checkName(name)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, wrap(op, name, err)
	}
	if o.StoreTimeout != 0 {
		patience = max(0, o.StoreTimeout)
	}
	k, err := c.contest(name)
	if err != nil {
		return nil, wrap(op, name, err)
	}
	a := k.join(protocol.Want{
		Key: name, Owner: c.options.Owner, Host: c.options.Host, Label: c.options.Label,
		Data: o.Data, Try: try, Patience: patience,
	})
	l, err := a.wait(ctx, o.AdditionalWait)
	if err != nil {
		return nil, wrap(op, name, err)
	}
	return l, nil
}

// Status is what the record of a lock shows.
type Status struct {
	Name string
	// Held says that the record shows a holder that may be alive, as far as
	// this client can know.
	Held  bool
	Owner string // the holder, or the last one
	Token uint64 // 0: the lock was never taken
	Host  string
	Label string
	Since time.Time // when the holder took it, by its wall clock
	Until time.Time // when it was released, zero while it is held
	Data  []byte
	// Lease and Heartbeat are the durations that the holder keeps.
	Lease, Heartbeat time.Duration
	// Unchanged is how long this client has seen no sign of life, and FreeIn
	// when the lock can be taken at the latest if none comes.
	Unchanged, FreeIn time.Duration
	// Previous is the tenure before, nil if there was none.
	Previous *Previous
}

// How a tenure ended, in [Previous.End].
const (
	EndReleased = string(driver.EndReleased) // its holder released the lock
	EndExpired  = string(driver.EndExpired)  // another one took over
)

// Previous is a tenure that has ended.
type Previous struct {
	Owner        string
	Token        uint64
	Host, Label  string
	Since, Until time.Time // Until is zero where nobody can know it
	// End says how it ended: EndReleased, EndExpired.
	End string
	// Data is what it left, in [Lease.Previous] alone. It is nil if the new
	// holder brought data of its own and the reply that showed the old one was
	// lost.
	Data []byte
}

// Previous returns how the tenure before this one ended, and the data that it
// left, for redriving unfinished work. It returns false if there was none.
func (l *Lease) Previous() (Previous, bool) {
	if l.former == nil {
		return Previous{}, false
	}
	return *l.former, true
}

func previous(g protocol.Grant, replaced bool) *Previous {
	p := previousOf(g.Record.Prev)
	switch {
	case p == nil:
	case g.Former.Key != "":
		p.Data = g.Former.Data
	case !replaced:
		p.Data = g.Record.Data
	}
	return p
}

func previousOf(t *driver.Tenure) *Previous {
	if t == nil {
		return nil
	}
	return &Previous{
		Owner: t.Owner, Token: t.Token, Host: t.Host, Label: t.Label,
		Since: t.Since, Until: t.Until, End: string(t.End),
	}
}

// Status reads the record of the lock. It waits for the store's answer for
// [Options.RequestTimeout].
func (c *Client) Status(ctx context.Context, name string) (Status, error) {
	if err := checkName(name); err != nil {
		return Status{}, wrap("status", name, err)
	}
	s, err := c.look(ctx, name)
	if err != nil {
		return Status{}, wrap("status", name, err)
	}
	return s.status(name), nil
}

// Locks reads the records of all locks whose names begin with prefix, in the
// order of their names. It may be slow. A record that cannot be read comes as
// an error, and the others go on.
func (c *Client) Locks(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if c.isClosed() {
			yield(Status{}, wrap("list", prefix, ErrClosed))
			return
		}
		cursor := ""
		for {
			sent := c.clock.Contender()
			page, err := c.store.List(ctx, prefix, cursor)
			if err != nil {
				yield(Status{}, wrap("list", prefix, err))
				return
			}
			for _, rec := range page.Records {
				k, err := c.contest(rec.Key)
				if err != nil {
					yield(Status{}, wrap("list", prefix, err))
					return
				}
				s := k.saw(sent, rec, true)
				k.leave()
				if !yield(s.status(rec.Key), nil) {
					return
				}
			}
			for _, key := range slices.Sorted(maps.Keys(page.Unreadable)) {
				if !yield(Status{Name: key}, wrap("list", key, page.Unreadable[key])) {
					return
				}
			}
			if cursor = page.Cursor; cursor == "" {
				return
			}
		}
	}
}

// look reads a record and remembers what it saw. It waits for one request
// timeout, or two if the store takes no notice of it.
func (c *Client) look(ctx context.Context, name string) (sighting, error) {
	if err := ctx.Err(); err != nil {
		return sighting{}, err
	}
	k, err := c.contest(name)
	if err != nil {
		return sighting{}, err
	}
	defer k.leave()
	sent := c.clock.Contender()
	answer := make(chan protocol.Result, 1)
	c.requests.send(unhurried, request{
		kind: protocol.Look,
		ask: func(ctx context.Context) (rec, former driver.Record, err error) {
			rec, err = c.store.Get(ctx, name, driver.Strong)
			return rec, former, err
		},
		answer: func(res protocol.Result) { answer <- res },
	})
	select {
	case res := <-answer:
		if res.Err != nil {
			return sighting{}, res.Err
		}
		return k.saw(sent, res.Record, res.Found), nil
	case <-ctx.Done():
		return sighting{}, context.Cause(ctx)
	case <-c.gone:
		return sighting{}, ErrClosed
	}
}

// sighting is a snapshot of what a client saw of a record.
type sighting struct {
	rec    driver.Record
	found  bool
	known  bool
	looked time.Duration // on the contender's clock: when the latest reply came
	alive  bool          // it shows a holder that may be alive
	since  time.Duration
	freeIn time.Duration
}

func (s sighting) status(name string) Status {
	r := s.rec
	st := Status{
		Name: name, Held: s.alive, Owner: r.Owner, Token: r.Token, Host: r.Host, Label: r.Label,
		Since: r.Since, Until: r.Until, Data: r.Data, Lease: r.Lease, Heartbeat: r.Heartbeat,
		Previous: previousOf(r.Prev),
	}
	if r.State == driver.Held {
		st.Unchanged, st.FreeIn = s.since, s.freeIn
	}
	return st
}

// began counts something that Close must wait for. It returns false if the
// client is closed.
func (c *Client) began(l *Lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active++
	if l != nil {
		c.leases[l] = struct{}{}
	}
	return !c.closed
}

func (c *Client) finished(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	if l != nil {
		delete(c.leases, l)
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

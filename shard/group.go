// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/text"
)

// Group is a set of partitions under one name, with this process as one of its workers.
// All methods may be called concurrently. A Group need not be closed: [Group.Run]
// releases all that it acquires.
//
// A client runs one worker of a group. The worker has the client's owner name
// ([tenure.Options.Owner]), by which others hand partitions over to it: no two workers
// may have the same.
type Group struct {
	client  *tenure.Client
	name    string
	options Options
	initial spec

	mu      sync.Mutex
	running bool
	leave   func()        // has the worker of this Run leave
	ended   chan struct{} // closed when Run returns
	worker  *worker       // nil while it has no session
}

// New returns the group of the given name. The options must give its partitions; an error
// says what is wrong with them.
func New(client *tenure.Client, name string, options *Options) (*Group, error) {
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("client is nil: make one with tenure.New"))
	} else {
		errs = append(errs, text.OfLossyStore(client.Options().LossyStore, "a group"))
	}
	o, initial, err := options.withDefaults(client)
	if err := errors.Join(append(errs, checkName(name), err)...); err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	return &Group{client: client, name: name, options: o, initial: initial}, nil
}

// Name returns the name of the group.
func (g *Group) Name() string { return g.name }

// Handler works on one partition, until ctx ends. It must return then: until it
// does, no other worker gets the partition. See [Group.Run].
type Handler func(ctx context.Context, p *Partition) error

// Run makes this process a worker of the group. It joins, and runs handler in a
// goroutine of its own for each partition that it has, until ctx ends or
// [Group.Leave] is called. Then it leaves: its partitions are handed over to the
// others, one after the other, and each is worked on until then. So the context
// of a handler carries the values of ctx, but does not end with it. It ends
//
//   - when another worker is to have the partition: the cause matches
//     [tenure.ErrSteppedDown];
//   - when the partition, or the session with all of them, is lost: the cause
//     matches [tenure.ErrLost];
//   - when the worker leaves and the partition could not be handed over in time, or
//     it is removed from the group, or the client is closed.
//
// A handler that returns before that is run again, under the same token: after a
// refresh period if it returned nil, and after a pause that doubles with each
// error. When it has failed five times in a row, each time within a lease, the
// partition is released; this worker avoids it for ten leases, and others find it.
//
// A worker that loses its session waits for its handlers, opens another session,
// and joins again. Run returns nil when it has left in order, and else an error
// that matches [ErrLeftEarly], [tenure.ErrClosed], [tenure.ErrStopTimeout] if a
// handler had not returned in time, or [ErrRunning]. It returns after all
// handlers have. A panic of a handler ends all the others, frees the partitions,
// and goes on in Run, as a [*Panic]. If OnEvent does not return, Run waits for it for
// the client's StopTimeout and a lease at most; then the error says so.
func (g *Group) Run(ctx context.Context, handler Handler) (err error) {
	leave, stop := context.WithCancel(ctx)
	defer stop()
	if err := g.begin(handler, stop); err != nil {
		return wrap("run", g.name, err)
	}
	ev := newEvents(g.name, g.options.OnEvent)
	defer func() {
		o := g.client.Options()
		if late := ev.close(o.StopTimeout + o.LeaseDuration); late != nil {
			err = errors.Join(err, wrap("run", g.name, late))
		}
		g.end()
	}()
	r := &run{
		g: g, handler: handler, events: ev, values: context.WithoutCancel(ctx),
		leave: leave, period: period(g.client), pace: newPace(g.options.Claims, g.client.Options().HeartbeatPeriod),
	}
	err = r.run()
	if r.thrown != nil {
		panic(r.thrown) //nolint:forbidigo // the handler's own panic
	}
	return wrap("run", g.name, err)
}

func (g *Group) begin(handler Handler, leave func()) error {
	if handler == nil {
		return errors.New("handler is nil")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running {
		return ErrRunning
	}
	g.running = true
	g.leave, g.ended = leave, make(chan struct{})
	return nil
}

func (g *Group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = false
	close(g.ended)
}

// Leave makes the worker leave, as the end of Run's context does, and waits until Run has
// returned, or ctx has ended; the worker leaves in any case.
func (g *Group) Leave(ctx context.Context) error {
	g.mu.Lock()
	running, ended := g.running, g.ended
	if running {
		g.leave()
	}
	g.mu.Unlock()
	if !running {
		return wrap("leave", g.name, ErrNotRunning)
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return wrap("leave", g.name, context.Cause(ctx))
	}
}

// run is one call of Run: one worker after the other, each with a session.
type run struct {
	g       *Group
	handler Handler
	events  *events
	values  context.Context // of the caller, which never ends
	leave   context.Context // ends when the worker is to leave
	period  time.Duration   // between two polls
	pace    pace            // of claims; guarded by the worker's mu
	thrown  *Panic
}

// period returns how often a worker polls the group. The client's refresh period may be
// far longer, where the store can watch.
func period(client *tenure.Client) time.Duration {
	o := client.Options()
	return min(o.RefreshPeriod, o.LeaseDuration/5)
}

func (r *run) run() error {
	for !r.leaves() {
		session, err := r.open()
		if err != nil {
			if r.leaves() && !errors.Is(err, tenure.ErrClosed) {
				return nil // nothing was held
			}
			return err
		}
		w := newWorker(r, session)
		r.g.attach(w)
		err = w.serve()
		r.g.attach(nil)
		if r.thrown != nil || w.left || errors.Is(err, tenure.ErrClosed) {
			return err
		}
		r.events.emit(Event{Kind: EventLost, Place: w.place, Err: err})
	}
	return nil
}

func (r *run) leaves() bool { return r.leave.Err() != nil }

// open opens a session, for as long as it takes.
func (r *run) open() (*tenure.Session, error) {
	ctx, stop := context.WithCancel(r.values)
	defer stop()
	defer context.AfterFunc(r.leave, stop)()
	return r.g.client.OpenSession(ctx, &tenure.SessionOptions{Data: []byte(r.g.options.Address), StoreTimeout: -1})
}

func (g *Group) attach(w *worker) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.worker = w
}

// Stats are numbers of this worker, for metrics.
type Stats struct {
	// Joined says that the worker is in the membership.
	Joined bool
	// Place is the worker's, -1 if it has none.
	Place int
	// Epoch is the epoch of the worker's plan.
	Epoch uint64
	// Members is how many workers the plan gives partitions to.
	Members int
	// Partitions is how many the group has, and Unassigned how many of them the
	// plan gives to no worker, because all are full, or all leave.
	Partitions, Unassigned int
	// Planned is how many partitions the plan gives the worker, Held how many it has,
	// including those that stop, and Surplus how many it has that the plan gives to others.
	Planned, Held, Surplus int
	// Claiming is how many partitions are about to be claimed, and MovingIn how many are
	// requested from others.
	Claiming, MovingIn int
	// Coordinator says that this worker writes the membership.
	Coordinator bool
}

// Stats returns the present numbers of this worker. It sends nothing.
func (g *Group) Stats() Stats {
	g.mu.Lock()
	w := g.worker
	g.mu.Unlock()
	if w == nil {
		return Stats{Place: -1}
	}
	return w.stats()
}

// Options are for one worker of a group, except the partitions, which are the same for
// all. Nil means the defaults.
type Options struct {
	// Partitions is how many partitions the group has, with the names "0", "1"
	// and so on; or Names are their names. One of the two must be given. They
	// are only used the first time: once a worker has run, those in the store
	// count for all. Change them with [Group.Resize].
	Partitions int
	Names      []string

	// Weight sets this worker's share of the partitions, relative to the others' weights.
	// If zero, it is 1.
	Weight float64

	// Zone is where the worker runs, such as a rack or an availability zone.
	// It gets the partitions that prefer this zone: see Zones.
	Zone string

	// Zones are the preferred zones of partitions, by their names: where their data are,
	// say. As with Partitions, the zones in the store count, and [Group.SetZones] changes
	// them. A partition goes to a worker of its zone as long as that worker has no more
	// than five fourths of its share; then anywhere. Partitions without a zone, or whose
	// zone has no worker, go anywhere.
	Zones map[string]string

	// Max is the most partitions that this worker takes, whatever happens to the others.
	// Partitions that no worker has room for are unassigned: an event, [Stats] and [Status]
	// show them. If zero, there is no such limit.
	Max int

	// Address is shown with the worker, so that others can reach it. It has at
	// most 512 bytes.
	Address string

	// Budget is how many partitions this worker asks others for at a time. More
	// is quicker, and has more partitions change hands at once. It is at most
	// 48, because a session has room for 64 requests. If zero, it is 16.
	Budget int

	// Claims is how many free partitions this worker claims at a time: fewer, while
	// that takes longer than a heartbeat period. If zero, it is 16.
	Claims int

	// Audit is how many partitions of other planned owners this worker polls in four
	// refresh periods, one after the other. It claims a partition that has had no owner
	// for two leases, and hands it to its planned owner later. If zero, it is 2; -1 saves
	// a quarter of a worker's reads, but then no worker picks up a partition whose
	// planned owner never claims it.
	Audit int

	// Prepare is called before another worker is asked for a partition: to load
	// what the work needs, say. The other worker continues until Prepare returns.
	// Ctx ends when the partition will not come after all. An error puts the move
	// off. Prepare is not called for a partition without an owner. A worker that
	// prepares also asks a leaving worker, which otherwise hands over by itself.
	Prepare func(ctx context.Context, id string) error

	// LeaveTimeout is how long a leaving worker takes to hand its partitions over.
	// What is left then is freed at once, and so is what the plan gives to no worker,
	// because all others leave as well, or are full. If zero, it is eight leases;
	// negative means that it does not wait.
	LeaveTimeout time.Duration

	// Plans, if not nil, lets workers of the same process share their plans. It
	// matters where many run in one, in a test or a simulation.
	Plans *Plans

	// OnEvent is called with each event, one at a time. It may be slow: only the end of Run
	// waits for it, for a while. When it falls far behind, events are dropped and counted.
	OnEvent func(Event)
}

const (
	// MaxPartitions is the most partitions that a group can have.
	MaxPartitions = 1_000_000
	// MaxMembers is the most workers that a group can have: their membership is one record.
	// Further workers wait until there is room.
	MaxMembers = 1000

	defaultBudget = 16
	maxBudget     = 48
	defaultClaims = 16
	maxClaims     = 1024
	defaultAudit  = 2
	maxAudit      = 1000
	maxWeight     = 1e6
	minWeight     = 1e-3
	maxTextLen    = 512
	maxZoneLen    = 64

	// defaultLeave is in leases.
	defaultLeave = 8
)

func (o *Options) withDefaults(client *tenure.Client) (Options, spec, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.Names = append([]string(nil), c.Names...)
	c.Weight, c.Budget = cmp.Or(c.Weight, 1), cmp.Or(c.Budget, defaultBudget)
	c.Claims, c.Audit = cmp.Or(c.Claims, defaultClaims), cmp.Or(c.Audit, defaultAudit)
	if c.LeaveTimeout == 0 && client != nil {
		c.LeaveTimeout = defaultLeave * client.Options().LeaseDuration
	}
	initial, err := c.validate()
	return c, initial, err
}

func (o *Options) validate() (initial spec, _ error) {
	var errs []error
	add := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	switch {
	case o.Partitions == 0 && len(o.Names) == 0:
		add("neither Partitions nor Names are given: say how many partitions there are, or which")
	case o.Partitions != 0 && len(o.Names) > 0:
		add("both Partitions (%d) and Names (%d) are given: give one", o.Partitions, len(o.Names))
	default:
		var err error
		initial, err = newSpec(o.Partitions, o.Names, o.Zones)
		errs = append(errs, err)
	}
	if !(o.Weight >= minWeight && o.Weight <= maxWeight) || math.IsNaN(o.Weight) {
		add("weight %v must be from %v to %v", o.Weight, minWeight, maxWeight)
	}
	if o.Max < 0 {
		add("max %d must not be negative", o.Max)
	}
	if o.Budget < 1 || o.Budget > maxBudget {
		add("budget %d must be from 1 to %d", o.Budget, maxBudget)
	}
	if o.Claims < 1 || o.Claims > maxClaims {
		add("claims %d must be from 1 to %d", o.Claims, maxClaims)
	}
	if o.Audit > maxAudit {
		add("audit %d must be at most %d", o.Audit, maxAudit)
	}
	if o.Zone != "" {
		errs = append(errs, checkText("zone", o.Zone, maxZoneLen))
	}
	if o.Address != "" {
		errs = append(errs, checkText("address", o.Address, maxTextLen))
	}
	return initial, errors.Join(errs...)
}

var (
	// ErrRunning is returned by [Group.Run] when the group is already running. A client
	// runs one worker: use another client for another worker.
	ErrRunning = errors.New("the group is already running")

	// ErrNotRunning is returned by [Group.Leave] when the group is not run.
	ErrNotRunning = errors.New("the group is not running")

	// ErrLeftEarly is matched by the error of [Group.Run] when the worker left
	// before all of its partitions had been handed over, though others stay: the others
	// have no room, or did not take them within [Options.LeaveTimeout]. The partitions
	// are free, and others find them. See [LeftEarlyError].
	ErrLeftEarly = errors.New("left before all partitions were handed over")
)

// LeftEarlyError says how many partitions no worker had taken. It matches
// [ErrLeftEarly].
type LeftEarlyError struct{ Partitions int }

func (e *LeftEarlyError) Error() string {
	if e.Partitions == 1 {
		return "left before one partition was handed over"
	}
	return fmt.Sprintf("left before %d partitions were handed over", e.Partitions)
}

// Is reports whether target is [ErrLeftEarly].
func (e *LeftEarlyError) Is(target error) bool { return target == ErrLeftEarly }

// Panic is the value of Run's panic after a handler has panicked. Run panics when the
// worker has given up its partitions.
type Panic struct {
	// Value is the handler's panic value, and Stack its stack.
	Value any
	Stack []byte
	// Partition is the handler's partition.
	Partition string
}

func (p *Panic) String() string {
	return fmt.Sprintf("handler of partition %q: %v\n\n%s", p.Partition, p.Value, p.Stack)
}

// Error is as String.
func (p *Panic) Error() string { return p.String() }

// Unwrap returns the value, if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &tenure.Error{Op: op, Key: name, Err: err}
}

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	// EventJoined: this worker has the place Place in the group, and is in its membership.
	EventJoined EventKind = "joined"
	// EventLost: the session of this worker was lost with all its partitions. It joins
	// again. Err is the reason.
	EventLost EventKind = "lost"
	// EventLeaving: this worker leaves; it will hand Count partitions over.
	EventLeaving EventKind = "leaving"
	// EventLeft: this worker has left. Count partitions were not handed over.
	EventLeft EventKind = "left"
	// EventPlan: there is a new plan, of the epoch Epoch. Count is how many
	// partitions it gives to this worker.
	EventPlan EventKind = "plan"
	// EventUnassigned: by a new plan, Count partitions have no worker, because
	// all are full, or because all leave. The plan in which that ends has an event
	// with Count 0.
	EventUnassigned EventKind = "unassigned"
	// EventAssigned: this worker has claimed a partition without an owner.
	EventAssigned EventKind = "assigned"
	// EventMovedIn: this worker has a partition that it has asked Peer for, or that
	// Peer has handed over. Took is how long that took from the first request, or
	// from when it began to wait.
	EventMovedIn EventKind = "moved_in"
	// EventMovedOut: this worker has handed a partition over, to Peer.
	EventMovedOut EventKind = "moved_out"
	// EventAdopted: this worker has claimed another worker's planned partition, which had
	// no owner for two leases.
	EventAdopted EventKind = "adopted"
	// EventDropped: this worker has released a partition that was removed from the group,
	// or whose handler failed too often (Err).
	EventDropped EventKind = "dropped"
	// EventRevoked: this worker has lost one partition, but not the session. Err is the
	// reason.
	EventRevoked EventKind = "revoked"
	// EventHandlerEnded: the handler of a partition returned before it had to,
	// with Err or nil. It is run again after Took.
	EventHandlerEnded EventKind = "handler_ended"
	// EventMoveFailed: a partition of Peer was not handed over (Err). The worker tries
	// again.
	EventMoveFailed EventKind = "move_failed"
	// EventCoordinator: this worker is the coordinator of the group from now on.
	EventCoordinator EventKind = "coordinator"
	// EventResigned: this worker is no longer the coordinator. Err is the reason, if it did
	// not resign by itself.
	EventResigned EventKind = "resigned"
	// EventMemberDead: the coordinator has closed the session of a dead worker,
	// so that its partitions can be claimed. Peer is its owner name.
	EventMemberDead EventKind = "member_dead"
	// EventError: an operation failed and is tried again (Err).
	EventError EventKind = "error"
)

// Event is something that happened to a worker.
type Event struct {
	Kind      EventKind
	Group     string
	Time      time.Time // wall clock, for people
	Partition string
	Token     uint64
	Peer      string // the owner name of the other worker
	Place     int
	Epoch     uint64
	Count     int
	Took      time.Duration
	Err       error

	// Missed counts the events dropped before this event because OnEvent was too slow.
	Missed uint64
}

// eventBuffer is how many events may wait for a slow callback.
const eventBuffer = 8192

// events hands events to the user's callback, from one goroutine that lives as
// long as Run.
type events struct {
	on     func(Event)
	group  string
	queue  chan Event
	missed atomic.Uint64
	done   chan struct{}
}

func newEvents(group string, on func(Event)) *events {
	e := &events{on: on, group: group, done: make(chan struct{})}
	if on == nil {
		close(e.done)
		return e
	}
	e.queue = make(chan Event, eventBuffer)
	go func() {
		defer close(e.done)
		for ev := range e.queue {
			ev.Missed = e.missed.Swap(0)
			e.on(ev)
		}
	}()
	return e
}

func (e *events) emit(ev Event) {
	if e.queue == nil {
		return
	}
	ev.Time, ev.Group = time.Now(), e.group
	select {
	case e.queue <- ev:
	default:
		e.missed.Add(1)
	}
}

// errEventTimeout is returned by Run when close has given OnEvent up.
var errEventTimeout = errors.New("OnEvent did not return within the stop timeout and a lease duration")

// close ends the goroutine after the queued events. Nothing emits any more. OnEvent is
// the caller's and may never return, so close waits for at most that long, and then
// returns an error.
func (e *events) close(most time.Duration) error {
	if e.queue != nil {
		close(e.queue)
	}
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-e.done:
		return nil
	case <-late.C:
		return errEventTimeout
	}
}

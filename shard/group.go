// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
)

// Group is a number of partitions under one name, and this process as one of the
// workers that have them. All methods may be called concurrently. It holds
// nothing that needs closing: [Group.Run] gives back what it has taken.
//
// A client runs one worker of a group. Its owner name ([tenure.Options.Owner])
// is the worker's, by which others hand partitions over to it: no two workers
// may have the same.
type Group struct {
	client  *tenure.Client
	name    string
	options Options
	initial spec

	mu      sync.Mutex
	running bool
	leave   chan struct{} // closed by Leave; new with each Run
	ended   chan struct{} // closed when Run returns
	worker  *worker       // nil while it has no session
}

// New returns the group of the given name. Which partitions it has must be given
// in the options; an error names what is wrong.
func New(client *tenure.Client, name string, options *Options) (*Group, error) {
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("client is nil: make one with tenure.New"))
	}
	o, err := options.withDefaults(client)
	errs = append(errs, checkName(name), err)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	initial, err := newSpec(o.Partitions, o.Names, o.Zones)
	if err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	return &Group{client: client, name: name, options: o, initial: initial}, nil
}

// Name returns the name of the group.
func (g *Group) Name() string { return g.name }

// Handler works on one partition, until ctx ends. It must return then: until it
// does, nobody else gets the partition. See [Group.Run].
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
//     the group has it no more, or the client is closed.
//
// A handler that returns before that is run again, under the same token: after a
// refresh period if it returned nil, and after a pause that doubles with each
// error. When it has failed five times in a row, each time within a lease, the
// partition is released; this worker keeps away from it for ten leases, and
// others find it.
//
// A worker that loses its session waits for its handlers, opens another session,
// and joins again. Run returns nil when it has left in order, and else an error
// that matches [ErrLeftEarly], [tenure.ErrClosed], [tenure.ErrStopTimeout] if a
// handler had not returned in time, or [ErrRunning]. It returns after all
// handlers have. A panic of a handler ends all the others, frees the partitions,
// and goes on in Run, as a [*Panic]. An OnEvent that does not return holds Run up for
// the client's StopTimeout and a lease at most; then the error says so.
func (g *Group) Run(ctx context.Context, handler Handler) (err error) {
	leave, err := g.begin(handler)
	if err != nil {
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
		leave: make(chan struct{}), period: period(g.client), pace: newPace(g.options.Claims, g.client.Options().HeartbeatPeriod),
	}
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-ctx.Done():
		case <-leave:
		case <-stop:
		}
		close(r.leave)
	})
	err = r.run()
	close(stop)
	watch.Wait()
	if r.thrown != nil {
		panic(r.thrown) //nolint:forbidigo // it is the handler's own, handed on
	}
	return wrap("run", g.name, err)
}

func (g *Group) begin(handler Handler) (leave chan struct{}, err error) {
	if handler == nil {
		return nil, errors.New("handler is nil")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running {
		return nil, ErrRunning
	}
	g.running = true
	g.leave, g.ended = make(chan struct{}), make(chan struct{})
	return g.leave, nil
}

func (g *Group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = false
	close(g.ended)
}

// Leave has the worker leave, as the end of Run's context does, and waits until
// Run has returned, or ctx has ended; the worker leaves nevertheless.
func (g *Group) Leave(ctx context.Context) error {
	g.mu.Lock()
	running, ended := g.running, g.ended
	if running {
		select {
		case <-g.leave:
		default:
			close(g.leave)
		}
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
	leave   chan struct{}   // closed when the worker is to leave
	period  time.Duration   // between two looks
	pace    pace            // of claims; guarded by the worker's mu
	thrown  *Panic
}

// period returns how often a worker looks at what it goes by. The client's may
// be far longer, where the store can watch.
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

func (r *run) leaves() bool {
	select {
	case <-r.leave:
		return true
	default:
		return false
	}
}

// open opens a session, for as long as it takes.
func (r *run) open() (*tenure.Session, error) {
	ctx, stop := context.WithCancel(r.values)
	defer stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-r.leave:
			stop()
		case <-ended:
		}
	}()
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
	// Epoch is that of the plan that the worker goes by.
	Epoch uint64
	// Members is how many workers the plan gives partitions to.
	Members int
	// Partitions is how many the group has, and Unassigned how many of them the
	// plan gives to nobody, because all are full, or all leave.
	Partitions, Unassigned int
	// Planned is how many partitions the worker is to have, Held how many it
	// has, those included that stop, and Surplus how many it has that others are
	// to have.
	Planned, Held, Surplus int
	// Claiming is how many partitions are about to be claimed, and MovingIn how
	// many others are asked for.
	Claiming, MovingIn int
	// Coordinator says that this worker writes the membership.
	Coordinator bool
}

// Stats returns the numbers of this worker as they are now. It sends nothing.
func (g *Group) Stats() Stats {
	g.mu.Lock()
	w := g.worker
	g.mu.Unlock()
	if w == nil {
		return Stats{Place: -1}
	}
	return w.stats()
}

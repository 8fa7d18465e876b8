// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/clock"
)

// Group is an application as tasks. Add them, then call Run once. Run and the
// tasks are concurrent; adding is not.
type Group struct {
	election  *tenure.Election
	options   Options
	notify    func(chan<- os.Signal, ...os.Signal) // the function notify, but in tests
	always    []*task
	leading   []*task
	following []*task

	stopping context.Context // ends when the stop begins
	stop     context.CancelCauseFunc

	mu       sync.Mutex // guards the fields below; never held while anything is waited for
	running  bool       // Run was called
	returned bool       // Run has taken the errors
	left     int        // tasks that have not returned; counted if none can start again
	errs     []error    // in the order in which they came
	panicked *PanicError
}

// Options are for one group. Nil means the defaults.
type Options struct {
	// StopTimeout bounds how long the group waits for a task to return after its context
	// has ended. It then goes on with the next task, and Run returns an error that
	// matches [ErrStopTimeout]. So a stop takes that long for each task that hangs; two
	// of them fit into the 30 s that Kubernetes gives. If zero, it is 10 s.
	StopTimeout time.Duration

	// Signals stop the group. If nil, they are SIGINT and SIGTERM; if empty,
	// none. The group catches only the first signal: a second one ends the program, as
	// usual. Inside a bubble of testing/synctest none is caught, whatever is set here.
	Signals []os.Signal

	// Logger gets a record of each start and end of a task. If nil, nothing is
	// logged.
	Logger *slog.Logger
}

const defaultStopTimeout = 10 * time.Second

// New returns a group without tasks. Several groups of one process must not
// share an election. Options may be nil. What is wrong with them, or with the
// tasks, is an error of Run.
func New(election *tenure.Election, options *Options) *Group {
	g := &Group{election: election, notify: notify}
	if options != nil {
		g.options = *options
		g.options.Signals = slices.Clone(options.Signals)
	}
	if g.options.StopTimeout == 0 {
		g.options.StopTimeout = defaultStopTimeout
	}
	if g.options.Signals == nil {
		g.options.Signals = []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	if g.options.Logger == nil {
		g.options.Logger = slog.New(slog.DiscardHandler)
	}
	return g
}

// Always adds a task of every replica. It is started before the replica
// campaigns, and stopped after everything else. If it returns nil, it is done.
//
// The name is for people, and no other task of the group has it. Adding a task
// after Run was called panics; that is a programmer's error.
func (g *Group) Always(name string, run func(ctx context.Context) error) {
	t := &task{name: name, kind: "always"}
	if run != nil {
		t.run = func(ctx context.Context, _ inputs) error { return run(ctx) }
	}
	g.add(&g.always, t)
}

// Leading adds a task of the leader. It is started in each term of this
// replica, when the following tasks have returned, and stopped before the lock
// is released. Its context ends with the lease, too. If it returns nil, it is
// done for this term.
//
// An error that it returns when the leadership has ended already is dropped,
// because work that loses its lease fails in many ways. Before that, any error
// stops the group.
//
// A group without leading tasks does not campaign: it follows all the time.
func (g *Group) Leading(name string, run func(ctx context.Context, lease *tenure.Lease) error) {
	t := &task{name: name, kind: "leading"}
	if run != nil {
		t.run = func(ctx context.Context, s inputs) error { return run(ctx, s.lease) }
	}
	g.add(&g.leading, t)
}

// Following adds a task of a replica that does not lead. It is started when
// another is seen to lead, or when a second has passed without this replica
// being elected, and stopped when it is elected, with [ErrElected]. It runs on
// when the leader changes, and while no process leads: see [Followed], which shows it.
// If it returns nil, it is done until this replica has led and follows again.
func (g *Group) Following(name string, run func(ctx context.Context, followed *Followed) error) {
	t := &task{name: name, kind: "following"}
	if run != nil {
		t.run = func(ctx context.Context, s inputs) error { return run(ctx, s.followed) }
	}
	g.add(&g.following, t)
}

func (g *Group) add(to *[]*task, t *task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running {
		panic(fmt.Sprintf("tasks: task %q is added after Run was called", t.name)) //nolint:forbidigo // a programmer's error, said in the comments
	}
	*to = append(*to, t)
}

// Run runs the tasks until the group has stopped, and returns when all of them
// have returned, or were given up.
//
// A requested stop is not an error: Run returns nil after a signal, after the end of
// ctx, and after [ErrStop]. It returns nil, too, when all tasks have returned nil in a
// group without leading tasks. Otherwise it returns the error that began the stop,
// joined with the errors that tasks returned while they were stopped, and with an error
// that matches [tenure.ErrLost] if the lease was lost before its tasks had returned.
// What a task returns because its context has ended does not count.
//
// If a task panicked, Run panics with a [*PanicError] instead of returning.
//
// The contexts of the tasks have ctx's values, and the order of the stop:
// ctx's end begins it, and does not reach the tasks before their turn. After
// the leading tasks have returned, Run waits for the store to confirm the
// release, for one lease duration at most. The client stays the caller's to
// close.
func (g *Group) Run(ctx context.Context) error {
	g.mu.Lock()
	if err := g.check(); err != nil {
		g.mu.Unlock()
		return err
	}
	g.running = true
	g.stopping, g.stop = context.WithCancelCause(ctx)
	g.left = len(g.always) + len(g.following)
	if len(g.leading) == 0 && g.left == 0 {
		g.stop(errDone)
	}
	g.mu.Unlock()
	defer g.stop(errEnded)
	unhook := g.hookSignals()

	always := &crew{g: g}
	always.start(context.WithoutCancel(ctx), g.always, inputs{}, func() bool { return g.stopping.Err() == nil })
	c := newCandidate(g, ctx)
	go c.run()
	<-g.stopping.Done()
	select {
	case <-c.done:
	case <-c.stuck:
	}
	always.stop(context.Cause(g.stopping))
	unhook()
	return g.result()
}

// check returns what is wrong with the group. The caller holds the group.
func (g *Group) check() error {
	var errs []error
	if g.running {
		errs = append(errs, errors.New("the group has run before: make a new one"))
	}
	if g.election == nil {
		errs = append(errs, errors.New("election is nil: pass one, such as client.Election(name, nil)"))
	}
	if g.options.StopTimeout < 0 {
		errs = append(errs, fmt.Errorf("stop timeout %v must not be negative", g.options.StopTimeout))
	}
	names := map[string]bool{}
	for _, t := range slices.Concat(g.always, g.leading, g.following) {
		switch {
		case t.name == "":
			errs = append(errs, errors.New("a task has no name"))
		case names[t.name]:
			errs = append(errs, fmt.Errorf("task name %q is used twice: give each task its own name", t.name))
		}
		switch {
		case t.run == nil:
			errs = append(errs, fmt.Errorf("task %q has no function", t.name))
		case t.check != nil && g.election != nil && t.name != "":
			if err := t.check(); err != nil {
				errs = append(errs, &Error{t.name, err})
			}
		}
		names[t.name] = true
	}
	if len(errs) > 0 {
		return fmt.Errorf("tasks: %w", errors.Join(errs...))
	}
	return nil
}

// fail notes an error and begins the stop.
func (g *Group) fail(err error) {
	g.mu.Lock()
	g.errs = append(g.errs, err)
	g.mu.Unlock()
	g.stop(err)
}

// result takes the errors until now, and panics if a task has.
func (g *Group) result() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.returned = true
	var err error
	switch len(g.errs) {
	case 0:
	case 1:
		err = g.errs[0]
	default:
		err = errors.Join(g.errs...)
	}
	if p := g.panicked; p != nil {
		p.Err = err
		panic(p) //nolint:forbidigo // a task's panic
	}
	return err
}

// notify is signal.Notify. In a bubble of testing/synctest it does nothing, so that a
// signal ends the test, like any test: package signal uses the channel from outside of
// the bubble, which is a fatal error.
func notify(c chan<- os.Signal, signals ...os.Signal) {
	if !clock.InBubble() {
		signal.Notify(c, signals...)
	}
}

// hookSignals makes the first signal begin the stop. The returned function ends that.
func (g *Group) hookSignals() (unhook func()) {
	if len(g.options.Signals) == 0 {
		return func() {}
	}
	signals := make(chan os.Signal, 1)
	g.notify(signals, g.options.Signals...)
	unhooked, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			// A second signal has its default effect: the sender does not want an orderly stop.
			signal.Stop(signals)
			g.stop(&SignalError{s})
		case <-unhooked:
			signal.Stop(signals)
		}
	}()
	return func() { close(unhooked); <-done }
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
)

// LeaseSet is several locks that are held at once, all of them under one session: see
// [Session.AcquireAll]. All methods may be called concurrently.
type LeaseSet struct {
	session *Session
	ctx     context.Context
	cancel  context.CancelCauseFunc
	leases  []*Lease // in the order of their names

	mu   sync.Mutex
	plan *protocol.Gathering // guarded by mu
}

// AcquireAll takes several locks under the session, all of them or none, and waits until
// it has them. Names may come in any order. At least one must be given, and none twice.
//
// The locks are taken one after the other in the order of their names, the same in every
// process, so that those who call AcquireAll never wait for each other in a ring. That
// holds for one call at a time: a program that has some locks and then waits for others
// must keep to that order itself.
//
// If one of the locks cannot be had, or ctx ends, those that were taken are released, and
// the error is that of [Session.Acquire] for the lock that was waited for. One that was
// taken may end while another is waited for: its holder is asked to step down, say. Then
// all are released, and AcquireAll begins again.
//
// The options count for each lock by itself, but Wait for all of them together. It costs one write for each lock to take it,
// one to release it, and no heartbeat but that of the session.
func (s *Session) AcquireAll(ctx context.Context, names []string, options *AcquireOptions) (*LeaseSet, error) {
	return s.acquireAll(ctx, "acquire all", names, options, false)
}

// TryAcquireAll is like AcquireAll, and does not wait for holders. If somebody holds one
// of the locks, the error is a [*HeldError], which matches [ErrHeld].
func (s *Session) TryAcquireAll(ctx context.Context, names []string, options *AcquireOptions) (*LeaseSet, error) {
	return s.acquireAll(ctx, "try acquire all", names, options, true)
}

// RunAll takes several locks as AcquireAll does, runs work while all of them are held,
// waits for it to return, and releases them. The context of work carries ctx's values,
// and ends with ctx and with the first of the leases. What RunAll returns is as
// [Client.Run] has it.
func (s *Session) RunAll(ctx context.Context, names []string, options *AcquireOptions, work func(context.Context, *LeaseSet) error) error {
	if work == nil && checkNames(names) == nil {
		return wrap("run all", names[0], errNoWork)
	}
	t, err := s.AcquireAll(ctx, names, options)
	if err != nil {
		return err
	}
	return t.run(ctx, work)
}

// Leases returns the leases, in the order of the names of their locks.
func (t *LeaseSet) Leases() []*Lease { return slices.Clone(t.leases) }

// Lease returns the lease of a lock, nil if the set does not have that lock.
func (t *LeaseSet) Lease(name string) *Lease {
	i, found := slices.BinarySearchFunc(t.leases, name, func(l *Lease, name string) int { return cmp.Compare(l.Name(), name) })
	if !found {
		return nil
	}
	return t.leases[i]
}

// Session returns the session that keeps all of the locks alive.
func (t *LeaseSet) Session() *Session { return t.session }

// Context returns a context that ends when the first of the leases ends, or is told to
// stop: see [Lease.Context]. context.Cause says which, and why.
func (t *LeaseSet) Context() context.Context { return t.ctx }

// Check returns nil while the holder may act under all of the locks, else what
// [Lease.Check] returns of the first that has ended. Call it before every side effect.
func (t *LeaseSet) Check() error {
	for _, l := range t.leases {
		if err := l.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Remaining returns the time until the first deadline of a lease, 0 when the right to act
// under one of them has ended.
func (t *LeaseSet) Remaining() time.Duration {
	least := t.leases[0].Remaining()
	for _, l := range t.leases[1:] {
		least = min(least, l.Remaining())
	}
	return least
}

// Release releases all of the locks at the same time, as [Lease.Release] does each, and
// returns their errors joined. Call it when the work has returned. Releasing again returns
// the same.
func (t *LeaseSet) Release(ctx context.Context) error {
	return errors.Join(t.release(ctx, nil)...)
}

func (t *LeaseSet) release(ctx context.Context, options *ReleaseOptions) []error {
	t.mu.Lock()
	t.plan.Done()
	t.mu.Unlock()
	t.cancel(ErrReleased)
	failed := make([]error, len(t.leases))
	var all sync.WaitGroup
	for i, l := range t.leases {
		all.Go(func() { failed[i] = l.ReleaseWith(ctx, options) })
	}
	all.Wait()
	return failed
}

func (s *Session) acquireAll(ctx context.Context, op string, names []string, options *AcquireOptions, try bool) (*LeaseSet, error) {
	if err := checkNames(names); err != nil {
		return nil, wrap(op, "session "+s.ID(), err)
	}
	c := collecting{s: s, op: op, try: try}
	if options != nil {
		c.options = *options
	}
	over := func(err error) error { return err }
	if !try && c.options.Wait > 0 { // for all of them together
		var stop context.CancelFunc
		ctx, stop, over = engine.Within(ctx, c.options.Wait)
		defer stop()
		c.options.Wait = 0
	}
	c.begin()
	defer c.forget()
	plan := protocol.NewGathering(names)
	var refused error
	for {
		switch move, name := plan.Next(c.good); move {
		case protocol.Take:
			switch err := c.take(ctx, name); {
			case err == nil:
				plan.Took(name)
			case !errors.Is(err, errSetEnded):
				refused = err
				plan.Refused()
			}
		case protocol.GiveBack:
			back := plan.Back()
			c.giveBack(back)
			plan.GaveBack(back)
		case protocol.Gathered:
			var e *Error
			if errors.As(refused, &e) {
				refused = wrap(e.Op, e.Key, over(e.Err))
			}
			return nil, refused
		default:
			return s.newSet(plan, c.held), nil
		}
	}
}

// collecting is one call of AcquireAll.
type collecting struct {
	s       *Session
	op      string
	options AcquireOptions
	try     bool
	leaving []*Lease // given back

	// Since it has begun, or begun again:
	held   map[string]*Lease
	ended  context.Context // when one of those has
	end    context.CancelFunc
	unhook []func() bool
}

// begin begins with none.
func (c *collecting) begin() {
	c.held, c.unhook = map[string]*Lease{}, nil
	c.ended, c.end = context.WithCancel(context.Background())
}

// forget watches over none any more.
func (c *collecting) forget() {
	for _, unhook := range c.unhook {
		unhook()
	}
	c.end()
}

// errSetEnded is why a lock is not waited for any more: one that is held has ended.
var errSetEnded = errors.New("another lock of the set has ended")

// good says whether a lock that is held may be acted upon, and nobody has told its holder
// to stop.
func (c *collecting) good(name string) bool { return good(c.held[name]) }

func good(l *Lease) bool { return l.Context().Err() == nil && l.Check() == nil }

// take acquires a lock. It gives up with errSetEnded when one that is held ends.
func (c *collecting) take(ctx context.Context, name string) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ended, func() { cancel(errSetEnded) })()
	for _, l := range c.leaving { // else this process would wait for itself
		_ = l.held.AwaitEnd(waiting) // what could not be released runs out by itself
	}
	c.leaving = nil
	l, err := c.s.client.acquire(waiting, c.op, name, &c.options, c.s.held, c.try)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(waiting), errSetEnded) {
		return errSetEnded
	}
	if err == nil {
		c.held[name] = l
		c.unhook = append(c.unhook, context.AfterFunc(l.Context(), c.end))
	}
	return err
}

// giveBack begins to release locks, which are all that are held, and begins again.
func (c *collecting) giveBack(names []string) {
	c.forget()
	for _, name := range names {
		l := c.held[name]
		l.held.Free()
		c.leaving = append(c.leaving, l)
	}
	c.begin()
}

func (s *Session) newSet(plan *protocol.Gathering, held map[string]*Lease) *LeaseSet {
	t := &LeaseSet{session: s, plan: plan}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	for _, l := range held {
		t.leases = append(t.leases, l)
	}
	slices.SortFunc(t.leases, func(a, b *Lease) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, l := range t.leases {
		context.AfterFunc(l.Context(), t.ended) // it is over with the lease
	}
	t.ended() // not a moment later, if one has ended by now
	return t
}

// ended tells the work to stop when a lease has ended.
func (t *LeaseSet) ended() {
	t.mu.Lock()
	defer t.mu.Unlock()
	move, _ := t.plan.Next(func(name string) bool { return good(t.Lease(name)) })
	if move != protocol.Stop {
		return
	}
	for _, l := range t.leases {
		if !good(l) {
			t.cancel(wrap("hold", l.Name(), context.Cause(l.Context())))
			return
		}
	}
}

// run runs work under all leases, and releases them.
func (t *LeaseSet) run(ctx context.Context, work func(context.Context, *LeaseSet) error) error {
	bound, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(t.ctx, func() { stop(context.Cause(t.ctx)) })()
	defer context.AfterFunc(ctx, func() {
		for _, l := range t.leases {
			l.held.Stop(context.Cause(ctx))
		}
	})()
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			t.release(context.WithoutCancel(ctx), t.failure(ctx, errBroken))
		}
	}()
	err := work(bound, t)
	returned = true

	asked := context.Cause(t.ctx)
	for i, lost := range t.release(context.WithoutCancel(ctx), t.failure(ctx, err)) {
		if errors.Is(lost, ErrLost) || errors.Is(lost, ErrStopTimeout) {
			err = lostWith(&Error{"run all", t.leases[i].Name(), errors.Unwrap(lost)}, err)
		}
	}
	if told := new(Error); err != nil && errors.Is(asked, ErrSteppedDown) && errors.As(asked, &told) {
		return lostWith(&Error{"run all", told.Key, told.Err}, err)
	}
	return err
}

// failure returns what the releases say of the error of work: see that of a lease.
func (t *LeaseSet) failure(ctx context.Context, err error) *ReleaseOptions {
	if err == nil || ctx.Err() != nil || t.ctx.Err() != nil || t.Check() != nil {
		return nil
	}
	return &ReleaseOptions{Failed: err}
}

// checkNames returns an error if names are not those of a set.
func checkNames(names []string) error {
	if len(names) == 0 {
		return text.Invalid("no lock is named: name one at least")
	}
	seen := map[string]bool{}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		if seen[name] {
			return text.Invalid("lock name %q is there twice: a set has each lock once", name)
		}
		seen[name] = true
	}
	return nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
)

// Session is one heartbeat that keeps any number of locks of a process alive. A
// lock under a session is written only when it changes hands. When the session
// ends, all of them end. The session's record in the store is no lock's: see
// [Session.ID].
//
// All methods may be called concurrently. A session that was lost does not come
// back: open another one.
type Session struct {
	held   *engine.SessionHolder
	client *Client
}

// SessionOptions are for one session. Nil means the defaults.
type SessionOptions struct {
	// Data is written into the session's record, for others to read: the address of
	// the process, say. It has at most 64 KiB.
	Data []byte

	// Timing has the durations of the session and of all locks under it, if they are not
	// to be the client's. ProgressTimeout counts for each lock.
	Timing Timing

	// StoreTimeout is how long the store may fail to give any answer before
	// OpenSession returns its error. If zero, it is the lease duration; negative
	// means for ever.
	StoreTimeout time.Duration
}

// OpenSession opens a session: one heartbeat that keeps any number of locks of
// this process alive. It is open until it is closed or lost. It costs one write,
// and one each heartbeat period. ctx bounds the opening alone.
//
// Its heartbeats are sent in the background, whatever [Options.ManualHeartbeat] says;
// [Options.ProgressTimeout] counts for each lock under it.
//
// The error matches the context's, [ErrClosed], [ErrExpired] if the process was
// paused until the session was over again, or the store's own error if the store
// cannot be used, cannot keep sessions, or gave no answer for StoreTimeout.
func (c *Client) OpenSession(ctx context.Context, options *SessionOptions) (*Session, error) {
	const op, what = "open", "session"
	var o SessionOptions
	if options != nil {
		o = *options
	}
	err := checkSessionData(o.Data)
	if err == nil && ctx.Err() != nil {
		err = engine.Done(ctx)
	}
	if err != nil {
		return nil, wrap(op, what, err)
	}
	t, err := o.Timing.of(c.timing)
	if err != nil {
		return nil, wrap(op, what, err)
	}
	patience := t.Lease
	if o.StoreTimeout != 0 {
		patience = max(0, o.StoreTimeout)
	}
	held, err := c.engine.OpenSession(ctx, engine.SessionOptions{Timing: t, Data: append([]byte(nil), o.Data...), Patience: patience})
	if err != nil {
		return nil, wrap(op, what, err)
	}
	s := &Session{held: held, client: c}
	held.Of = s
	return s, nil
}

// ID returns the id of the session. No id is ever used twice.
func (s *Session) ID() string { return s.held.ID() }

// Client returns the client that opened the session.
func (s *Session) Client() *Client { return s.client }

// Context returns a context that ends when no lock may be held under the session
// any more: at its deadline, on its loss, and when it is closed. The contexts of
// all leases under it end with it. context.Cause says why: an error that matches
// [ErrLost], or [ErrSessionClosed], or [ErrClosed].
func (s *Session) Context() context.Context { return s.held.Context() }

// Check returns nil while the holders of the locks under the session may act, if
// nothing else has ended their leases, as [Lease.Check] does.
func (s *Session) Check() error {
	err := s.held.Check()
	if err == ErrReleased { //nolint:errorlint // this one: it was closed
		err = ErrSessionClosed
	}
	return s.wrapped("check", err)
}

// wrapped returns err as that of an operation on the session, nil for nil.
func (s *Session) wrapped(op string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(op, "session "+s.ID(), err)
}

// Remaining returns the time until the deadline, 0 when the session has ended.
func (s *Session) Remaining() time.Duration { return s.held.Remaining() }

// Renew sends a heartbeat now, as [Lease.Renew] does.
func (s *Session) Renew(ctx context.Context) error { return s.wrapped("renew", s.held.Renew(ctx)) }

// SetData writes data into the session's record, as [Lease.SetData] does into that
// of a lock. It has at most 64 KiB.
func (s *Session) SetData(ctx context.Context, data []byte) error {
	err := checkSessionData(data)
	if err == nil {
		err = s.held.SetData(ctx, data)
	}
	return s.wrapped("set data", err)
}

// Leases returns how many locks are held under the session, including those whose
// work is still stopping.
func (s *Session) Leases() int { return s.held.Locks() }

// Acquire takes a lock under the session, as [Client.Acquire] does for one that is
// its own lease. If the session ends meanwhile, or has ended, the error matches
// [ErrSessionClosed] and the reason for the end.
func (s *Session) Acquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.client.acquire(ctx, "acquire", name, options, s.held, false)
}

// TryAcquire takes a lock under the session, as [Client.TryAcquire] does for one
// that is its own lease.
func (s *Session) TryAcquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.client.acquire(ctx, "try acquire", name, options, s.held, true)
}

// Run runs work while it holds a lock under the session, as [Client.Run] does
// under one that is its own lease.
func (s *Session) Run(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error) error {
	if err := checkWork("run", name, work == nil); err != nil {
		return err
	}
	return run(ctx, name, options, work, s.Acquire)
}

// Election returns the election of the given name, as [Client.Election] does; its
// winner leads under the session. When the session is lost, the election's Run
// returns an error that matches [ErrSessionClosed]; when the session is closed, Run
// returns what work returned.
func (s *Session) Election(name string, options *ElectionOptions) *Election {
	return s.client.election(name, options, s.held)
}

// Close ends the session. It cancels the contexts of all leases under it with
// [ErrSessionClosed], and fails the acquires that wait for a lock under it. When
// every lease has been released by its holder, one write frees all their locks;
// until then heartbeats go on, for [Options.StopTimeout] at most.
//
// Close waits for that, or until ctx ends, and returns nil or an error as
// [Lease.Release] does: [ErrStopTimeout] if a lease was not released by then, so
// that the session's record runs out by itself. Closing again returns the same.
//
// A context that is already done at the call, or that Close itself ends, is
// ignored, so that a deferred Close works under the context of a signal. Close then
// takes no longer than [Options.StopTimeout], a lease duration, and the request
// that is under way then.
func (s *Session) Close(ctx context.Context) error { return s.wrapped("close", s.held.Close(ctx)) }

// Session returns the session that keeps the lock alive, nil if the lock is its
// own lease.
func (l *Lease) Session() *Session {
	if s := l.held.Under(); s != nil {
		return s.Of.(*Session)
	}
	return nil
}

func checkSessionData(data []byte) error {
	if len(data) > driver.MaxSessionDataLen {
		return text.Invalid("data has %d bytes: at most %d are allowed for a session", len(data), driver.MaxSessionDataLen)
	}
	return nil
}

// SessionStatus is what the record of a session shows.
type SessionStatus struct {
	ID string
	// State is what the record says: StateAlive or StateClosed; empty if there is
	// none.
	State string
	// Alive says that the session may be alive, as far as this client can know.
	Alive              bool
	Owner, Host, Label string
	Data               []byte
	Since              time.Time // when it was opened, by its owner's wall clock
	Until              time.Time // when it was closed by its owner, zero before
	// Lease and Heartbeat are the durations that its owner keeps.
	Lease, Heartbeat time.Duration
	// End says how it was closed, as in [Tenure.End]: EndReleased by its owner,
	// EndExpired by another client that had seen no sign of its life.
	End string
	// Requests is how many requests to its locks lie in the record.
	Requests int
	// Unchanged is how long this client has seen no sign of life. FreeIn is after
	// how long at the latest its locks can be taken if none comes.
	Unchanged, FreeIn time.Duration
}

// SessionStatus reads the record of a session. It waits as [Client.Status] does.
// A session that is not there, because it was closed long ago, has an empty State.
func (c *Client) SessionStatus(ctx context.Context, id string, options *ReadOptions) (SessionStatus, error) {
	if err := checkSessionID(id); err != nil {
		return SessionStatus{}, wrap("status", "session", err)
	}
	err := ctx.Err()
	if err == nil && c.engine.Closed() {
		err = ErrClosed
	}
	if err == nil {
		err = c.engine.ReadSessions(ctx, []string{id}, options.orDefault().Eventual)
	}
	if err != nil {
		return SessionStatus{}, wrap("status", "session "+id, err)
	}
	return sessionStatusOf(id, c.engine.Session(id)), nil
}

// Sessions reads the records of all sessions, in the order of their ids. It may be
// slow. A record that cannot be read comes as an error, and the others follow.
func (c *Client) Sessions(ctx context.Context) iter.Seq2[SessionStatus, error] {
	return func(yield func(SessionStatus, error) bool) {
		const op, what = "list", "sessions"
		for cursor := ""; ; {
			if c.engine.Closed() {
				yield(SessionStatus{}, wrap(op, what, ErrClosed))
				return
			}
			page, seen, err := c.engine.ListSessions(ctx, cursor)
			if err != nil {
				yield(SessionStatus{}, wrap(op, what, err))
				return
			}
			for i, rec := range page.Records {
				if !yield(sessionStatusOf(driver.SessionID(rec.Key), seen[i]), nil) {
					return
				}
			}
			for key, err := range page.Unreadable {
				if !yield(SessionStatus{ID: driver.SessionID(key)}, wrap(op, key, err)) {
					return
				}
			}
			if cursor = page.Cursor; cursor == "" {
				return
			}
		}
	}
}

func sessionStatusOf(id string, s engine.SessionSnapshot) SessionStatus {
	if !s.Found {
		return SessionStatus{ID: id}
	}
	rec := s.Record
	st := SessionStatus{
		ID: id, State: string(rec.State), Owner: rec.Owner, Host: rec.Host, Label: rec.Label, Data: bytes.Clone(rec.Data),
		Since: rec.Since, Until: rec.Until, Lease: rec.Lease, Heartbeat: rec.Heartbeat,
		End: string(rec.End), Requests: len(rec.Requests), Unchanged: s.Since, FreeIn: s.FreeIn,
	}
	st.Alive = s.Alive
	return st
}

func checkSessionID(id string) error {
	if id == "" {
		return text.Invalid("the id of the session is empty")
	}
	return text.CheckForm("session id", id, driver.MaxSessionLen)
}

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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/ringing"
)

// keeping is what a lease and a session have in common: a record that a machine
// keeps alive, the right to act that rests on it, and the callers that wait for a
// write.
type keeping struct {
	c        *base
	t        protocol.Timing
	key      string
	of       keeper
	since    time.Duration // on the holder's clock: when it was granted
	deadline engine.Deadline
	ctx      context.Context
	cancel   context.CancelCauseFunc

	loop          engine.Run
	m             machine          // what is run
	h             *protocol.Holder // of the record: m, or what m is built on
	deadlineTimer engine.Timer     // takes no mutex of ours
	lock          *ringing.Lock    // of the client's bell; nil without one
	early         engine.Timer     // sends a heartbeat that a message has asked for

	mu       *sync.Mutex   // guards m and the fields below; one for a session and all under it; never held across I/O
	hurried  time.Duration // when the last heartbeat was sent that a message had asked for
	cause    error         // why the context was cancelled
	waits    []writeWait
	over     chan struct{} // closed when nothing is sent any more
	finished bool          // over, or quiet: the client need not wait
}

// machine is what a holder's machine and a session's can be told.
type machine interface {
	protocol.Machine
	Stop(now time.Duration) protocol.Action
	Expire(now time.Duration) protocol.Action
	Replace(now time.Duration, err error) protocol.Action
	Renew(now time.Duration) protocol.Action
	SetData(now time.Duration, data []byte) (uint64, protocol.Action)
}

// keeper is the lease or the session. Its methods are called under the mutex.
type keeper interface {
	// event returns an event that names it.
	event(kind EventKind) Event
	// moves tells the machine of the progress of the work. It is called before each
	// step; after is called after it.
	moves()
	after(now time.Duration, a protocol.Action)
	// cancelFor cancels the context.
	cancelFor(cause error)
	// followed returns whether it has ended with its session, and why.
	followed() (yes bool, cause error)
	// done is called when nothing is sent any more, with the event that tells so, and
	// returns the one that is emitted.
	done(e Event) Event
	// asked is called when a message says that a request is in the record.
	asked()
	// dropped is called when the client need not wait for it any more.
	dropped()
	// isSession says that locks rest on it.
	isSession() bool
}

// writeWait is a caller who waits for a write of the holder.
type writeWait struct {
	data uint64        // serial number of the data that must be confirmed
	sent time.Duration // the confirmed write must not be older
	done chan error
}

// prepare makes all that is needed before the machine is stepped. It ends with ctx.
func (k *keeping) prepare(ctx context.Context, of keeper, mu *sync.Mutex, parent *engine.Deadline) {
	c := k.c
	k.of, k.mu, k.over = of, mu, make(chan struct{})
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	k.deadline.Now, k.deadline.Parent, k.deadline.Late = c.holder, parent, c.poke
	k.deadlineTimer.Run, k.early.Run = k.reachDeadline, k.hurry
	k.loop = engine.Run{
		Mutex: mu, Clock: c.holder, Timers: c.beats,
		Send: func(call *protocol.Call, to engine.Caller) { c.send(k.t.RequestTimeout, k.h.Deadline(), call, to) },
	}
	k.loop.Before, k.loop.Stepped, k.loop.Replied = k.before, k.stepped, k.replied
	c.deadlines.Nap(napOf(k.t))
	c.beats.Nap(napOf(k.t))
	k.loop.Prepare() // the timer of the deadline takes no mutex
}

// begin begins to run the machine. The caller holds the mutex: from the moment that the
// timer of the deadline is set, which may have passed already, timers step the machine.
func (k *keeping) begin(m machine, h *protocol.Holder) {
	k.m, k.h, k.loop.Machine = m, h, m
	k.deadline.Begin(h.Deadline())
	if k.deadline.Parent == nil {
		k.c.deadlines.Set(&k.deadlineTimer, h.Deadline())
	}
	rec := h.Record()
	k.lock = k.c.ringer.holds(k.key, rec.Bell, rec.Lease, k.of.asked)
}

// do makes one step of the machine and carries out what it wants.
func (k *keeping) do(step func(now time.Duration) protocol.Action) {
	k.loop.Do(step)
}

// before tells the machine what Check or a timer has found already. The caller
// holds the mutex.
func (k *keeping) before(now time.Duration) {
	k.of.moves()
	if k.deadline.Own() == engine.EndedExpired && !k.h.Expired() {
		k.loop.Carry(now, k.m.Expire(now)) // Check, or a timer, was quicker
	}
}

// stepped carries out what a step has led to.
func (k *keeping) stepped(now time.Duration, a protocol.Action) {
	if k.h.Expired() {
		k.deadline.End(engine.EndedExpired)
	} else {
		k.deadline.Extend(k.h.Deadline())
	}
	for _, n := range a.Notes {
		k.note(n, now)
	}
	k.settle()
	k.of.after(now, a)
}

// stop tells the holder to stop, and has the heartbeats go on meanwhile.
func (k *keeping) stop(cause error) {
	k.do(func(now time.Duration) protocol.Action {
		k.stopFor(cause)
		return k.m.Stop(now)
	})
}

// stopFor notes the cause of a stop, if nothing else has ended it.
func (k *keeping) stopFor(cause error) {
	if k.h.Cause() == protocol.None {
		k.cause = cause
	}
}

// replied rings those who wait when a release may have been applied. What is done when
// it certainly was, the note of its end does.
func (k *keeping) replied(_ time.Duration, call *protocol.Call, r protocol.Result) {
	if call.Kind == protocol.Release && r.Outcome == protocol.Unknown {
		k.c.ringer.rings(k.lock)
	}
}

// rings rings those who wait when nothing is sent any more, if others may take the lock
// now.
func (k *keeping) rings() {
	by, _ := k.h.By()
	switch freed := k.h.Freed(); {
	case freed == protocol.Released, freed == protocol.Uncertain:
		k.c.ringer.rings(k.lock)
	case freed == protocol.Gone && by.State != driver.Held && by.State != "":
		k.c.ringer.rings(k.lock) // an operator has freed it
	}
	k.c.ringer.leaves(k.lock)
	k.lock = nil
}

// earlyPerHeartbeat bounds how many heartbeats messages can cause in one period: whoever
// can read the store can forge them.
const earlyPerHeartbeat = 4

// hurries has a heartbeat sent soon: a message says that a request is in the record.
func (k *keeping) hurries() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.finished || k.t.Manual && !k.isSession() {
		return // nobody else sends heartbeats for the work
	}
	at := k.c.clock.Holder()
	if k.hurried > 0 {
		at = max(at, k.hurried+k.t.Heartbeat/earlyPerHeartbeat)
	}
	k.c.beats.Set(&k.early, at)
}

// hurry sends it.
func (k *keeping) hurry(time.Duration) {
	k.do(func(now time.Duration) protocol.Action {
		if k.h.Cause() != protocol.None {
			return k.m.Step(now)
		}
		k.hurried = now
		return k.m.Renew(now)
	})
}

// reachDeadline is run when the deadline, as it was when it was last looked at, has
// come. It takes no mutex of ours.
func (k *keeping) reachDeadline(now time.Duration) {
	again, expired := k.deadline.Reach(now)
	switch {
	case expired:
		k.of.cancelFor(ErrExpired)
		k.loop.SetAt(0) // the machine learns it there
	case again > 0:
		k.c.deadlines.Set(&k.deadlineTimer, again)
	}
}

func (k *keeping) note(n protocol.Note, now time.Duration) {
	e := k.of.event("")
	if (n == protocol.NoteRenewed || n == protocol.NoteSafe) && k.h.Expired() {
		return // it only keeps others away while the work drains
	}
	switch n {
	case protocol.NoteRenewed:
		e.Kind, e.Took, e.Remaining = EventRenewed, now-k.h.Sent(), k.h.Deadline()-now
		if k.deadline.Parent != nil {
			e.Took = 0 // a write of the lock alone: the session's heartbeats are its own
		}
	case protocol.NoteJeopardy:
		e.Kind, e.Err, e.Remaining = EventJeopardy, k.h.Err(), max(0, k.h.Deadline()-now)
	case protocol.NoteSafe:
		e.Kind, e.Remaining = EventSafe, k.h.Deadline()-now
	case protocol.NoteEnded:
		e.Kind, e.Err = k.noteEnded()
	case protocol.NoteQuiet:
		if k.h.Cause() != protocol.Stalled {
			k.deadline.End(engine.EndedStopTimeout)
			e.Kind, e.Err = EventStopTimeout, ErrStopTimeout
		}
		k.finish()
	case protocol.NoteOver:
		e.Kind, e.Held = EventReleased, now-k.since
		if freed := k.h.Freed(); freed != protocol.Released {
			e.Kind, e.Err = EventEnded, k.h.Err()
			if freed == protocol.Gone {
				k.deadline.End(engine.EndedSuperseded) // while the work drained
				e.Err = k.superseded()
			}
		}
		k.c.deadlines.Drop(&k.deadlineTimer)
		k.rings()
		close(k.over)
		e = k.of.done(e)
		k.finish()
	}
	if e.Kind != "" {
		k.c.events.emit(e)
	}
}

// noteEnded cancels the context, for the first cause that the machine knows.
func (k *keeping) noteEnded() (EventKind, error) {
	kind := EventLost
	switch k.h.Cause() {
	case protocol.Expired:
		k.deadline.End(engine.EndedExpired)
		k.cause = ErrExpired
	case protocol.Superseded:
		k.deadline.End(engine.EndedSuperseded)
		k.cause = k.superseded()
	case protocol.Stalled:
		k.deadline.End(engine.EndedStalled)
		k.cause = ErrStalled
	case protocol.Asked:
		kind, k.cause = EventStopping, steppedDown(k.h.Asked())
	default:
		kind = EventStopping
	}
	if yes, cause := k.of.followed(); yes {
		k.cause = cause
	} else {
		k.of.cancelFor(k.cause)
	}
	return kind, k.cause
}

// finish tells the client that it need not wait any longer.
func (k *keeping) finish() {
	if !k.finished {
		k.finished = true
		k.c.deadlines.Rest(napOf(k.t))
		k.c.beats.Rest(napOf(k.t))
		k.c.beats.Drop(&k.early)
		k.of.dropped()
	}
}

// standing reports whether the store was not replaced yet. If it was, standing ends
// what has begun.
func (k *keeping) standing() bool {
	if err := k.c.store.Gone(); err != nil {
		k.replaced(err)
		return false
	}
	return true
}

// void ends the right to act because the store was replaced, and replaced all the rest.
func (k *keeping) void() { k.deadline.End(engine.EndedReplaced) }

func (k *keeping) replaced(err error) {
	k.void()
	k.do(func(now time.Duration) protocol.Action { return k.m.Replace(now, err) })
}

// renew sends a heartbeat now, and waits for it.
func (k *keeping) renew(ctx context.Context) error {
	return k.await(ctx, func(now time.Duration) (writeWait, protocol.Action) {
		return writeWait{sent: now}, k.m.Renew(now)
	})
}

// setData writes data into the record, and waits until that is confirmed.
func (k *keeping) setData(ctx context.Context, data []byte) error {
	data = append([]byte{}, data...)
	return k.await(ctx, func(now time.Duration) (writeWait, protocol.Action) {
		serial, a := k.m.SetData(now, data)
		return writeWait{data: serial}, a
	})
}

func (k *keeping) await(ctx context.Context, ask func(time.Duration) (writeWait, protocol.Action)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if why := k.deadline.Ended(); why != engine.NotEnded {
		return k.endedError(why)
	}
	w := writeWait{done: make(chan error, 1)}
	k.do(func(now time.Duration) protocol.Action {
		asked, a := ask(now)
		w.data, w.sent = asked.data, asked.sent
		k.waits = append(k.waits, w)
		return a
	})
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return uncertain(done(ctx))
	case <-k.c.gone:
		return uncertain(ErrClosed)
	}
}

// settle answers the callers whose write is confirmed, or cannot be any more.
func (k *keeping) settle() {
	if len(k.waits) == 0 {
		return
	}
	ended := k.h.Over() || k.h.Quiet() || k.h.Expired()
	kept := k.waits[:0]
	for _, w := range k.waits {
		switch {
		case w.data == 0 && k.deadline.Own() == engine.EndedExpired:
			// Somebody was told so while the heartbeat was being confirmed: nothing is renewed.
			w.done <- k.endedError(engine.EndedExpired)
		case k.h.DataKept() >= w.data && (w.sent == 0 || k.h.Sent() >= w.sent):
			w.done <- nil
		case ended:
			err := k.endedError(k.deadline.Own())
			if w.data > 0 && !k.h.Withdraw(w.data) {
				err = uncertain(err) // an attempt may have been applied, or may be yet
			}
			w.done <- err
		case w.data > 0 && errors.Is(k.h.Err(), errors.ErrUnsupported) && k.h.Withdraw(w.data):
			w.done <- k.h.Err() // the store never writes them: the lease goes on without
		default:
			kept = append(kept, w)
		}
	}
	clear(k.waits[len(kept):])
	k.waits = kept
}

// endedError returns why the right has ended, as an error.
func (k *keeping) endedError(why engine.Ending) error {
	switch why {
	case engine.EndedReplaced:
		return &SupersededError{Replaced: k.c.store.Gone()}
	case engine.EndedReleased:
		return ErrReleased
	case engine.EndedSuperseded:
		return ErrSuperseded
	case engine.EndedStalled:
		return ErrStalled
	case engine.EndedStopTimeout:
		return ErrStopTimeout
	default:
		return ErrExpired
	}
}

// result says how it ended, once it is over.
func (k *keeping) result() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	freed := k.h.Freed()
	stopped := k.h.Cause() == protocol.Stopped || k.h.Cause() == protocol.Asked // on purpose
	switch {
	case k.h.Cause() == protocol.Stalled:
		return ErrStalled
	case k.h.Quiet() && stopped && k.h.Expired():
		return refused("%w: %w", ErrStopTimeout, ErrExpired)
	case k.h.Expired():
		return ErrExpired
	case freed == protocol.Gone:
		return k.superseded()
	case k.h.Quiet():
		return ErrStopTimeout
	case freed == protocol.Uncertain:
		return uncertain(k.h.Err())
	case freed == protocol.Kept && k.deadline.Parent != nil:
		return refused("%w; it is free when its session has ended, or soon after somebody waits for it: %w", ErrNotReleased, k.h.Err())
	case freed == protocol.Kept:
		return refused("%w; it runs out by itself within %v: %w", ErrNotReleased, k.t.Lease, k.h.Err())
	}
	return nil
}

func (k *keeping) isSession() bool { return k.of.isSession() }

// freed reports whether the record is certainly no longer this holder's.
func (k *keeping) freed() bool {
	select {
	case <-k.over:
	default:
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	freed := k.h.Freed()
	return freed == protocol.Released || freed == protocol.Gone
}

func (k *keeping) superseded() error {
	if k.h.Replaced() {
		return k.endedError(engine.EndedReplaced)
	}
	by, _ := k.h.By()
	if by.State.OfSession() {
		return &SupersededError{Session: driver.SessionID(by.Key), Released: by.State == driver.Closed}
	}
	err := &SupersededError{Owner: by.Owner, Token: by.Token, Released: by.State == driver.Released}
	token := k.h.Record().Token
	// How the record says that this tenure ended: itself, or what came after.
	ended := by.Prev
	if by.State == driver.Released && by.Token == token {
		ended = by.Tenure(by.End)
	}
	if ended != nil && ended.Token == token && ended.Asked != nil && (ended.End == driver.EndRevoked || ended.End == driver.EndReleasedDead) {
		err.Request = requestOf(ended.Asked)
	}
	return err
}

// newLease returns the lease that was granted, and false if the client is
// closed, so that it must be released again.
func (c *base) newLease(g protocol.Grant, t protocol.Timing, o AcquireOptions) (_ *Lease, open bool) {
	l := c.leaseOf(g, t, o)
	l.prepare(context.Background(), new(sync.Mutex), nil)
	h := protocol.NewHolder(t, c.env, g)
	l.mu.Lock()
	open = l.begin(h)
	l.mu.Unlock()
	l.do(l.h.Step)
	if o.WatchRequests && !t.Manual {
		l.watchRequests()
	}
	return l, l.standing() && open
}

// newLease returns the lease that was granted under the session, and false if the
// session has ended meanwhile, so that no caller may have the lease.
func (p *parent) newLease(g protocol.Grant, o AcquireOptions) (_ *Lease, open bool) {
	l := p.c.leaseOf(g, p.t, o)
	l.under = p
	ctx := p.ctx
	if !p.isOpen() {
		ctx = context.Background() // that of the session may be busy with ending all others
	}
	l.prepare(ctx, p.mu, &p.deadline)
	p.mu.Lock()
	h := protocol.NewTied(p.t, p.c.env, g, p.keeper)
	began := l.begin(h)
	p.leases[h] = &l.keeping
	open = p.keeper.Open(p.c.clock.Holder())
	p.mu.Unlock()
	l.do(l.h.Step)
	return l, l.standing() && began && open
}

func (c *base) leaseOf(g protocol.Grant, t protocol.Timing, o AcquireOptions) *Lease {
	l := &Lease{
		id: g.ID, token: g.Record.Token, meter: engine.NewBusyMeter(c.clock.Contender(), o.Capacity),
		former: previous(g, o.Data != nil), past: g.Past(),
	}
	l.c, l.t, l.key, l.since = c, t, g.Record.Key, c.clock.Holder()
	return l
}

// prepare makes all that the lease needs before its machine is stepped.
func (l *Lease) prepare(ctx context.Context, mu *sync.Mutex, parent *engine.Deadline) {
	l.keeping.prepare(context.WithValue(ctx, leaseKey{}, l), l, mu, parent)
	if l.under != nil {
		l.loop.Wake = func(protocol.Machine) { l.under.loop.Act(l.under.m.Step) }
	}
}

// begin begins to run the machine, and makes the lease known to the client, which may
// stop it from then on. It returns false if the client is closed. The caller holds
// the mutex.
func (l *Lease) begin(h *protocol.Holder) (open bool) {
	l.keeping.begin(h, h)
	return l.c.beganLease(&l.keeping, l.key, l.token) == nil
}

func (l *Lease) event(kind EventKind) Event {
	e := Event{Kind: kind, Lock: l.key, Owner: l.Owner(), Token: l.token}
	if l.under != nil {
		e.Session = l.under.id
	}
	return e
}

func (l *Lease) moves() {
	if p := l.progress.Load(); p > 0 {
		l.h.Progress(time.Duration(p))
	}
}

func (l *Lease) after(time.Duration, protocol.Action) {
	if l.left != nil && l.h.Left() {
		select {
		case <-l.left:
		default:
			close(l.left)
		}
	}
}

func (l *Lease) cancelFor(cause error) { l.cancel(cause) }

// followed reports whether the session has ended. The session's context ends this
// one's: to end it here would be to wait for all the others, under the mutex.
func (l *Lease) followed() (yes bool, cause error) {
	if s := l.under; s != nil && s.h.Cause() != protocol.None {
		return true, s.cause
	}
	return false, nil
}

func (l *Lease) done(e Event) Event {
	e.Busy = l.meter.Until(l.c.clock.Contender())
	if e.Kind == EventReleased {
		end, failed := l.h.End()
		if e.End = string(end); failed != nil {
			e.Err = errors.New(failed.Reason)
		}
	}
	l.c.looks.Drop(&l.report)
	if l.under != nil {
		delete(l.under.leases, l.h)
	}
	l.c.released(l.key)
	return e
}

func (l *Lease) isSession() bool { return false }

func (l *Lease) asked() {
	if l.under == nil { // else the requests are in the session's record, and it is rung for that
		l.hurries()
	}
}

func (l *Lease) dropped() {
	l.unwatchRequests()
	l.c.finishedLease(&l.keeping, l.key)
}

// fail fails the acquires that wait for a lock under the session when it has ended,
// and tells this process that it is closed.
func (s *Session) fail() {
	c := s.c
	c.seeing.Lock()
	defer c.seeing.Unlock()
	for a := range s.waiters {
		a.orphaned()
	}
	s.mu.Lock()
	freed, rec := s.h.Freed(), s.h.Record()
	s.mu.Unlock()
	if freed != protocol.Released || rec.State != driver.Closed {
		return
	}
	now := c.clock.Contender()
	c.sessions.Of(s.id).Saw(now, now, driver.Strong, rec, true)
	c.reapLater(s.id)
}

// discard closes a session that no caller waits for any more.
func (s *Session) discard() {
	s.deadline.End(engine.EndedReleased)
	s.do(func(now time.Duration) protocol.Action {
		s.stopFor(ErrReleased)
		return s.keeper.GiveUp(now)
	})
}

func (s *Session) event(kind EventKind) Event {
	return Event{Kind: kind, Session: s.id, Owner: s.c.options.Owner}
}

func (s *Session) moves() {}

func (s *Session) after(_ time.Duration, a protocol.Action) {
	for _, n := range a.Notes {
		if n == protocol.NoteEnded || n == protocol.NoteQuiet || n == protocol.NoteOver {
			s.c.looks.Set(&s.ending, 0)
		}
	}
}

// cancelFor cancels the context, and with it those of all locks under the session,
// one by one: not under the mutex of its heartbeats, and not while others wait for
// a timer.
func (s *Session) cancelFor(cause error) {
	s.c.calls.Beside(func() { s.cancel(cause) })
}

func (s *Session) followed() (yes bool, cause error) { return false, nil }

func (s *Session) done(e Event) Event {
	s.deadline.End(engine.EndedReleased)
	if e.Kind == EventReleased {
		e.Kind = EventClosed
	}
	return e
}

func (s *Session) isSession() bool { return true }

func (s *Session) asked() { s.hurries() }

func (s *Session) dropped() {
	close(s.closed)
	s.c.finished(&s.keeping)
}

// parent is a session as its locks see it, and the acquires that wait for one more.
// Everything under a session is stepped under one mutex, that of the session: its
// machine and those of its locks read each other. What to do when is decided there:
// see [protocol.Keeper].
type parent struct {
	keeping // of the session's own record: the heartbeat, and the deadline of all locks
	id      string
	keeper  *protocol.Keeper

	// turn admits one releaser at a time, and is taken before mu, but never by a timer:
	// a burst of releases delays a heartbeat by one of them at most.
	turn sync.Mutex

	waiters map[*acquire]struct{}         // not ended; guarded by the client's seeing
	leases  map[*protocol.Holder]*keeping // not over; guarded by mu
}

func (p *parent) name() string { return "session " + p.id }

// wrapped returns err as that of an operation on the session, nil for nil.
func (p *parent) wrapped(op string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(op, p.name(), err)
}

// why says why no lock can be had under the session.
func (p *parent) why() error {
	p.mu.Lock()
	cause := p.cause // not the context's: that may be busy with ending all others
	p.mu.Unlock()
	switch {
	case cause == nil && p.c.isClosed():
		cause = ErrClosed
	case cause == nil:
		cause = ErrExpired // nobody has been told yet
	}
	if errors.Is(cause, ErrSessionClosed) {
		return cause
	}
	return refused("%w: %w", ErrSessionClosed, cause)
}

// admit notes an acquire under the session, unless that has ended. The caller
// holds the trackers.
func (p *parent) admit(a *acquire) error {
	if !p.isOpen() {
		return p.why()
	}
	p.waiters[a] = struct{}{}
	return nil
}

// isOpen says that locks may be taken under the session.
func (p *parent) isOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keeper.Open(p.c.clock.Holder())
}

// wake steps the lease whose machine the session's asks to step.
func (p *parent) wake(m protocol.Machine) {
	if h, ok := m.(*protocol.Holder); ok {
		if l := p.leases[h]; l != nil {
			l.loop.Act(h.Step)
		}
		return
	}
	p.loop.Act(m.Step)
}

// drive drives a machine that the session's has begun: it releases a lock that is
// held in the session's name without the session knowing of it.
func (p *parent) drive(m protocol.Machine) {
	run := &engine.Run{Machine: m, Mutex: p.mu, Clock: p.c.contender, Timers: p.c.looks, Send: p.c.last}
	run.Act(m.Step)
}

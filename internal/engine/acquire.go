// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// AcquireOptions are the options of one acquire.
type AcquireOptions struct {
	// Want says what the caller wants. The client fills in its own fields.
	Want protocol.Want
	// Timing has the durations of the lease. It must not change.
	Timing *protocol.Timing
	// Under is the session that is to keep the lock alive; nil: it gets its own lease.
	Under *SessionHolder
	// Wait bounds the waiting; AdditionalWait bounds it to the lease that the record first
	// shows plus this time. Both are for an acquire that waits; 0 means no bound.
	Wait, AdditionalWait time.Duration
	// Capacity is how many pieces of work the holder does at once.
	Capacity int
	// History writes, before the work begins, the entries that the history may lack.
	History bool
	// WatchRequests asks the store to hint when a request is written into the record.
	WatchRequests bool
	// Waited is how long the caller had waited for the lock before.
	Waited time.Duration
}

// Acquire takes the lock. ctx bounds the waiting only.
func (c *Client) Acquire(ctx context.Context, o AcquireOptions) (*LeaseHolder, error) {
	k, err := c.tracker(o.Want.Key)
	if err != nil {
		return nil, err
	}
	w := &o.Want
	w.Owner, w.Host, w.Label, w.Notify = c.options.Owner, c.options.Host, c.options.Label, c.notifier.own()
	w.ReadFirst, w.Holds = c.charges, w.Try && c.holds(w.Key)
	a := k.newAcquire(o)
	a.join()
	bounded, stop, over := ctx, func() {}, func(err error) error { return err }
	if !w.Try {
		bounded, stop, over = Within(ctx, o.Wait)
	}
	defer stop()
	got := a.wait(bounded)
	if got.err != nil {
		return nil, over(got.err)
	}
	if o.History {
		if err := got.l.record(ctx, got.past); err != nil {
			return nil, err
		}
	}
	return got.l, nil
}

// acquire is one call of Acquire.
type acquire struct {
	nobody
	AcquireOptions
	k          *tracker
	run        run
	begun      time.Duration
	acquirer   *protocol.Acquirer // nil while the acquire waits for its turn
	got        acquired           // the answer
	answer     chan struct{}      // closed when it is there
	shown      chan time.Duration // has room for the first lease that was read; nil: no caller needs it
	remote     *remoteAcquire     // the remote holder that gets the lock; nil: this process does
	settled    bool               // answered, or abandoned
	leaseShown bool
	reported   uint64 // the token of the last holder that an event has reported
	ended      bool
	over       chan struct{} // closed when it has ended; made by Settle
}

type acquired struct {
	l    *LeaseHolder
	past []driver.Term     // terms that the history may lack, if the caller wants a history
	o    *unconfirmedGrant // instead, for a remote holder
	err  error
}

// discard releases a granted lock, because no caller wants it any more.
func (r acquired) discard() {
	if r.l != nil {
		r.l.discard()
	}
	if r.o != nil {
		r.o.giveUp()
	}
}

// newAcquire returns an acquire that has not joined the others yet.
func (k *tracker) newAcquire(o AcquireOptions) *acquire {
	a := &acquire{k: k, AcquireOptions: o, begun: k.c.clock(), answer: make(chan struct{})}
	if o.AdditionalWait != 0 {
		a.shown = make(chan time.Duration, 1)
	}
	return a
}

// join adds the acquire to the others of its lock. A try acts at once; the others
// queue.
func (a *acquire) join() {
	k, under, want := a.k, a.Under, &a.Want
	a.run = k.c.run(nil, a, &k.c.viewMu)
	a.run.timeout = a.Timing.RequestTimeout
	if under != nil {
		a.run.shared = under.mu
		a.run.wake = func(protocol.Machine) { under.loop.step() }
	}
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	k.waiters = append(k.waiters, a)
	if err := k.c.began(); err != nil {
		a.settle(nil, err)
		a.end()
		return
	}
	if under != nil {
		if err := under.admit(a); err != nil {
			a.settle(nil, err)
			a.end()
			return
		}
		want.Under = under.machine
	}
	if want.Try || want.UnlessAlive {
		a.start() // it needs no turn: it only waits for a read of the record
	} else {
		k.queue = append(k.queue, a)
		k.awaited.Store(true)
		want.ViewFresh = len(k.queue) > 1
		if !want.ViewFresh || *a.Timing != k.c.timing { // an acquire with another refresh period polls by itself
			a.start()
		} else if s := k.snapshot(); s.Alive {
			a.shows(s.Record.Lease)
			a.meets(s)
			k.letReserved()
		}
	}
}

// wait waits for the answer.
func (a *acquire) wait(ctx context.Context) acquired {
	var late <-chan time.Time
	var holders <-chan error
	if a.remote != nil {
		holders = a.remote.held
	}
	for {
		select {
		case <-a.answer:
			return a.got
		case held := <-holders:
			a.remote.waiting(held)
		case lease := <-a.shown:
			timer := time.NewTimer(lease + a.AdditionalWait)
			defer timer.Stop()
			late = timer.C
		case <-late:
			return acquired{err: a.abandon(nil)}
		case <-ctx.Done():
			return acquired{err: a.abandon(Done(ctx))}
		}
	}
}

// abandon ends the waiting. A lease that came at the same moment is released.
func (a *acquire) abandon(err error) error {
	k := a.k
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	if s := k.snapshot(); err == nil {
		err = k.c.heldBy(s.Record, s.FreeIn)
	} else if why := a.why(s); why != nil && errors.Is(err, context.DeadlineExceeded) {
		err = &waitError{err, why}
	}
	if a.settled {
		a.got.discard()
		return err
	}
	a.settled = true
	a.giveUp()
	return err
}

// why returns what the acquire has waited for: an answer of the store, or a holder; nil if
// neither is known. The caller holds viewMu.
func (a *acquire) why(s Snapshot) error {
	k := a.k
	held := s.FreeIn > 0 && (s.looked >= a.begun || a.acquirer == nil)
	recent := k.trouble != nil && k.troubled >= a.begun && k.c.clock()-k.troubled <= a.Timing.Lease
	switch {
	case a.Want.Try: // a try waits for no holder
		return nil
	case recent && (!held || k.troubled > s.looked):
		return k.trouble
	case held:
		return k.c.heldBy(s.Record, s.FreeIn)
	}
	return nil
}

// start makes the first move. The caller holds viewMu.
func (a *acquire) start() {
	if a.Under != nil {
		a.Under.mu.Lock()
	}
	a.acquirer = protocol.NewAcquirer(*a.Timing, a.k.c.env, a.Want, a.k.view)
	if a.Under != nil {
		a.Under.mu.Unlock()
	}
	a.run.machine = a.acquirer
	a.run.act(a.acquirer.Step)
}

// giveUp takes the acquire off the queue. The caller holds viewMu.
func (a *acquire) giveUp() {
	a.unqueue()
	if a.acquirer == nil {
		a.end()
		return
	}
	a.run.act(a.acquirer.GiveUp)
}

// unqueue passes the turn on if this acquire had it. The next acquire knows what the
// view shows, and begins with waiting.
func (a *acquire) unqueue() {
	k := a.k
	i := slices.Index(k.queue, a)
	if i >= 0 {
		k.queue = slices.Delete(k.queue, i, i+1) // no tracker keeps an acquire that has ended
	}
	if i == 0 && len(k.queue) > 0 {
		k.queue[0].act()
	}
	k.endWatch()
}

// stepped handles what a step of the machine means for the waiting callers.
func (a *acquire) stepped(now time.Duration, _ protocol.Action) {
	k := a.k
	if a.ended {
		return
	}
	if g, ok := a.acquirer.Granted(); ok {
		a.granted(now, g)
		return
	}
	if r := a.acquirer.Refused(); r != nil && !a.settled {
		err := a.refusal(r)
		a.settle(nil, err)
		if !r.Held && !r.Ended {
			for _, q := range slices.Clone(k.queue) {
				q.impatient(now, err)
			}
		}
		a.unqueue()
	}
	if !a.settled {
		a.emitWaiting()
	}
	k.notify()
	if a.acquirer.Over() {
		a.end()
	}
}

// impatient fails the acquire if its wait for its turn has used up its patience
// with the store. The caller of this and of the following methods holds viewMu.
func (a *acquire) impatient(now time.Duration, err error) {
	if a.acquirer == nil && a.Want.Patience > 0 && now-a.begun >= a.Want.Patience {
		a.fails(err)
	}
}

func (a *acquire) fails(err error) {
	a.settle(nil, err)
	a.giveUp()
}

// failIfSessionEnded fails the acquire if its session has ended while it waits for its turn; an
// acquire that acts finds that out by itself.
func (a *acquire) failIfSessionEnded() {
	if a.acquirer == nil {
		a.fails(a.Under.why())
	} else {
		a.run.act(a.acquirer.Step)
	}
}

// act is called when the acquire may go on: it has become the first of the queue, or the lock
// is reserved for it.
func (a *acquire) act() {
	if a.acquirer == nil {
		a.start()
	}
	a.reschedule()
}

// reservedBy says that the record reserves the lock for this acquire.
func (a *acquire) reservedBy(rec driver.Record) bool {
	return protocol.ReservedFor(rec, a.Want.Owner, a.Want.Label)
}

// look makes the acquire read the record soon.
func (a *acquire) look() { a.run.act(a.acquirer.Hint) }

// reschedule sets the timer again: the view may have changed.
func (a *acquire) reschedule() {
	if a.acquirer != nil && !a.ended {
		a.run.set()
	}
}

// meets tells a remote caller whom it waits for.
func (a *acquire) meets(s Snapshot) {
	if a.remote != nil {
		a.remote.meets(a.k.c.heldBy(s.Record, s.FreeIn))
	}
}

// shows passes on the holder's lease, from which an AdditionalWait counts.
func (a *acquire) shows(lease time.Duration) {
	if a.shown != nil && !a.leaseShown {
		a.leaseShown = true
		a.shown <- lease
	}
}

// granted hands the lease over, or releases it if no caller waits for it any more.
func (a *acquire) granted(now time.Duration, g protocol.Grant) {
	c := a.k.c
	c.events.emit(Event{
		Kind: EventAcquired, Lock: a.k.key, Owner: g.Record.Owner, Token: g.Record.Token,
		Took: a.Waited + now - a.begun, Remaining: max(0, g.Sent+a.Timing.UsableOf(g.Record)-c.leaseClock()),
		Session: g.Record.Session, Grace: a.Timing.Grace,
	})
	if a.remote != nil {
		a.offer(g)
		return
	}
	l, open := a.lease(g)
	switch {
	case a.settled || !open:
		err := c.Usable()
		if a.Under != nil {
			err = a.Under.why()
		}
		a.settle(nil, err)
		l.discard()
		a.writePast(g)
	case l.Check() != nil:
		// The process was paused between the request and now, until the lease was over; or
		// the session has ended meanwhile.
		err := ErrExpired
		if a.Under != nil {
			err = a.Under.why()
		}
		a.settle(nil, err)
		l.discard()
		a.writePast(g)
	default:
		if a.History {
			a.got.past = g.Past()
		}
		a.settle(l, nil)
	}
	a.unqueue()
	a.k.notify()
	a.end()
}

// offer hands a grant to a remote holder, or releases it if no caller waits for it any
// more.
func (a *acquire) offer(g protocol.Grant) {
	err := a.k.c.Usable()
	wanted := err == nil && !a.settled
	o := a.remote.offer(g, wanted)
	if wanted {
		a.settled, a.got = true, acquired{o: o}
		close(a.answer)
	}
	a.settle(nil, err)
	a.writePast(g)
	a.unqueue()
	a.k.notify()
	a.end()
}

// lease makes the lease of a grant. It returns false if the client or the session has
// ended, so that no caller may have it.
func (a *acquire) lease(g protocol.Grant) (l *LeaseHolder, open bool) {
	if a.Under != nil {
		return a.Under.newLease(g, a.AcquireOptions)
	}
	return a.k.c.newLease(g, a.AcquireOptions)
}

func (a *acquire) settle(l *LeaseHolder, err error) {
	if !a.settled {
		a.settled, a.got.l, a.got.err = true, l, err
		close(a.answer)
	}
}

func (a *acquire) refusal(r *protocol.Refusal) error {
	switch {
	case r.Ended:
		return a.Under.why()
	case r.Held:
		return a.k.c.heldBy(r.Record, r.FreeIn)
	case r.Record.Key != "": // the machine has read the record itself
		return Unreadable(r.Record)
	default:
		return r.Err
	}
}

// end ends the acquire for good.
func (a *acquire) end() {
	if a.ended {
		return
	}
	a.ended = true
	if a.over != nil {
		close(a.over)
	}
	if a.acquirer != nil {
		if g, ok := a.acquirer.StrayGrant(); ok {
			a.writePast(g)
		}
	}
	if i := slices.Index(a.k.waiters, a); i >= 0 {
		a.k.waiters = slices.Delete(a.k.waiters, i, i+1)
	}
	if a.Under != nil {
		delete(a.Under.waiters, a)
	}
	a.k.c.finished()
	a.k.leave()
}

// writePast writes the terms before a grant into the history, if no lease of this client does so.
func (a *acquire) writePast(g protocol.Grant) {
	if c := a.k.c; a.History && c.options.HistoryLimit > 0 {
		c.writePast(a.k.key, g.Past())
	}
}

// emitWaiting emits an event for each new holder that the acquire waits for. It gives the
// queue the holder's lease, from which an AdditionalWait counts.
func (a *acquire) emitWaiting() {
	k := a.k
	s := k.snapshot()
	if !s.known || s.looked < a.begun || !s.Found || s.Record.State != driver.Held || a.Want.Try {
		return // nothing was read since the acquire began, or there is no holder to wait for
	}
	for _, q := range k.queue {
		q.shows(s.Record.Lease)
	}
	if a.reported != s.Record.Token {
		a.reported = s.Record.Token
		for _, q := range k.queue {
			q.meets(s)
		}
		k.c.events.emit(Event{
			Kind: EventWaiting, Lock: k.key, Owner: s.Record.Owner, Token: s.Record.Token, Remaining: s.FreeIn,
			Own: k.c.owns(s.Record),
		})
	}
	k.watch()
}

// replied reports the result of a call to observers and as an event, and schedules the
// deletion of a session that the call closed.
func (a *acquire) replied(now time.Duration, call *protocol.Call, res protocol.Result) {
	c := a.k.c
	if res.Err != nil {
		a.k.trouble, a.k.troubled = res.Err, now
	} else {
		c.events.answered()
	}
	// A store that was busy for a moment is not worth an event; a store that stays busy
	// is.
	if res.Err == nil || newsworthy(res.Err) || a.acquirer.Silence(now) >= a.Timing.RequestTimeout {
		a.k.fail(res.Err)
		if res.Err != nil {
			c.events.emit(Event{Kind: EventStoreError, Lock: a.k.key, Err: res.Err})
		}
	}
	switch {
	case res.Outcome != protocol.Applied:
	case call.Kind == protocol.ForceRelease && call.OfSession():
		c.reapLater(driver.SessionID(call.Key))
	case call.Kind == protocol.Request:
		c.notifier.asks(call.Key, res.Record.Notify)
	}
}

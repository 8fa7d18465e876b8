// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Acquire takes the lock, waiting until it is free. ctx bounds the waiting alone:
// the lease goes on until it is released. Acquire returns at once when ctx ends; a
// write that is under way then is cleaned up in the background.
//
// A name has 1 to 1024 bytes of printable UTF-8, has no space at its ends, and does not begin
// with "tenure/".
//
// A name that packages once, semaphore, rwlock and shard make of another one, such as
// "nightly:once", is that of their lock: whoever takes it keeps them out.
//
// The error matches the context's, if ctx ended. If that was a deadline, it carries what the
// caller waited for: a [*HeldError] with the holder, so that it matches [ErrHeld] too, or the
// store's own error if the store gave no answer lately. Otherwise the error matches one of
// these:
//
//   - [ErrHeld] if Wait or AdditionalWait passed
//   - [ErrUnreadable] if the record cannot be understood
//   - [ErrClosed] if the client was closed
//   - [ErrExpired] if the process was paused while the lock was granted, until that
//     lease was over
//   - the store's own error, if the store cannot be used, or gave no answer for
//     StoreTimeout
func (c *Client) Acquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return c.acquire(ctx, "acquire", name, options, nil, false)
}

// TryAcquire takes the lock if that is possible without waiting for its
// holder. Otherwise the error is a [*HeldError], which matches [ErrHeld]. The
// client remembers what TryAcquire saw: called again after the lease of a dead
// holder, it takes the lock.
func (c *Client) TryAcquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return c.acquire(ctx, "try acquire", name, options, nil, true)
}

func (c *Client) acquire(ctx context.Context, op, name string, options *AcquireOptions, under *parent, try bool) (*Lease, error) {
	var of Timing
	if options != nil {
		of = options.Timing
	}
	t, err := c.timingOf(of, under)
	if err != nil {
		return nil, wrap(op, name, err)
	}
	o, err := options.copied(t.Lease, c.options.Label)
	if err == nil {
		err = checkName(name)
	}
	if err == nil && ctx.Err() != nil {
		err = done(ctx)
	}
	if err != nil {
		return nil, wrap(op, name, err)
	}
	patience := t.Lease
	if try {
		patience = 3 * t.RequestTimeout
	}
	if o.StoreTimeout != 0 {
		patience = max(0, o.StoreTimeout)
	}
	k, err := c.tracker(name)
	if err != nil {
		return nil, wrap(op, name, err)
	}
	a := k.newAcquire(t, o, under, protocol.Want{
		Key: name, Owner: c.options.Owner, Host: c.options.Host, Label: c.options.Label,
		Data: o.Data, Try: try, LookFirst: c.charges, Holds: try && c.holds(name), UnlessAlive: o.UnlessAlive && !try, Patience: patience,
		Priority: o.Priority, PriorityPause: o.PriorityPause, CoolDown: o.CoolDown, CoolDownMax: o.CoolDownMax,
		Bell: c.ringer.own(),
	})
	a.join()
	bounded, stop, over := ctx, func() {}, func(err error) error { return err }
	if !try {
		bounded, stop, over = within(ctx, o.Wait)
	}
	defer stop()
	l, err := a.wait(bounded, o.AdditionalWait)
	err = over(err)
	if err == nil && o.History {
		err = l.record(ctx)
	}
	if err != nil {
		return nil, wrap(op, name, err)
	}
	return l, nil
}

// timingOf returns the timing of a lock that is taken with the given one.
func (c *base) timingOf(t Timing, under *parent) (protocol.Timing, error) {
	switch {
	case under == nil:
		return t.of(c.timing)
	case t != (Timing{}):
		return under.t, invalid("a lock under a session has the timing of the session, and none of its own: set it in SessionOptions")
	}
	return under.t, nil
}

// acquire is one call of Acquire.
type acquire struct {
	k         *tracker
	t         protocol.Timing
	run       engine.Run
	want      protocol.Want
	under     *parent // that is to keep the lock alive; nil: it is its own lease
	options   AcquireOptions
	begun     time.Duration
	con       *protocol.Contender // nil while it waits for its turn
	answer    chan acquired       // has room for the one answer
	shown     chan time.Duration  // has room for the lease that was first seen
	elsewhere *remoteWait         // who gets the lock, if that is not this process; otherwise nil
	settled   bool                // answered, or abandoned
	shownTo   bool
	news      uint64 // the token of the holder that was told in an event
	ended     bool
}

type acquired struct {
	l   *Lease
	o   *offer // instead, for a holder elsewhere
	err error
}

// discard releases what was granted, because nobody wants it any more.
func (r acquired) discard() {
	if r.l != nil {
		r.l.discard()
	}
	if r.o != nil {
		r.o.giveUp()
	}
}

// newAcquire returns an acquire that has not joined the others yet.
func (k *tracker) newAcquire(t protocol.Timing, options AcquireOptions, under *parent, want protocol.Want) *acquire {
	return &acquire{
		k: k, t: t, options: options, want: want, under: under, begun: k.c.clock.Contender(),
		answer: make(chan acquired, 1), shown: make(chan time.Duration, 1),
	}
}

// join adds the acquire to the others of its lock. One that waits for nobody acts at
// once; others queue.
func (a *acquire) join() {
	k, under, want := a.k, a.under, a.want
	a.run = engine.Run{
		Mutex: k.mu, Clock: k.c.contender, Timers: k.c.looks, Send: k.c.sender(a.t), Stepped: a.stepped, Replied: a.replied,
	}
	if under != nil {
		a.run.Shared = under.mu
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.joins(a)
	if err := k.c.began(nil); err != nil {
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
		a.want.Under = under.keeper
		want = a.want
	}
	if want.Try || want.UnlessAlive {
		a.start() // it needs no turn: it waits for a read of the record
	} else {
		k.queue = append(k.queue, a)
		k.awaited.Store(true)
		if len(k.queue) == 1 {
			a.start()
		} else if s := k.sighting(); s.alive {
			a.shows(s.rec.Lease)
			a.meets(k.c.heldBy(s.rec, s.freeIn))
			k.letHeir()
		}
	}
}

// wait waits for the answer.
func (a *acquire) wait(ctx context.Context, additional time.Duration) (*Lease, error) {
	r := a.await(ctx, additional)
	return r.l, r.err
}

func (a *acquire) await(ctx context.Context, additional time.Duration) acquired {
	var late <-chan time.Time
	shown, news := a.shown, (<-chan *HeldError)(nil)
	if a.elsewhere != nil {
		news = a.elsewhere.held
	}
	if additional == 0 {
		shown = nil
	}
	for {
		select {
		case r := <-a.answer:
			return r
		case held := <-news:
			a.elsewhere.waiting(held)
		case lease := <-shown:
			timer := time.NewTimer(lease + additional)
			defer timer.Stop()
			late = timer.C
		case <-late:
			return acquired{err: a.abandon(nil)}
		case <-ctx.Done():
			return acquired{err: a.abandon(done(ctx))}
		}
	}
}

// abandon ends the waiting. A lease that came at the same moment is released.
func (a *acquire) abandon(err error) error {
	k := a.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.sighting(); err == nil {
		err = k.c.heldBy(s.rec, s.freeIn)
	} else if why := a.why(s); why != nil && errors.Is(err, context.DeadlineExceeded) {
		err = &waitError{err, why}
	}
	if a.settled {
		(<-a.answer).discard()
		return err
	}
	a.settled = true
	a.giveUp()
	return err
}

// why returns what the acquire has waited for: an answer of the store, or a holder. It is nil
// if neither is known. The caller holds the tracker.
func (a *acquire) why(s sighting) error {
	k := a.k
	held := s.freeIn > 0 && (s.looked >= a.begun || a.con == nil)
	lately := k.trouble != nil && k.troubled >= a.begun && k.c.clock.Contender()-k.troubled <= a.t.Lease
	switch {
	case a.want.Try: // it waits for nobody
		return nil
	case lately && (!held || k.troubled > s.looked):
		return k.trouble
	case held:
		return k.c.heldBy(s.rec, s.freeIn)
	}
	return nil
}

// start makes the first move. The caller holds the tracker.
func (a *acquire) start() {
	if a.under != nil {
		a.under.mu.Lock()
	}
	a.con = protocol.NewContender(a.t, a.k.c.env, a.want, a.k.sight)
	if a.under != nil {
		a.under.mu.Unlock()
	}
	a.run.Machine = a.con
	a.run.Act(a.con.Step)
}

// giveUp takes the acquire off the queue. The caller holds the tracker.
func (a *acquire) giveUp() {
	a.unqueue()
	if a.con == nil {
		a.end()
		return
	}
	a.run.Act(a.con.GiveUp)
}

// unqueue gives the turn to the next one if it was this one's. The next one
// knows what was seen until now, and begins with waiting.
func (a *acquire) unqueue() {
	k := a.k
	i := slices.Index(k.queue, a)
	if i >= 0 {
		k.queue = slices.Delete(k.queue, i, i+1) // no tracker keeps an acquire that has ended
	}
	if i == 0 && len(k.queue) > 0 {
		k.queue[0].act()
	}
	k.rest()
}

// stepped says what a step of the machine means for those who wait.
func (a *acquire) stepped(time.Duration, protocol.Action) {
	k := a.k
	if a.ended {
		return
	}
	if g, ok := a.con.Granted(); ok {
		a.won(g)
		return
	}
	if r := a.con.Refused(); r != nil && !a.settled {
		err := a.refusal(r)
		a.settle(nil, err)
		if !r.Held && !r.Ended {
			now := k.c.clock.Contender()
			for _, q := range slices.Clone(k.queue) {
				q.impatient(now, err)
			}
		}
		a.unqueue()
	}
	if !a.settled {
		a.tell()
	}
	k.notify()
	if a.con.Over() {
		a.end()
	}
}

// impatient fails it if it has waited for its turn for as long as the store may give no
// answer. The caller of this and of what follows holds the tracker.
func (a *acquire) impatient(now time.Duration, err error) {
	if a.con == nil && a.want.Patience > 0 && now-a.begun >= a.want.Patience {
		a.fails(err)
	}
}

func (a *acquire) fails(err error) {
	a.settle(nil, err)
	a.giveUp()
}

// orphaned fails it if it waits for its turn under a session that has ended, and else has
// it find that out.
func (a *acquire) orphaned() {
	if a.con == nil {
		a.fails(a.under.why())
	} else {
		a.run.Act(a.con.Step)
	}
}

// act is called when it has become the first of the queue, behind another one of this
// process.
func (a *acquire) act() {
	if a.con != nil {
		a.noticed() // it has begun as an heir
		return
	}
	a.want.Behind = true
	a.start()
}

// heirOf says that the record reserves the lock for it.
func (a *acquire) heirOf(rec driver.Record) bool {
	return protocol.KeptFor(rec, a.want.Owner, a.want.Label)
}

// look has it read the record soon, told does so because something has told that the record
// has changed, rung because the holder has, and noticed tells it that something new may have
// been seen.
func (a *acquire) look() { a.run.Act(a.con.Hint) }

func (a *acquire) told() { a.run.Act(a.con.Told) }

func (a *acquire) rung() { a.run.Act(a.con.Rung) }

func (a *acquire) noticed() {
	if a.con != nil && !a.ended {
		a.run.Set()
	}
}

// meets is told who the holder is.
func (a *acquire) meets(held *HeldError) {
	if a.elsewhere != nil {
		a.elsewhere.meets(held)
	}
}

// shows is told the lease of the holder, from which an AdditionalWait counts.
func (a *acquire) shows(lease time.Duration) {
	if !a.shownTo {
		a.shownTo = true
		a.shown <- lease
	}
}

// won hands the lease over, or releases it if nobody waits for it any more.
func (a *acquire) won(g protocol.Grant) {
	c := a.k.c
	c.events.emit(Event{
		Kind: EventAcquired, Lock: a.k.key, Owner: g.Record.Owner, Token: g.Record.Token,
		Took: c.clock.Contender() - a.begun, Remaining: max(0, g.Sent+a.t.Usable()-c.clock.Holder()),
		Session: g.Record.Session, Grace: a.t.Grace,
	})
	if a.elsewhere != nil {
		a.offer(g)
		return
	}
	l, open := a.lease(g)
	switch {
	case a.settled || !open:
		err := c.refusal()
		if a.under != nil {
			err = a.under.why()
		}
		a.settle(nil, err)
		l.discard()
		a.note(g)
	case l.Check() != nil:
		// Paused between the request and now, until the lease was over; or the
		// session has ended meanwhile.
		err := ErrExpired
		if a.under != nil {
			err = a.under.why()
		}
		a.settle(nil, err)
		l.discard()
		a.note(g)
	default:
		a.settle(l, nil)
	}
	a.unqueue()
	a.k.notify()
	a.end()
}

// offer hands a grant to a holder elsewhere, or releases it if nobody waits for it any
// more.
func (a *acquire) offer(g protocol.Grant) {
	err := a.k.c.refusal()
	wanted := err == nil && !a.settled
	o := a.elsewhere.offer(g, wanted)
	if wanted {
		a.settled = true
		a.answer <- acquired{o: o}
	}
	a.settle(nil, err)
	a.note(g)
	a.unqueue()
	a.k.notify()
	a.end()
}

// lease makes the lease of a grant. It returns false if the client or the session
// has ended, so that no caller may have the lease.
func (a *acquire) lease(g protocol.Grant) (l *Lease, open bool) {
	if a.under != nil {
		return a.under.newLease(g, a.options)
	}
	return a.k.c.newLease(g, a.t, a.options)
}

func (a *acquire) settle(l *Lease, err error) {
	if !a.settled {
		a.settled = true
		a.answer <- acquired{l: l, err: err}
	}
}

func (a *acquire) refusal(r *protocol.Refusal) error {
	switch {
	case r.Ended:
		return a.under.why()
	case r.Held:
		return a.k.c.heldBy(r.Record, r.FreeIn)
	case r.Record.Key != "": // what the machine itself saw of it
		return unreadable(r.Record)
	default:
		return r.Err
	}
}

// end is the last thing that happens to an acquire.
func (a *acquire) end() {
	if a.ended {
		return
	}
	a.ended = true
	if a.con != nil {
		if g, ok := a.con.Left(); ok {
			a.note(g)
		}
	}
	a.k.leaves(a)
	if a.under != nil {
		delete(a.under.waiters, a)
	}
	a.k.c.finished(nil)
	a.k.leave()
}

// note writes the tenures before a grant into the history, when no caller gets its
// lease.
func (a *acquire) note(g protocol.Grant) {
	if c := a.k.c; a.options.History && c.options.HistoryLimit > 0 {
		c.note(a.k.key, g.Past())
	}
}

// tell emits an event for each new holder that the acquire waits for. It gives the
// queue the holder's lease, from which an AdditionalWait counts.
func (a *acquire) tell() {
	k := a.k
	s := k.sighting()
	if !s.known || s.looked < a.begun || !s.found || s.rec.State != driver.Held || a.want.Try {
		return // nothing was seen since it began
	}
	for _, q := range k.queue {
		q.shows(s.rec.Lease)
	}
	if a.news != s.rec.Token {
		a.news = s.rec.Token
		held := k.c.heldBy(s.rec, s.freeIn)
		for _, q := range k.queue {
			q.meets(held)
		}
		k.c.events.emit(Event{
			Kind: EventWaiting, Lock: k.key, Owner: s.rec.Owner, Token: s.rec.Token, Remaining: s.freeIn,
			Own: k.c.owns(s.rec),
		})
	}
	k.watch()
}

// replied passes the result of a call on: to observers, as an event, and to the
// deletion of a session that it closed.
func (a *acquire) replied(now time.Duration, call *protocol.Call, res protocol.Result) {
	c := a.k.c
	if res.Err != nil {
		a.k.trouble, a.k.troubled = res.Err, now
	} else {
		c.events.answered()
	}
	// A store that was busy for a moment is no news; one that stays so is.
	if res.Err == nil || engine.Newsworthy(res.Err) || a.con.Silence(now) >= a.t.RequestTimeout {
		a.k.fail(res.Err)
		if res.Err != nil {
			c.events.emit(Event{Kind: EventStoreError, Lock: a.k.key, Err: res.Err})
		}
	}
	switch {
	case res.Outcome != protocol.Applied:
	case call.Kind == protocol.Close:
		c.reapLater(driver.SessionID(call.Key))
	case call.Kind == protocol.Ask:
		c.ringer.asks(call.Key, res.Record.Bell)
	}
}

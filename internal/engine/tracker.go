// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/list"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// tracker has all that one client does about a lock that it does not hold: the acquires
// that wait for the lock, the loops that observe it, and its view. All waiters share
// its polls: only the first of the queue acts, the others wait for their turn. A
// tracker outlives them for a while, so that the view is not lost.
type tracker struct {
	c       *Client
	key     string
	hinting timer
	hinted  atomic.Bool
	freed   atomic.Pointer[remembered] // the record that this client's release left; nil: already noted
	awaited atomic.Bool                // by an acquire in the queue, or an observer; changed under viewMu

	// The client's viewMu guards the fields below.
	view      *protocol.View
	queue     []*acquire // the first acquire acts
	waiters   []*acquire // all acquires that have not ended
	observers map[*Observer]struct{}
	askings   map[*asking]struct{} // the requests without an answer yet
	poller    *poller              // polls for the observers, when no acquire waits; nil before the first observer
	watching  bool                 // the store was asked to watch
	unwatch   func()               // ends the watch
	awaits    *awaitedTerm         // the term whose holder notifies this process; nil if it does not

	trouble  error         // the store's last error to an acquire
	troubled time.Duration // on the contender's clock: when it came

	refs int           // guarded by the client's mu
	idle *list.Element // guarded by the client's mu; nil if it is not in the list of the idle
}

// Observer is one caller that follows the lock without acquiring it, for example a loop
// over Observe.
type Observer struct {
	k        *tracker
	changed  chan struct{} // buffer of one
	begun    time.Duration // on the contender's clock: older reads do not count for it
	err      error         // guarded by viewMu; not yielded yet
	reported bool          // guarded by viewMu; an error was reported since the last answer
}

// poller polls for the observers of a lock.
type poller struct {
	nobody
	k *tracker
	*protocol.Observer
	run   run
	looks int // reads that were noticed
}

// tracker returns the tracker of the lock; the caller must call leave.
func (c *Client) tracker(key string) (*tracker, error) {
	c.thin()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return nil, err
	}
	k := c.trackers[key]
	if k == nil {
		k = &tracker{c: c, key: key, view: protocol.NewView(c.timing, c.env)}
		k.hinting.Run = k.hintDue
		c.trackers[key] = k
	}
	k.refs++
	return k, nil
}

// leave gives the tracker back.
func (k *tracker) leave() {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	k.refs--
	switch {
	case k.refs > 0:
	case k.idle == nil:
		k.idle = c.idle.PushBack(k)
	default:
		c.idle.MoveToBack(k.idle)
	}
}

// thin drops the trackers that have been idle for the longest time. For locks that others hold, it
// notes since when each has shown its sign of life.
func (c *Client) thin() {
	var old []*tracker
	c.mu.Lock()
	for c.idle.Len() > maxIdle {
		k := c.idle.Remove(c.idle.Front()).(*tracker)
		if k.idle = nil; k.refs == 0 {
			delete(c.trackers, k.key)
			if c.own[k.key] == nil { // else its lease has newer knowledge
				old = append(old, k)
			}
		}
	}
	c.mu.Unlock()
	if len(old) == 0 {
		return
	}
	c.viewMu.Lock()
	defer c.viewMu.Unlock()
	for _, k := range old {
		c.liveness.Note(k.view)
	}
}

// fails fails all waiting acquires.
func (k *tracker) fails(err error) {
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	k.queue = nil
	for _, a := range slices.Clone(k.waiters) {
		a.fails(err)
	}
	k.notify()
}

// Released notifies the waiting acquires of this process that a lock is free.
func (c *Client) Released(key string) {
	if k := c.awaited(key); k != nil {
		k.hint()
	}
}

// remembered is a record as a strong reply has shown it.
type remembered struct {
	rec  driver.Record
	sent time.Duration // on the contender's clock: before the call
}

// observeRelease is Released for a lock that a lease of this client has just released, with the
// resulting record. Waiters need not read it.
func (c *Client) observeRelease(rec driver.Record, sent time.Duration) {
	if k := c.awaited(rec.Key); k != nil {
		k.freed.Store(&remembered{rec, sent})
		k.hint()
	}
}

// awaited returns the tracker of a lock with a waiter or an observer, or nil. A later
// contender reads by itself.
func (c *Client) awaited(key string) *tracker {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.trackers[key]; k != nil && k.awaited.Load() {
		return k
	}
	return nil
}

// hint makes a read of the record due soon. It never blocks.
func (k *tracker) hint() {
	if k.hinted.CompareAndSwap(false, true) {
		k.c.readTimers.Set(&k.hinting, 0)
	}
}

// hintDue hands a hint to the machine that polls, unless the release is known already.
func (k *tracker) hintDue(time.Duration) {
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	k.hinted.Store(false)
	if is := k.freed.Swap(nil); is != nil {
		k.view.Observe(is.sent, k.c.clock(), driver.Strong, is.rec, true)
		if rec, _ := k.view.Record(); rec.Version == is.rec.Version {
			k.notify()
			return
		}
	}
	k.read()
}

// read makes the polling machine read the record now. The caller holds viewMu.
func (k *tracker) read() {
	switch {
	case len(k.queue) > 0:
		k.queue[0].look()
	case len(k.observers) > 0:
		k.poller.run.act(k.poller.Hint)
	}
}

// listen asks the holder to notify this process when the lock is free, if the known
// record has an address, and an acquire or observer needs it. The caller holds viewMu.
func (k *tracker) listen() {
	c := k.c
	if c.notifier == nil {
		return
	}
	is := awaitedHolder{key: k.key}
	rec, _ := k.view.Record()
	if rec.State == driver.Held && rec.Notify != "" && (len(k.queue) > 0 || len(k.observers) > 0) {
		is = awaitedHolder{k.key, rec.Notify, rec.Token, rec.Lease}
	}
	k.awaits = c.notifier.awaits(k.awaits, is, len(k.queue) == 0, c.timing.Refresh, k.notified)
}

// notified hands a hint of the holder to the machine that polls.
func (k *tracker) notified() {
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	k.read()
}

// stepped handles the outcome of a step of the observer.
func (p *poller) stepped(time.Duration, protocol.Action) {
	n, err := p.Looks()
	if n != p.looks {
		p.looks = n
		p.k.fail(err)
		if len(p.k.observers) > 0 {
			p.k.watch()
		}
	}
	p.k.notify()
}

// look lets the observer's machine poll if there is an observer and no acquire waits.
func (k *tracker) look() {
	if k.poller == nil {
		return
	}
	k.poller.Want(len(k.observers) > 0 && len(k.queue) == 0)
	k.poller.run.set()
}

// watch asks the store to hint when the record changes, if it can.
func (k *tracker) watch() {
	c := k.c
	if k.watching || c.watcher == nil {
		return
	}
	k.watching = true
	c.sendUnanswered(func(ctx context.Context) error {
		unwatch, err := c.watch(ctx, k.key, k.hint)
		k.watched(unwatch, err)
		return err
	})
}

func (k *tracker) watched(unwatch func(), err error) {
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	if err != nil {
		k.watching = false // polls go on without it
		return
	}
	k.unwatch = unwatch
	k.endWatch()
	switch { // something may have changed before the watch
	case k.unwatch == nil:
	case len(k.queue) > 0:
		k.queue[0].look()
	default:
		k.hint()
	}
}

// endWatch ends the watch when no acquire waits and no observer is left.
func (k *tracker) endWatch() {
	k.listen()
	if len(k.queue) > 0 || len(k.observers) > 0 {
		return
	}
	k.awaited.Store(false)
	if k.unwatch != nil {
		unwatch := k.unwatch
		k.unwatch, k.watching = nil, false
		k.c.unwatch(unwatch)
	}
}

// observed notes the reply to a read by another caller.
func (k *tracker) observed(sent time.Duration, how driver.Consistency, rec driver.Record, found bool) {
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	k.view.Observe(sent, k.c.clock(), how, rec, found)
	k.notify()
}

// polls notes that another caller is about to read the record, and returns the consistency that
// the read needs: strong, or eventual if that is enough.
func (k *tracker) polls(now time.Duration, cheap bool) driver.Consistency {
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	how := driver.Strong
	if cheap {
		how = k.view.PollConsistency(now)
	}
	k.view.Polls(now, how)
	return how
}

// missed says that such a read got no answer.
func (k *tracker) missed() {
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	k.view.Unanswered()
	k.notify()
}

// snapshot returns the current state of the view. The caller holds viewMu.
func (k *tracker) snapshot() Snapshot { return snapshotOf(k.view, k.c.clock()) }

func snapshotOf(view *protocol.View, now time.Duration) Snapshot {
	s := Snapshot{}
	s.looked, s.known = view.Known()
	s.Record, s.Found = view.Record()
	if dead, held := view.DeadAt(); held {
		s.FreeIn = max(0, dead-now)
		s.Alive = s.Record.State == driver.Held && !view.Dead()
		s.Since = now - view.Since()
		s.closed = view.Closed()
		if u := view.Under(); u != nil {
			s.Since = now - u.Since()
			if _, looked := u.Known(); !looked {
				s.FreeIn, s.Since = 0, 0 // unknown
			}
		}
	}
	return s
}

// openSession returns the id of the session under which the lock is held, if the
// session is not known to have ended.
func (k *tracker) openSession() (string, bool) {
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	rec, _ := k.view.Record()
	return rec.Session, k.view.UnderSession() && !k.view.Ended()
}

// seen returns the current state of the view, after another caller's read of the session was
// noted, and whether a strong read of the lock is due.
func (k *tracker) seen() (s Snapshot, hinted bool) {
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	k.notify()
	return k.snapshot(), k.view.Hinted()
}

// notify is called when the view may have changed. It wakes the observers, reschedules
// the next polls, and keeps polling for observers when no acquire waits any more. The
// caller holds viewMu.
func (k *tracker) notify() {
	k.listen()
	for _, w := range k.waiters {
		w.reschedule()
	}
	for a := range k.askings {
		a.run.set()
	}
	if len(k.queue) > 0 {
		k.letReserved()
	}
	for o := range k.observers {
		select {
		case o.changed <- struct{}{}:
		default:
		}
	}
	k.look()
}

// letReserved lets the acquire for which the lock is reserved act before earlier ones
// of this process: acquires for remote holders have different owners. The
// caller holds viewMu.
func (k *tracker) letReserved() {
	rec, found := k.view.Record()
	if !found || rec.State != driver.Reserved || k.queue[0].reservedBy(rec) {
		return
	}
	for _, q := range k.queue[1:] {
		if q.reservedBy(rec) {
			q.act()
			return
		}
	}
}

// fail hands an error of a read to the observers, or clears it.
func (k *tracker) fail(err error) {
	for o := range k.observers {
		if err != nil && !o.reported {
			o.err = err
		}
		o.reported = err != nil
	}
}

// Observe follows a lock, until the observer is closed.
func (c *Client) Observe(key string) (*Observer, error) {
	k, err := c.tracker(key)
	if err != nil {
		return nil, err
	}
	o := &Observer{k: k, changed: make(chan struct{}, 1), begun: c.clock()}
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	k.follow()
	k.observers[o] = struct{}{}
	k.awaited.Store(true)
	k.poller.Want(len(k.queue) == 0)
	k.hint() // the first read is strong
	return o, nil
}

// follow makes the machine that polls for observers. Most locks never have one.
func (k *tracker) follow() {
	if k.poller != nil {
		return
	}
	c := k.c
	k.poller = &poller{k: k, Observer: protocol.NewObserver(c.timing, c.env, k.key, k.view)}
	k.poller.run = c.run(k.poller.Observer, k.poller, &c.viewMu)
	k.observers = map[*Observer]struct{}{}
}

// Close ends the observing.
func (o *Observer) Close() {
	k := o.k
	defer k.leave()
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	delete(k.observers, o)
	if len(k.observers) == 0 {
		k.poller.run.act(k.poller.GiveUp)
	}
	k.endWatch()
}

// Latest returns the latest state, and an error that was not returned yet. fresh says that
// the state was read since the observing began.
func (o *Observer) Latest() (s Snapshot, fresh bool, err error) {
	k := o.k
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	err, o.err = o.err, nil
	s = k.snapshot()
	return s, s.known && s.looked >= o.begun, err
}

// Wait waits until the state s may have changed: by a read, or because no sign of life
// came for a lease.
func (o *Observer) Wait(ctx context.Context, s Snapshot) error {
	// If the session of a lock has not been read yet, it is unknown when the lock is free.
	// The read under way will show it.
	var dead <-chan time.Time
	if (s.Alive || s.Record.State == driver.Reserved) && s.FreeIn > 0 {
		timer := time.NewTimer(s.FreeIn)
		defer timer.Stop()
		dead = timer.C
	}
	c := o.k.c
	select {
	case <-o.changed:
		return nil
	case <-dead:
		return nil
	case <-ctx.Done():
		return Done(ctx)
	case <-c.closing:
		return ErrClosed
	case <-c.voided:
		return c.Usable()
	}
}

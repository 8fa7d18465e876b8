// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// contest is what one client does about one lock that it does not hold: those
// who wait for it, those who observe it, and what was seen of it. All waiters
// share its looks: only the first of the queue acts, the others wait for their
// turn. It outlives them for a while, for the sake of what was seen.
type contest struct {
	c      *Client
	key    string
	look   entry // hints, and looks for observers when nobody waits
	hinted atomic.Bool

	mu        sync.Mutex // guards the fields below; taken before a lease's and the client's
	sight     *protocol.Sight
	queue     []*acquire // the first one acts
	acquires  map[*acquire]struct{}
	observers map[*observer]struct{}
	looking   bool   // a look for observers is under way
	failed    error  // of the latest look for observers
	watching  bool   // asked the store to watch
	unwatch   func() // ends that

	refs int           // guarded by the client
	idle *list.Element // guarded by the client; nil while refs > 0
}

// contest returns the contest of the lock; the caller leaves it again.
func (c *Client) contest(key string) (*contest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	k := c.contests[key]
	if k == nil {
		k = &contest{
			c: c, key: key, sight: protocol.NewSight(c.timing, c.env),
			acquires: map[*acquire]struct{}{}, observers: map[*observer]struct{}{},
		}
		k.look.run = k.lookDue
		c.contests[key] = k
	}
	k.refs++
	if k.idle != nil {
		c.idle.Remove(k.idle)
		k.idle = nil
	}
	return k, nil
}

func (k *contest) leave() {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.refs--; k.refs > 0 {
		return
	}
	k.idle = c.idle.PushBack(k)
	if c.idle.Len() > maxObserved {
		oldest := c.idle.Remove(c.idle.Front()).(*contest)
		delete(c.contests, oldest.key)
	}
}

// acquire is one call of Acquire.
type acquire struct {
	entry
	k       *contest
	want    protocol.Want
	begun   time.Duration
	con     *protocol.Contender // nil while it waits for its turn
	sent    []sentVersion
	answer  chan acquired      // has room for the one answer
	shown   chan time.Duration // has room for the lease that was first seen
	settled bool               // answered, or abandoned
	shownTo bool
	told    uint64 // the token of the holder that was told in an event
	ended   bool
}

type acquired struct {
	l   *Lease
	err error
}

// sentVersion is when a write was sent, on the holder's clock.
type sentVersion struct {
	version string
	at      time.Duration
}

// maxSent bounds the writes that an acquire remembers: more than the machine
// does. One that is forgotten counts from the origin of the clock, so that its
// lease is over before it began.
const maxSent = 512

func (a *acquire) remember(version string, at time.Duration) {
	if len(a.sent) == maxSent {
		a.sent = append(a.sent[:0], a.sent[1:]...)
	}
	a.sent = append(a.sent, sentVersion{version, at})
}

func (a *acquire) sentAt(version string) time.Duration {
	for _, s := range a.sent {
		if s.version == version {
			return s.at
		}
	}
	return 0
}

// join adds an acquire. One that only tries acts at once; others queue.
func (k *contest) join(want protocol.Want) *acquire {
	a := &acquire{
		k: k, want: want, begun: k.c.clock.Contender(),
		answer: make(chan acquired, 1), shown: make(chan time.Duration, 1),
	}
	a.run = func(time.Duration) { a.do((*protocol.Contender).Step) }
	k.mu.Lock()
	defer k.mu.Unlock()
	k.acquires[a] = struct{}{}
	if !k.c.began(nil) {
		a.settle(nil, ErrClosed)
		a.end()
		return a
	}
	switch {
	case want.Try:
		a.start()
	default:
		k.queue = append(k.queue, a)
		if len(k.queue) == 1 {
			a.start()
		}
	}
	return a
}

// wait waits for the answer.
func (a *acquire) wait(ctx context.Context, additional time.Duration) (*Lease, error) {
	var late <-chan time.Time
	shown := a.shown
	if additional == 0 {
		shown = nil
	}
	for {
		select {
		case r := <-a.answer:
			return r.l, r.err
		case lease := <-shown:
			timer := time.NewTimer(lease + additional)
			defer timer.Stop()
			late = timer.C
		case <-late:
			return nil, a.abandon(nil)
		case <-ctx.Done():
			return nil, a.abandon(ctx.Err())
		}
	}
}

// abandon ends the waiting. A lease that came at the same moment is released.
func (a *acquire) abandon(err error) error {
	k := a.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		s := k.sighting()
		err = &HeldError{Owner: s.rec.Owner, Token: s.rec.Token, FreeIn: s.freeIn}
	}
	if a.settled {
		if r := <-a.answer; r.l != nil {
			r.l.free()
		}
		return err
	}
	a.settled = true
	a.giveUp()
	return err
}

// start makes the first move. The caller holds the contest.
func (a *acquire) start() {
	a.con = protocol.NewContender(a.k.c.timing, a.k.c.env, a.want, a.k.sight)
	a.step((*protocol.Contender).Step)
}

// giveUp takes the acquire off the queue. The caller holds the contest.
func (a *acquire) giveUp() {
	a.unqueue()
	if a.con == nil {
		a.end()
		return
	}
	a.step((*protocol.Contender).GiveUp)
}

// unqueue gives the turn to the next one if it was this one's. The next one
// knows what was seen until now, and begins with waiting.
func (a *acquire) unqueue() {
	k := a.k
	for i, q := range k.queue {
		if q != a {
			continue
		}
		k.queue = append(k.queue[:i], k.queue[i+1:]...)
		if i == 0 && len(k.queue) > 0 {
			k.queue[0].want.Behind = true
			k.queue[0].start()
		}
		break
	}
	k.rest()
}

func (a *acquire) do(step func(*protocol.Contender, time.Duration) protocol.Action) {
	a.k.mu.Lock()
	defer a.k.mu.Unlock()
	a.step(step)
}

// step makes one step of the machine and carries out what it wants. The caller
// holds the contest.
func (a *acquire) step(step func(*protocol.Contender, time.Duration) protocol.Action) {
	if a.ended {
		return
	}
	k, c := a.k, a.k.c
	// A lease that is granted counts on the holder's clock, from before the
	// request that this step may make.
	before := c.clock.Holder()
	act := step(a.con, c.clock.Contender())
	if r := act.Request; r != nil {
		if r.Kind != protocol.Look {
			a.remember(r.Next.Version, before)
		}
		a.send(r)
	}
	if g, ok := a.con.Granted(); ok {
		a.won(g)
		return
	}
	if r := a.con.Refused(); r != nil && !a.settled {
		a.settle(nil, a.refusal(r))
		a.unqueue()
	}
	if !a.settled {
		a.tell()
	}
	k.notify()
	if a.con.Over() {
		a.end()
	} else if at, ok := a.con.Next(); ok {
		c.looks.set(&a.entry, at)
	} else {
		c.looks.drop(&a.entry)
	}
}

// won hands the lease over, or releases it if nobody waits for it any more.
func (a *acquire) won(g protocol.Grant) {
	c := a.k.c
	g.Sent = a.sentAt(g.Record.Version)
	l, open := c.newLease(g, a.want.Data)
	switch {
	case a.settled || !open:
		a.settle(nil, ErrClosed)
		l.free()
	case l.Check() != nil:
		// Paused between the request and now, until the lease was over.
		a.settle(nil, ErrExpired)
		l.free()
	default:
		c.events.emit(Event{
			Kind: EventAcquired, Lock: l.key, Owner: l.Owner(), Token: l.token,
			Took: c.clock.Contender() - a.begun, Remaining: l.Remaining(),
		})
		a.settle(l, nil)
	}
	a.unqueue()
	a.k.notify()
	a.end()
}

func (a *acquire) settle(l *Lease, err error) {
	if !a.settled {
		a.settled = true
		a.answer <- acquired{l, err}
	}
}

func (a *acquire) refusal(r *protocol.Refusal) error {
	switch {
	case r.Held:
		return &HeldError{Owner: r.Record.Owner, Token: r.Record.Token, FreeIn: r.FreeIn}
	case r.Record.Key != "": // what the machine itself saw of it
		return refused("%w: lease %v, state %q, written by %q", ErrUnreadable, r.Record.Lease, r.Record.State, r.Record.Owner)
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
	delete(a.k.acquires, a)
	a.k.c.looks.drop(&a.entry)
	a.k.c.finished(nil)
	a.k.leave()
}

// tell says who holds the lock, once for each holder, and to those who wait
// for so long and no longer what lease it has.
func (a *acquire) tell() {
	k := a.k
	s := k.sighting()
	if !s.known || s.looked < a.begun || !s.found || s.rec.State != driver.Held || a.want.Try {
		return // nothing was seen since it began
	}
	for _, q := range k.queue {
		if !q.shownTo {
			q.shownTo = true
			q.shown <- s.rec.Lease
		}
	}
	if a.told != s.rec.Token {
		a.told = s.rec.Token
		k.c.events.emit(Event{
			Kind: EventWaiting, Lock: k.key, Owner: s.rec.Owner, Token: s.rec.Token, Remaining: s.freeIn,
		})
		k.watch()
	}
}

func (a *acquire) send(r *protocol.Request) {
	c := a.k.c
	r.Next.Since = time.Now()
	if r.Kind == protocol.Release {
		r.Next.Since, r.Next.Until = r.Prev.Since, r.Next.Since
	}
	c.requests.send(unhurried, request{
		kind: r.Kind,
		ask: func(ctx context.Context) (rec, former driver.Record, err error) {
			switch r.Kind {
			case protocol.Look:
				rec, err = c.store.Get(ctx, r.Key, r.Consistency)
			case protocol.Claim:
				rec, former, err = c.store.Claim(ctx, r.Next)
			default:
				rec, err = c.store.Swap(ctx, r.Prev, r.Next)
				former = r.Prev
			}
			return rec, former, err
		},
		answer: a.reply,
	})
}

func (a *acquire) reply(res protocol.Result) {
	// A store that was busy for a moment is no news.
	news := !errors.Is(res.Err, driver.ErrNotApplied)
	if res.Err != nil && news {
		a.k.c.events.emit(Event{Kind: EventStoreError, Lock: a.k.key, Err: res.Err})
	}
	a.do(func(con *protocol.Contender, now time.Duration) protocol.Action {
		if news {
			a.k.fail(res.Err)
		}
		return con.Reply(now, res)
	})
}

// close fails all who wait.
func (k *contest) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue = nil
	for a := range k.acquires {
		a.settle(nil, ErrClosed)
		a.giveUp()
	}
	k.notify()
}

// hint has the record looked at soon. It never blocks.
func (k *contest) hint() {
	if k.hinted.CompareAndSwap(false, true) {
		k.c.looks.set(&k.look, 0)
	}
}

// lookDue answers a hint, and looks for observers when nobody waits.
func (k *contest) lookDue(now time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	hinted := k.hinted.Swap(false)
	if len(k.queue) > 0 {
		if hinted {
			k.queue[0].step((*protocol.Contender).Hint)
		}
		return
	}
	if len(k.observers) == 0 || k.looking {
		return
	}
	if next := k.sight.NextLook(); !hinted && next > now {
		k.c.looks.set(&k.look, next)
		return
	}
	k.looking = true
	how := driver.Eventual
	if hinted {
		how = driver.Strong
	}
	c := k.c
	sent := c.clock.Contender()
	c.requests.send(unhurried, request{
		kind: protocol.Look,
		ask: func(ctx context.Context) (rec, former driver.Record, err error) {
			rec, err = c.store.Get(ctx, k.key, how)
			return rec, former, err
		},
		answer: func(res protocol.Result) { k.looked(sent, res) },
	})
}

// looked takes the result of a look for observers.
func (k *contest) looked(sent time.Duration, res protocol.Result) {
	c := k.c
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looking = false
	now := c.clock.Contender()
	again := now + c.timing.Refresh
	if k.fail(res.Err); res.Err == nil {
		k.sight.Saw(sent, now, res.Record, res.Found)
		again = k.sight.NextLook()
	}
	k.notify()
	if len(k.observers) > 0 {
		k.watch()
		c.looks.set(&k.look, again)
	}
}

// watch asks the store to hint when the record changes, if it can.
func (k *contest) watch() {
	c := k.c
	if k.watching || c.watcher == nil {
		return
	}
	k.watching = true
	c.requests.send(unhurried, request{
		kind: protocol.Look,
		ask: func(context.Context) (rec, former driver.Record, err error) {
			unwatch, err := c.watcher.Watch(k.key, k.hint)
			k.watched(unwatch, err)
			return rec, former, err
		},
		answer: func(protocol.Result) {}, // watched has it, however late it comes
	})
}

func (k *contest) watched(unwatch func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.watching = false // looks go on without it
		return
	}
	k.unwatch = unwatch
	k.rest()
	if k.unwatch != nil {
		k.hint() // for what changed before the watch
	}
}

// rest ends the watch when nobody waits or observes.
func (k *contest) rest() {
	if len(k.queue) == 0 && len(k.observers) == 0 && k.unwatch != nil {
		k.unwatch()
		k.unwatch, k.watching = nil, false
	}
}

// saw notes a reply to a look that others made.
func (k *contest) saw(sent time.Duration, rec driver.Record, found bool) sighting {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sight.Saw(sent, k.c.clock.Contender(), rec, found)
	k.notify()
	return k.sighting()
}

func (k *contest) sighting() sighting {
	now := k.c.clock.Contender()
	s := sighting{}
	s.looked, s.known = k.sight.Known()
	s.rec, s.found = k.sight.Record()
	if dead, held := k.sight.DeadAt(); held {
		s.freeIn = max(0, dead-now)
		s.alive = s.freeIn > 0
		s.since = now - k.sight.Since()
	}
	return s
}

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
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// tracker is what one client does about one lock that it does not hold: the
// acquires that wait for it, the loops that observe it, and what was seen of it.
// All waiters share its polls: only the first of the queue acts, the others wait
// for their turn. A tracker outlives them for a while, so that what was seen is not
// lost.
type tracker struct {
	c       *base
	key     string
	hinting engine.Timer
	hinted  atomic.Bool
	awaited atomic.Bool // by somebody in the queue, or an observer; changed under mu

	mu        *sync.Mutex // the client's seeing; guards the fields below
	sight     *protocol.Sight
	queue     []*acquire            // the first one acts
	waiters   map[*acquire]struct{} // all that have not ended
	unhurried int                   // how many of them are so
	hasty     map[*acquire]struct{} // those of them with a timing of their own
	observers map[*observer]struct{}
	seer      *seer    // looks for them, when nobody waits; nil before the first one
	watching  bool     // asked the store to watch
	unwatch   func()   // ends that
	awaits    *awaited // the holder, to be told when it rings; nil without a bell

	trouble  error         // the last one of the store to an acquire
	troubled time.Duration // on the contender's clock: when that came

	of   *trackers
	refs int           // guarded by the client
	idle *list.Element // guarded by the client; nil while refs > 0
}

// observer is one caller that follows the lock without acquiring it: a loop over
// Observe, say.
type observer struct {
	changed chan struct{} // has room for one
	begun   time.Duration // on the contender's clock: older reads tell it nothing
	err     error         // guarded by the tracker; not yielded yet
	told    bool          // guarded by the tracker; of an error since the last answer
}

// seer is what looks for the observers of a lock.
type seer struct {
	*protocol.Observer
	run   engine.Run
	looks int // that were noticed
}

// sighting is a snapshot of what a client saw of a record.
type sighting struct {
	rec    driver.Record
	found  bool
	known  bool
	looked time.Duration // on the contender's clock: when the latest reply came
	alive  bool          // it shows a holder that may be alive
	closed bool          // it shows one whose session has been closed by itself
	since  time.Duration
	freeIn time.Duration
	sure   bool // a strong reply that came when the lease was over has shown its sign of life
}

// trackers are those of one client.
type trackers struct {
	b    *base
	all  map[string]*tracker // by key; guarded by the client
	idle *list.List          // those that nobody waits in, oldest first; guarded by the client
}

// tracker returns the tracker of the lock; the caller leaves it again.
func (ts *trackers) tracker(key string) (*tracker, error) {
	c := ts.b
	ts.thin()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return nil, err
	}
	k := ts.all[key]
	if k == nil {
		k = &tracker{
			c: c, of: ts, key: key, mu: &c.seeing, sight: protocol.NewSight(c.timing, c.env),
			waiters: map[*acquire]struct{}{},
		}
		k.hinting.Run = k.hintDue
		ts.all[key] = k
	}
	k.refs++
	if k.idle != nil {
		ts.idle.Remove(k.idle)
		k.idle = nil
	}
	return k, nil
}

func (k *tracker) leave() {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.refs--; k.refs > 0 {
		return
	}
	k.idle = k.of.idle.PushBack(k)
}

// thin forgets the locks that nobody has waited for or observed for the longest
// time. Of those that were held it keeps since when.
func (ts *trackers) thin() {
	var old []*tracker
	c := ts.b
	c.mu.Lock()
	for ts.idle.Len() > engine.MaxObserved {
		k := ts.idle.Remove(ts.idle.Front()).(*tracker)
		delete(ts.all, k.key)
		old = append(old, k)
	}
	c.mu.Unlock()
	if len(old) == 0 {
		return
	}
	c.seeing.Lock()
	defer c.seeing.Unlock()
	for _, k := range old {
		c.liveness.Note(k.sight)
	}
}

// fails fails all acquires that wait.
func (k *tracker) fails(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue = nil
	for a := range k.waiters {
		a.fails(err)
	}
	k.notify()
}

// hint tells the acquires of this process that wait for a lock that it is free.
func (ts *trackers) hint(key string) {
	ts.b.mu.Lock()
	k := ts.all[key]
	ts.b.mu.Unlock()
	if k != nil && k.awaited.Load() { // a contender that comes later looks by itself
		k.hint()
	}
}

// hint has the record looked at soon. It never blocks.
func (k *tracker) hint() {
	if k.hinted.CompareAndSwap(false, true) {
		k.c.looks.Set(&k.hinting, 0)
	}
}

// hintDue hands a hint to the machine that looks.
func (k *tracker) hintDue(time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hinted.Store(false)
	switch {
	case len(k.queue) > 0:
		k.queue[0].told()
	case len(k.observers) > 0:
		k.seer.run.Act(k.seer.Hint)
	}
}

// listen tells the holder to ring this process when the lock is free, if the record that
// was seen last has a bell, and somebody wants to know. The caller holds the tracker.
func (k *tracker) listen() {
	c := k.c
	if c.ringer == nil {
		return
	}
	is := tenancy{key: k.key}
	rec, _ := k.sight.Record()
	if rec.State == driver.Held && rec.Bell != "" && (len(k.queue) > 0 || len(k.observers) > 0) {
		is = tenancy{k.key, rec.Bell, rec.Token, rec.Lease}
	}
	k.awaits = c.ringer.awaits(k.awaits, is, len(k.queue) == 0, c.timing.Refresh, k.rung)
}

// rung hands a hint of the holder to the machine that looks.
func (k *tracker) rung() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case len(k.queue) > 0:
		k.queue[0].rung()
	case len(k.observers) > 0:
		k.seer.run.Act(k.seer.Hint)
	}
}

// looked carries out what a step of the observer has led to.
func (k *tracker) looked(time.Duration, protocol.Action) {
	n, err := k.seer.Looks()
	if n != k.seer.looks {
		k.seer.looks = n
		k.fail(err)
		if len(k.observers) > 0 {
			k.watch()
		}
	}
	k.notify()
}

// look has the observer poll when an observer wants to know, and no acquire waits.
func (k *tracker) look() {
	if k.seer == nil {
		return
	}
	k.seer.Want(len(k.observers) > 0 && len(k.queue) == 0)
	k.seer.run.Set()
}

// watch asks the store to hint when the record changes, if it can.
func (k *tracker) watch() {
	c := k.c
	if k.watching || c.watcher == nil {
		return
	}
	k.watching = true
	c.alone(func(ctx context.Context) error {
		unwatch, err := c.watch(ctx, k.key, k.hint)
		k.watched(unwatch, err)
		return err
	})
}

func (k *tracker) watched(unwatch func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.watching = false // looks go on without it
		return
	}
	k.unwatch = unwatch
	k.rest()
	switch { // for what changed before the watch
	case k.unwatch == nil:
	case len(k.queue) > 0:
		k.queue[0].look()
	default:
		k.hint()
	}
}

// rest ends the watch when nobody waits or observes.
func (k *tracker) rest() {
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

// saw notes a reply to a read that others made.
func (k *tracker) saw(sent time.Duration, how driver.Consistency, rec driver.Record, found bool) sighting {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sight.Saw(sent, k.c.clock.Contender(), how, rec, found)
	k.notify()
	return k.sighting()
}

// how returns how fresh a read must be that is made now, by one that looks again and again,
// or looks at the lock alone. Where nobody has looked for a while it is cheap: what it shows
// is read again if that matters.
func (k *tracker) how(now time.Duration, alone bool) driver.Consistency {
	k.mu.Lock()
	defer k.mu.Unlock()
	looked, known := k.sight.Known()
	if alone && !known || known && now-looked > 2*k.c.timing.Refresh && !k.sight.Doubts() {
		return driver.Eventual
	}
	return k.sight.How(now)
}

// seemsDead says that it shows a holder with a lease of its own, which seems to be over, and
// that no strong read has told so.
func (s sighting) seemsDead() bool {
	return s.rec.State == driver.Held && s.rec.Session == "" && !s.alive && !s.sure
}

// known says that the record was read before.
func (k *tracker) known() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, known := k.sight.Known()
	return known
}

// sighting returns what was seen last. The caller holds the tracker.
func (k *tracker) sighting() sighting {
	now := k.c.clock.Contender()
	s := sighting{}
	s.looked, s.known = k.sight.Known()
	s.rec, s.found = k.sight.Record()
	if dead, held := k.sight.DeadAt(); held {
		s.freeIn = max(0, dead-now)
		s.alive = s.freeIn > 0 && s.rec.State == driver.Held
		s.since = now - k.sight.Since()
		s.sure = k.sight.Sure()
		s.closed = k.sight.Closed()
		if u := k.sight.Under(); u != nil {
			s.since = now - u.Since()
			if _, looked := u.Known(); !looked {
				s.freeIn, s.since = 0, 0 // nobody can tell
			}
		}
	}
	return s
}

// openSession returns the id of the session of a lock that was seen under it, and
// is not known to have ended.
func (k *tracker) openSession() (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rec, _ := k.sight.Record()
	return rec.Session, k.sight.Tied() && !k.sight.Ended()
}

// seen returns what was seen last, after a read of the session by others was noted.
func (k *tracker) seen() sighting {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notify()
	return k.sighting()
}

// notify is called when something new may have been seen. It wakes the observers,
// moves the next poll of the acquire that acts to its new time, and keeps polling
// for observers when no acquire waits any more. The caller holds the tracker.
func (k *tracker) notify() {
	k.listen()
	if len(k.queue) > 0 {
		k.queue[0].noticed()
		k.letHeir()
	}
	for o := range k.observers {
		select {
		case o.changed <- struct{}{}:
		default:
		}
	}
	k.look()
}

// hurry has the record looked at as often as the most impatient of those wants it who
// wait, or observe. The caller holds the tracker.
func (k *tracker) hurry() {
	refresh, lease := k.c.timing.Refresh, k.c.timing.Lease
	if len(k.hasty) > 0 && len(k.hasty) == len(k.waiters) && len(k.observers) == 0 {
		refresh, lease = protocol.MaxLease, protocol.MaxLease // nobody has the client's
	}
	for q := range k.hasty {
		t := q.t
		refresh, lease = min(refresh, t.Refresh), min(lease, t.Lease)
	}
	k.sight.LookFor(refresh, lease, k.unhurried > 0 && k.unhurried == len(k.waiters) && len(k.observers) == 0)
}

// joins and leaves keep the account of those who wait.
func (k *tracker) joins(w *acquire) {
	k.waiters[w] = struct{}{}
	if w.options.Unhurried {
		k.unhurried++
	}
	if w.t != k.c.timing {
		if k.hasty == nil {
			k.hasty = map[*acquire]struct{}{}
		}
		k.hasty[w] = struct{}{}
	}
	k.hurry()
}

func (k *tracker) leaves(w *acquire) {
	if _, waits := k.waiters[w]; waits && w.options.Unhurried {
		k.unhurried--
	}
	delete(k.waiters, w)
	delete(k.hasty, w)
	k.hurry()
}

// letHeir lets the one act for whom the lock is reserved, although others of this
// process came before it: each may be of another owner, if they are elsewhere. The caller
// holds the tracker.
func (k *tracker) letHeir() {
	rec, found := k.sight.Record()
	if !found || rec.State != driver.Reserved || k.queue[0].heirOf(rec) {
		return
	}
	for _, q := range k.queue[1:] {
		if q.heirOf(rec) {
			q.act()
			return
		}
	}
}

// fail hands an error of a read to the observers, or clears it.
func (k *tracker) fail(err error) {
	for o := range k.observers {
		if err != nil && !o.told {
			o.err = err
		}
		o.told = err != nil
	}
}

func (k *tracker) observe() *observer {
	o := &observer{changed: make(chan struct{}, 1), begun: k.c.clock.Contender()}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.follow()
	k.observers[o] = struct{}{}
	k.hurry()
	k.awaited.Store(true)
	k.c.sessions.AddObserver(k.seer.Observer, &k.seer.run)
	k.seer.Want(len(k.queue) == 0)
	k.hint() // the first read is a strong one
	return o
}

// follow makes what looks for observers. Most locks never have one.
func (k *tracker) follow() {
	if k.seer != nil {
		return
	}
	c := k.c
	k.seer = &seer{Observer: protocol.NewObserver(c.timing, c.env, k.key, k.sight)}
	k.seer.run = engine.Run{
		Machine: k.seer.Observer, Mutex: k.mu, Clock: c.contender, Timers: c.looks, Send: c.last,
		Stepped: k.looked, Wake: c.sessions.Wake,
	}
	k.observers = map[*observer]struct{}{}
}

func (k *tracker) unobserve(o *observer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.observers, o)
	k.hurry()
	if len(k.observers) == 0 {
		k.seer.run.Act(k.seer.GiveUp)
		k.c.sessions.RemoveObserver(k.seer.Observer)
	}
	k.rest()
}

// observed returns the latest state, and an error that was not taken yet.
func (k *tracker) observed(o *observer) (sighting, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := o.err
	o.err = nil
	return k.sighting(), err
}

// wait waits until the state may have changed: by a read, or because no sign of
// life came for a lease.
func (o *observer) wait(ctx context.Context, c *base, s sighting) error {
	// If the session of a lock was not read yet, nobody can tell when the lock is
	// free. The read that is under way will.
	var dead <-chan time.Time
	if (s.alive || s.rec.State == driver.Reserved) && s.freeIn > 0 {
		timer := time.NewTimer(s.freeIn)
		defer timer.Stop()
		dead = timer.C
	}
	select {
	case <-o.changed:
		return nil
	case <-dead:
		return nil
	case <-ctx.Done():
		return done(ctx)
	case <-c.closing:
		return ErrClosed
	case <-c.voided:
		return c.refusal()
	}
}

// StandBack lets others take the lock first, after a step-down. A contender on
// another machine polls only now and then, and needs the time to see that the lock
// is free. StandBack returns when another owner has the lock, or when the lock is
// reserved for this client; otherwise after twice the time of a poll and a write,
// 5 s by default. [Election.Run] does it by itself. The error matches the
// context's, or [ErrClosed].
func (c *Client) StandBack(ctx context.Context, name string) error {
	return c.standBack(ctx, name, c.timing)
}

func (c *Client) standBack(ctx context.Context, name string, t protocol.Timing) error {
	k, err := c.tracker(name)
	if err != nil {
		return wrap("stand back", name, err)
	}
	defer k.leave()
	o := k.observe()
	defer k.unobserve(o)
	bound, stop := context.WithTimeoutCause(ctx, t.Reservation(), errWaited)
	defer stop()
	for {
		s, _ := k.observed(o) // a store that fails is asked again
		if mine := s.rec.Owner == c.options.Owner; s.known && s.looked >= o.begun && s.found &&
			(s.rec.State == driver.Held && !mine || protocol.KeptFor(s.rec, c.options.Owner, c.options.Label)) {
			return nil
		}
		switch err := o.wait(bound, k.c, s); {
		case errors.Is(err, errWaited):
			return nil
		case err != nil:
			return wrap("stand back", name, err)
		}
	}
}

var errWaited = errors.New("waited long enough")

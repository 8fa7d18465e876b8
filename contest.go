// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"container/list"
	"context"
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

	mu        *sync.Mutex // the client's seeing; guards the fields below
	sight     *protocol.Sight
	queue     []*acquire // the first one acts
	acquires  map[*acquire]struct{}
	observers map[*observer]struct{}
	looking   bool          // a look for observers is under way
	answered  time.Duration // after the reply to the latest one
	watching  bool          // asked the store to watch
	unwatch   func()        // ends that

	refs int           // guarded by the client
	idle *list.Element // guarded by the client; nil while refs > 0
}

// contest returns the contest of the lock; the caller leaves it again.
func (c *Client) contest(key string) (*contest, error) {
	c.thin()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return nil, err
	}
	k := c.contests[key]
	if k == nil {
		k = &contest{
			c: c, key: key, mu: &c.seeing, sight: protocol.NewSight(c.timing, c.env),
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
}

// thin forgets the locks that nobody has waited for or observed for the longest
// time. Of those that were held it keeps since when.
func (c *Client) thin() {
	var old []*contest
	c.mu.Lock()
	for c.idle.Len() > maxObserved {
		k := c.idle.Remove(c.idle.Front()).(*contest)
		delete(c.contests, k.key)
		old = append(old, k)
	}
	c.mu.Unlock()
	if len(old) == 0 {
		return
	}
	c.seeing.Lock()
	defer c.seeing.Unlock()
	for _, k := range old {
		c.recall.note(k.sight)
	}
}

// fails fails all who wait.
func (k *contest) fails(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue = nil
	for a := range k.acquires {
		a.settle(nil, err)
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

// lookAt has the record looked at then, or at once if a hint waits.
func (k *contest) lookAt(at time.Duration) {
	k.c.looks.set(&k.look, at)
	if k.hinted.Load() { // after that: a hint in between is not moved away
		k.c.looks.set(&k.look, 0)
	}
}

// nextLook is when to look again for observers, some time after the last look. A
// watch does not tell that somebody takes a free lock, so that has to be looked for
// however long the refresh period is.
func (k *contest) nextLook() time.Duration {
	next := k.sight.NextLook()
	if u := k.sight.Under(); u != nil && !k.sight.Ended() {
		next = min(next, u.NextLook())
	}
	if s := k.sighting(); s.known && !s.alive {
		next = min(next, s.looked+min(k.c.timing.Refresh, k.c.timing.Lease/5))
	}
	if k.answered > 0 {
		next = max(next, k.answered+k.c.timing.Pause())
	}
	return next
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
	if len(k.observers) == 0 {
		return
	}
	if k.looking {
		if hinted {
			k.hinted.Store(true) // for when that look is answered
		}
		return
	}
	if next := k.nextLook(); !hinted && next > now {
		k.lookAt(next)
		return
	}
	k.looking = true
	how := k.sight.How(now)
	if hinted {
		how = driver.Strong
	}
	c := k.c
	sent := c.clock.Contender()
	c.get(k.key, how, func(res protocol.Result) { k.looked(sent, how, res) })
}

// looked takes the result of a look for observers.
func (k *contest) looked(sent time.Duration, how driver.Consistency, res protocol.Result) {
	c := k.c
	k.mu.Lock()
	defer k.mu.Unlock()
	now := c.clock.Contender()
	if res.Err == nil {
		k.sight.Saw(sent, now, how, res.Record, res.Found)
		if k.peeks(now) {
			return // what the session shows says when to look again
		}
	}
	k.lookedOn(now, res.Err)
}

// lookedOn ends a look for observers. The caller holds the contest.
func (k *contest) lookedOn(now time.Duration, err error) {
	k.looking, k.answered = false, now
	k.fail(err)
	k.notify()
	if len(k.observers) > 0 {
		k.watch()
		again := k.nextLook()
		if err != nil {
			again = now + k.c.timing.Pause()
		}
		k.lookAt(again)
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
			unwatch, err := c.watch(k.key, k.hint)
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
		unwatch := k.unwatch
		k.unwatch, k.watching = nil, false
		k.c.unwatch(unwatch)
	}
}

// saw notes a reply to a look that others made.
func (k *contest) saw(sent time.Duration, how driver.Consistency, rec driver.Record, found bool) sighting {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sight.Saw(sent, k.c.clock.Contender(), how, rec, found)
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
		s.alive = s.freeIn > 0 && s.rec.State == driver.Held
		s.since = now - k.sight.Since()
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"iter"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Observe yields the leader, now and after every change, until ctx ends or the loop
// is left. If nobody leads, it yields a Leader for which None is true. It yields
// the latest state: a slow loop skips tenures, which shows in the tokens, and
// delays nobody. An error of the store is yielded once, and observing goes on; the
// last error is ctx's, or [ErrClosed].
//
// All observers and contenders of a process share the polls of a record.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := checkKey(e.name); err != nil {
			yield(Leader{}, wrap("observe", e.name, err))
			return
		}
		k, err := e.c.tracker(e.name)
		if err != nil {
			yield(Leader{}, wrap("observe", e.name, err))
			return
		}
		defer k.leave()
		o := k.observe()
		defer k.unobserve(o)

		var last Leader
		first := true
		for {
			s, err := k.observed(o)
			switch l := s.leader(); {
			case err != nil:
				if !yield(Leader{}, wrap("observe", e.name, err)) {
					return
				}
				continue // something may have been seen besides
			case s.known && s.looked >= o.begun && (first || !l.same(last)):
				first, last = false, l
				if !yield(l, nil) {
					return
				}
				continue // the state may have changed meanwhile
			}
			if err := o.wait(ctx, e.c, s); err != nil {
				yield(Leader{}, wrap("observe", e.name, err))
				return
			}
		}
	}
}

func (l Leader) same(m Leader) bool {
	return l.Token == m.Token && l.Owner == m.Owner && string(l.Data) == string(m.Data)
}

// observer is one loop over Observe.
type observer struct {
	changed chan struct{} // has room for one
	begun   time.Duration // on the contender's clock: older reads tell it nothing
	err     error         // guarded by the tracker; not yielded yet
	told    bool          // guarded by the tracker; of an error since the last answer
}

func (k *tracker) observe() *observer {
	o := &observer{changed: make(chan struct{}, 1), begun: k.c.clock.Contender()}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.observers[o] = struct{}{}
	k.c.seen.observing[k.seer] = k
	k.seer.Want(len(k.queue) == 0)
	k.hint() // the first read is a strong one
	return o
}

func (k *tracker) unobserve(o *observer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.observers, o)
	if len(k.observers) == 0 {
		k.observing.Act(k.seer.GiveUp)
		delete(k.c.seen.observing, k.seer)
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

// notify is called when something new may have been seen. It wakes the observers,
// moves the next poll of the acquire that acts to its new time, and keeps polling
// for observers when no acquire waits any more. The caller holds the tracker.
func (k *tracker) notify() {
	if len(k.queue) > 0 {
		if head := k.queue[0]; head.con != nil && !head.ended {
			head.run.Set()
		}
	}
	for o := range k.observers {
		select {
		case o.changed <- struct{}{}:
		default:
		}
	}
	k.look()
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

// wait waits until the state may have changed: by a read, or because no sign of
// life came for a lease.
func (o *observer) wait(ctx context.Context, c *Client, s sighting) error {
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Offer is the machine of a lock that was granted for a holder elsewhere. That holds it
// from its first confirmed [Dispatch] on; until then nobody does. If none has come within a
// third of the lease, the offer releases the lock, so that a program that went away while
// it waited does not cost the others a whole lease. It replaces just the beat that was
// granted: a dispatch that another process carries out has changed that.
type Offer struct {
	retrier
	rec      driver.Record
	begun    bool
	freeAt   time.Duration
	until    time.Duration // when the record has run out by itself
	unwanted bool
}

// NewOffer returns the machine of a lock that was just granted.
func NewOffer(t Timing, env Env, g Grant) *Offer {
	return &Offer{retrier: retrier{t: t, env: env}, rec: g.Record}
}

// FreeAfter returns for how long a lock is offered.
func (t Timing) FreeAfter() time.Duration { return t.Lease / 3 }

// Taken says that the holder has shown life through this process.
func (o *Offer) Taken() { o.settle(Changed, driver.Record{}, nil) }

// Next returns the instant at which Step has something to do.
func (o *Offer) Next() (time.Duration, bool) { return o.next(Release, o.freeAt) }

// GiveUp releases the lock at once: nobody learns of the grant.
func (o *Offer) GiveUp(now time.Duration) Action {
	if !o.unwanted {
		o.begin(now)
		o.unwanted, o.freeAt = true, now
	}
	return Action{Call: o.act(now)}
}

// Step lets time pass.
func (o *Offer) Step(now time.Duration) Action {
	o.begin(now)
	return Action{Call: o.act(now)}
}

func (o *Offer) begin(now time.Duration) {
	if !o.begun {
		o.begun, o.freeAt, o.until = true, now+o.t.FreeAfter(), now+o.t.Lease
	}
}

func (o *Offer) act(now time.Duration) *Call {
	if !o.due(now, Release, o.freeAt) {
		return nil
	}
	if now >= o.until {
		o.settle(Nobody, driver.Record{}, nil)
		return nil
	}
	next := freed(o.rec, o.env.Fresh(), driver.EndAbandoned, nil)
	return o.send(now, o.freeAt, &Call{Kind: Release, Key: o.rec.Key, Prev: o.rec, Next: next})
}

// Reply takes the result of the call under way.
func (o *Offer) Reply(now time.Duration, r Result) Action {
	_, answered := o.replied(now, r)
	switch rec := r.Record; {
	case !answered: // it is tried again until the record has run out
	case r.Outcome == Conflicted && r.Found && lifeOf(rec) == lifeOf(o.rec):
		o.rec = rec // a request was laid into it
	default:
		o.settle(Done, rec, nil)
	}
	return Action{Call: o.act(now)}
}

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
	t   Timing
	env Env

	begun    bool
	rec      driver.Record
	out      *Call
	retry    time.Duration
	until    time.Duration // when the record has run out by itself
	failures int
	unwanted bool
	over     bool
}

// NewOffer returns the machine of a lock that was just granted.
func NewOffer(t Timing, env Env, g Grant) *Offer {
	return &Offer{t: t, env: env, rec: g.Record}
}

// FreeAfter returns for how long a lock is offered.
func (t Timing) FreeAfter() time.Duration { return t.Lease / 3 }

// Taken says that the holder has shown life through this process.
func (o *Offer) Taken() { o.over = true }

// Over says that the machine sends nothing more.
func (o *Offer) Over() bool { return o.over && o.out == nil }

// Next returns the instant at which Step has something to do.
func (o *Offer) Next() (time.Duration, bool) { return o.retry, o.out == nil && !o.over }

// GiveUp releases the lock at once: nobody learns of the grant.
func (o *Offer) GiveUp(now time.Duration) Action {
	if !o.unwanted {
		o.begin(now)
		o.unwanted, o.retry = true, now
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
		o.begun, o.retry, o.until = true, now+o.t.FreeAfter(), now+o.t.Lease
	}
}

func (o *Offer) act(now time.Duration) *Call {
	switch {
	case o.out != nil || o.over || now < o.retry:
		return nil
	case now >= o.until:
		o.over = true
		return nil
	}
	o.out = &Call{Kind: Release, Key: o.rec.Key, Prev: o.rec, Next: freed(o.rec, o.env.Fresh(), driver.EndAbandoned, nil)}
	return o.out
}

// Reply takes the result of the call under way.
func (o *Offer) Reply(now time.Duration, r Result) Action {
	o.out, o.retry = nil, now
	switch rec := r.Record; {
	case r.Outcome == Conflicted && r.Found && rec.State == driver.Held && rec.Token == o.rec.Token && rec.Beat == o.rec.Beat:
		o.rec = rec // a request was laid into it
		o.retry = now + o.t.backoff(o.env, o.failures)
		o.failures++
	case r.Outcome == Applied, r.Outcome == Conflicted:
		o.over = true
	default:
		o.retry = now + o.t.retry(o.env, o.failures, r.Err, o.t.Lease)
		o.failures++
	}
	return Action{Call: o.act(now)}
}

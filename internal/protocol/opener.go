// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Opener is the machine that opens a session: it claims a record under an id that
// nobody has ever used, and is done when it knows that this was applied. An id
// whose fate it cannot learn is left behind, never used again: a late duplicate
// may still open it, and no lock must name a session that others may have seen
// dead.
type Opener struct {
	t    Timing
	env  Env
	rec  driver.Record // what a session of this process looks like
	out  *Request
	try  attempt // the claim of the present id
	lost bool    // its outcome is unknown

	retry    time.Duration
	failures int
	unheard  int           // claims in a row that the store did not answer, while it answers looks
	silent   time.Duration // since when the store was asked and gives no answer
	mute     bool
	patience time.Duration

	grant *Grant
	err   error
	over  bool
}

// NewOpener returns the machine of one session. Rec says who opens it: owner,
// host, label, data. Patience is how long the store may fail to give any answer,
// 0 for ever.
func NewOpener(t Timing, env Env, rec driver.Record, patience time.Duration) *Opener {
	rec.State, rec.Token, rec.Lease, rec.Heartbeat, rec.Drift = driver.Alive, 1, t.Lease, t.Heartbeat, t.Drift
	return &Opener{t: t, env: env, rec: rec, patience: patience}
}

// Granted returns the session, once it is open.
func (o *Opener) Granted() (Grant, bool) {
	if o.grant == nil {
		return Grant{}, false
	}
	return *o.grant, true
}

// Over says that nothing is sent any more, and why it ended without a session.
func (o *Opener) Over() (error, bool) { return o.err, o.out == nil && (o.over || o.grant != nil) }

// Next returns the instant at which Step has something to do.
func (o *Opener) Next() (time.Duration, bool) {
	return o.retry, o.out == nil && !o.over && o.grant == nil
}

// Step lets time pass.
func (o *Opener) Step(now time.Duration) Action { return Action{Request: o.act(now)} }

// GiveUp ends it from outside. A session that comes to be open nevertheless is
// nobody's, holds nothing, and runs out.
func (o *Opener) GiveUp() { o.over = true }

func (o *Opener) act(now time.Duration) *Request {
	if o.out != nil || o.over || o.grant != nil || now < o.retry {
		return nil
	}
	if o.lost {
		o.out = &Request{Kind: Look, Key: o.rec.Key}
		return o.out
	}
	id := o.env.Fresh()
	if Making(SessionAgain) {
		id = o.rec.Owner
	}
	version := o.env.beatOf(id)
	o.rec.Key = driver.SessionPrefix + id
	o.rec.Version, o.rec.Beat = version, version
	o.try = attempt{kind: Claim, version: version, sent: now}
	if !o.mute {
		o.silent = now
	}
	o.out = &Request{Kind: Claim, Key: o.rec.Key, Next: o.rec.Clone()}
	if Making(Unconfirmed) {
		o.grant = &Grant{ID: id, Record: o.rec.Clone(), Sent: now}
	}
	return o.out
}

// Reply takes the result of the request under way.
func (o *Opener) Reply(now time.Duration, r Result) Action {
	o.out = nil
	switch r.Outcome {
	case Applied, Conflicted:
		o.failures, o.retry = 0, now
		if o.lost { // a store that answers reads alone is no better than a mute one
			o.retry = now + o.t.backoff(o.env, o.unheard)
		} else {
			o.mute, o.unheard = false, 0
		}
		own, ours := attempts{o.try}.wrote(r.Record)
		if r.Found && r.Record.State == driver.Alive && ours && now < own.sent+o.t.Usable() {
			o.grant = &Grant{ID: r.Record.Key[len(driver.SessionPrefix):], Record: r.Record, Sent: own.sent}
		}
		o.lost = false // else that id is left behind, and the next claim has another
	case NotApplied:
		o.fail(now, r.Err)
	case Unknown:
		if !o.lost {
			o.unheard++
		}
		o.lost = true
		o.fail(now, r.Err)
	}
	return Action{Request: o.act(now)}
}

func (o *Opener) fail(now time.Duration, err error) {
	o.mute = true
	o.retry = now + o.t.retry(o.env, o.failures, err, o.t.Lease)
	o.failures++
	if o.patience > 0 && now-o.silent >= o.patience || errors.Is(err, driver.ErrPermanent) || errors.Is(err, driver.ErrUnreadable) {
		o.err, o.over = err, true
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Opener is the machine that opens a session: it claims a record under a new id, and
// is done when it knows that the claim was applied. If it cannot learn that, it
// abandons the id for good: a late duplicate of the claim may still open that session,
// and no lock may name a session that others may have seen dead.
type Opener struct {
	t    Timing
	env  Env
	rec  driver.Record // the record of a session of this process
	out  *Call
	try  attempt // the claim of the present id
	lost bool    // its outcome is unknown

	retry    time.Duration
	failures int
	unheard  int           // claims in a row without an answer, while the store answers looks
	silent   time.Duration // since when the store has given no answer
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
	t = t.ofSession()
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

// Over says that the opener sends nothing more.
func (o *Opener) Over() bool { return o.out == nil && (o.over || o.grant != nil) }

// Err returns why the opener ended without a session.
func (o *Opener) Err() error { return o.err }

// Next returns the instant at which Step has something to do.
func (o *Opener) Next() (time.Duration, bool) {
	return o.retry, o.out == nil && !o.over && o.grant == nil
}

// Step lets time pass.
func (o *Opener) Step(now time.Duration) Action { return Action{Call: o.act(now)} }

// GiveUp ends the opener from outside. If the session opens nevertheless, nobody uses
// it, it holds nothing, and it runs out.
func (o *Opener) GiveUp(time.Duration) Action {
	o.over = true
	return Action{}
}

func (o *Opener) act(now time.Duration) *Call {
	if o.out != nil || o.over || o.grant != nil || now < o.retry {
		return nil
	}
	if o.lost {
		o.out = &Call{Kind: Look, Key: o.rec.Key}
		return o.out
	}
	id := o.env.Fresh()
	version := o.env.beatOf(id)
	o.rec.Key = driver.SessionKey(id)
	o.rec.Version, o.rec.Beat = version, version
	o.try = attempt{kind: Claim, version: version, sent: now, counts: o.env.lease(now)}
	if !o.mute {
		o.silent = now
	}
	o.out = &Call{Kind: Claim, Key: o.rec.Key, Next: o.rec.Clone()}
	return o.out
}

// Reply takes the result of the call under way.
func (o *Opener) Reply(now time.Duration, r Result) Action {
	o.out = nil
	switch r.Outcome {
	case Applied, Conflicted:
		o.failures, o.retry = 0, now
		if o.lost { // a store that answers only reads is no better than a mute one
			o.retry = now + o.t.backoff(o.env, o.unheard)
		} else {
			o.mute, o.unheard = false, 0
		}
		if r.Found && r.Record.State == driver.Alive && o.try.wrote(r.Record) && now < o.try.sent+o.t.Usable() {
			o.grant = &Grant{ID: driver.SessionID(r.Record.Key), Record: r.Record, Sent: o.try.counts}
		}
		o.lost = false // without a grant, the next claim has another id
	case NotApplied:
		o.fail(now, r.Err)
	case Unknown:
		if !o.lost {
			o.unheard++
		}
		o.lost = true
		o.fail(now, r.Err)
	}
	return Action{Call: o.act(now)}
}

func (o *Opener) fail(now time.Duration, err error) {
	o.mute = true
	o.retry = now + o.t.retry(o.env, o.failures, err, o.t.Lease)
	o.failures++
	if o.patience > 0 && now-o.silent >= o.patience || errors.Is(err, driver.ErrPermanent) || errors.Is(err, driver.ErrUnreadable) {
		o.err, o.over = err, true
	}
}

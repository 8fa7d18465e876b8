// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Opener is the machine that opens a session: it claims a record under a new id, and
// is done when it knows that the claim was applied. If it cannot learn that, it
// abandons the id for good: a late duplicate of the claim may still open that session,
// and no lock may name a session that others may have seen dead.
type Opener struct {
	retrier
	rec  driver.Record // the record of a session of this process
	try  attempt       // the claim of the present id
	lost bool          // its outcome is unknown

	grant *Grant
}

// NewOpener returns the machine of one session. Rec says who opens it: owner,
// host, label, data. Patience is how long the store may fail to give any answer,
// 0 for ever.
func NewOpener(t Timing, env Env, rec driver.Record, patience time.Duration) *Opener {
	t = t.ofSession()
	rec.State, rec.Token, rec.Lease, rec.Heartbeat, rec.Drift = driver.Alive, 1, t.Lease, t.Heartbeat, t.Drift
	return &Opener{retrier: retrier{t: t, env: env, patience: patience}, rec: rec}
}

// Granted returns the session, once it is open.
func (o *Opener) Granted() (Grant, bool) {
	if o.grant == nil {
		return Grant{}, false
	}
	return *o.grant, true
}

// Err returns why the opener ended without a session.
func (o *Opener) Err() error { return o.err }

// Next returns the instant at which Step has something to do.
func (o *Opener) Next() (time.Duration, bool) { return o.next(o.plan(), 0) }

// Step lets time pass.
func (o *Opener) Step(now time.Duration) Action { return Action{Call: o.act(now)} }

func (o *Opener) plan() Kind {
	if o.lost {
		return Look
	}
	return Claim
}

func (o *Opener) act(now time.Duration) *Call {
	kind := o.plan()
	if !o.due(now, kind, 0) {
		return nil
	}
	if kind == Look {
		return o.send(now, 0, &Call{Kind: Look, Key: o.rec.Key})
	}
	id := o.env.Fresh()
	version := o.env.beatOf(id)
	o.rec.Key = driver.SessionKey(id)
	o.rec.Version, o.rec.Beat = version, version
	o.try = attempt{kind: Claim, version: version, sent: now, counts: o.env.lease(now)}
	return o.send(now, 0, &Call{Kind: Claim, Key: o.rec.Key, Next: o.rec.Clone()})
}

// Reply takes the result of the call under way.
func (o *Opener) Reply(now time.Duration, r Result) Action {
	_, answered := o.replied(now, r)
	switch {
	case answered:
		if r.Found && r.Record.State == driver.Alive && o.try.wrote(r.Record) && now < o.try.sent+o.t.Usable() {
			o.grant = &Grant{ID: driver.SessionID(r.Record.Key), Record: r.Record, Sent: o.try.counts}
			o.settle(Done, r.Record, nil)
		}
		o.lost = false // without a grant, the next claim has another id
	case o.spent(now):
		o.settle(Unusable, driver.Record{}, r.Err)
	default:
		o.lost = o.lost || r.Outcome == Unknown
	}
	return Action{Call: o.act(now)}
}

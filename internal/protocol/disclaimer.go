// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Disclaimer is the machine of a session that releases a lock which is held in
// its name, and which it does not hold: a claim whose outcome it never learnt, or
// a late duplicate of one, was applied. The session's heartbeats would keep that
// for ever.
type Disclaimer struct {
	t       Timing
	env     Env
	session string
	key     string
	token   uint64
	mine    func(driver.Record) bool

	rec      driver.Record
	seen     bool
	out      *Request
	retry    time.Duration
	failures int
	over     bool
}

// NewDisclaimer returns the machine for one lock under one token. Mine says
// whether somebody under the session holds the lock as the record shows it, or
// has written it, and does not know yet: see [Contender.Wrote]. It is asked with
// what a look has just shown. Who is not asked about then never counts that
// record: a version counts only for the acquire that wrote it.
func NewDisclaimer(t Timing, env Env, session, key string, token uint64, mine func(driver.Record) bool) *Disclaimer {
	return &Disclaimer{t: t, env: env, session: session, key: key, token: token, mine: mine}
}

// Over says that the lock is not held in the session's name under the token, or
// rightly so.
func (d *Disclaimer) Over() bool { return d.over }

// Next returns the instant at which Step has something to do.
func (d *Disclaimer) Next() (time.Duration, bool) { return d.retry, d.out == nil && !d.over }

// Step lets time pass.
func (d *Disclaimer) Step(now time.Duration) Action { return Action{Request: d.act(now)} }

func (d *Disclaimer) act(now time.Duration) *Request {
	if d.out != nil || d.over || now < d.retry {
		return nil
	}
	d.out = &Request{Kind: Look, Key: d.key}
	if d.seen {
		d.out = &Request{Kind: Release, Key: d.key, Prev: d.rec, Next: freed(d.rec, d.env.Fresh(), driver.EndAbandoned, nil)}
	}
	return d.out
}

// Reply takes the result of the request under way.
func (d *Disclaimer) Reply(now time.Duration, r Result) Action {
	out := d.out
	d.out = nil
	d.retry = now
	switch r.Outcome {
	case Applied, Conflicted:
		read := out.Kind.Reads()
		d.rec = r.Record
		d.seen = r.Found && d.rec.State == driver.Held && d.rec.Session == d.session && d.rec.Token == d.token && (!d.mine(d.rec) || Making(DisclaimedUnasked))
		d.over = !d.seen
		if !read {
			d.failures = 0
		} else if d.failures > 0 {
			d.retry = now + d.t.backoff(d.env, d.failures) // a store that answers reads alone is no better than a mute one
		}
	default:
		d.seen = false // a look tells what became of it
		d.retry = now + d.t.retry(d.env, d.failures, r.Err, d.t.Lease)
		d.failures++
	}
	return Action{Request: d.act(now)}
}

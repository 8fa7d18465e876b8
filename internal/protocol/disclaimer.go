// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Disclaimer is the machine of a session that releases a lock which is held in its
// name although it does not know of it: a claim of unknown outcome, or a late duplicate
// of a claim, was applied. The session's heartbeats would keep that lock for ever.
type Disclaimer struct {
	t     Timing
	env   Env
	of    *Keeper
	key   string
	token uint64

	rec      driver.Record
	seen     bool
	out      *Call
	retry    time.Duration
	failures int
	over     bool
}

// NewDisclaimer returns the machine for one lock under one token. After each look it
// asks the session whether one of its leases holds the lock as the record shows it, or
// one of its acquires has written that record. An acquire that begins later cannot
// claim it: a version counts only for the acquire that wrote it.
func NewDisclaimer(t Timing, env Env, of *Keeper, key string, token uint64) *Disclaimer {
	return &Disclaimer{t: t, env: env, of: of, key: key, token: token}
}

// Key returns the name of the lock.
func (d *Disclaimer) Key() string { return d.key }

// Over says that nothing is left to release: the lock is not held in the session's name
// under the token, or it is held rightly, or the session itself is over.
func (d *Disclaimer) Over() bool { return d.out == nil && d.ended() }

func (d *Disclaimer) ended() bool { return d.over || d.of.Holder.Over() }

// GiveUp ends it from outside.
func (d *Disclaimer) GiveUp(time.Duration) Action {
	d.settle()
	return Action{}
}

func (d *Disclaimer) settle() {
	d.over = true
	delete(d.of.ghosts, ghost{d.key, d.token})
}

// Next returns the instant at which Step has something to do.
func (d *Disclaimer) Next() (time.Duration, bool) { return d.retry, d.out == nil && !d.ended() }

// Step lets time pass.
func (d *Disclaimer) Step(now time.Duration) Action { return Action{Call: d.act(now)} }

func (d *Disclaimer) act(now time.Duration) *Call {
	if d.out != nil || d.ended() || now < d.retry {
		return nil
	}
	d.out = &Call{Kind: Look, Key: d.key}
	if d.seen {
		d.out = &Call{Kind: Release, Key: d.key, Prev: d.rec, Next: freed(d.rec, d.env.Fresh(), driver.EndAbandoned, nil)}
	}
	return d.out
}

// Reply takes the result of the call under way.
func (d *Disclaimer) Reply(now time.Duration, r Result) Action {
	out := d.out
	d.out = nil
	d.retry = now
	switch r.Outcome {
	case Applied, Conflicted:
		read := out.Kind.Reads()
		d.rec = r.Record
		d.seen = r.Found && d.rec.State == driver.Held && d.rec.Session == d.of.id && d.rec.Token == d.token && !d.of.mine(d.rec)
		if !d.seen {
			d.settle()
		}
		if !read {
			d.failures = 0
		} else if d.failures > 0 {
			d.retry = now + d.t.backoff(d.env, d.failures) // a store that answers only reads is no better than a mute one
		}
	default:
		d.seen = false // a look tells what became of it
		d.retry = now + d.t.retry(d.env, d.failures, r.Err, d.t.Lease)
		d.failures++
	}
	return Action{Call: d.act(now)}
}

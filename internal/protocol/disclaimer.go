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
	retrier
	of    *Keeper
	key   string
	token uint64

	rec  driver.Record
	seen bool
}

// NewDisclaimer returns the machine for one lock under one token. After each look it
// asks the session whether one of its leases holds the lock as the record shows it, or
// one of its acquires has written that record. An acquire that begins later cannot
// claim it: a version counts only for the acquire that wrote it.
func NewDisclaimer(t Timing, env Env, of *Keeper, key string, token uint64) *Disclaimer {
	return &Disclaimer{retrier: retrier{t: t, env: env}, of: of, key: key, token: token}
}

// Key returns the name of the lock.
func (d *Disclaimer) Key() string { return d.key }

// Over says that nothing is left to release: the lock is not held in the session's name
// under the token, or it is held rightly, or the session itself is over.
func (d *Disclaimer) Over() bool { return d.out == nil && d.ended() }

func (d *Disclaimer) ended() bool { return d.answer != NoAnswer || d.of.Holder.Over() }

// GiveUp ends it from outside.
func (d *Disclaimer) GiveUp(time.Duration) Action {
	d.ends(Abandoned)
	return Action{}
}

func (d *Disclaimer) ends(a Answer) {
	d.settle(a, d.rec, nil)
	delete(d.of.ghosts, ghost{d.key, d.token})
}

// Next returns the instant at which Step has something to do.
func (d *Disclaimer) Next() (time.Duration, bool) {
	at, due := d.next(d.plan(), 0)
	return at, due && !d.ended()
}

// Step lets time pass.
func (d *Disclaimer) Step(now time.Duration) Action { return Action{Call: d.act(now)} }

func (d *Disclaimer) plan() Kind {
	if d.seen {
		return Release
	}
	return Look
}

func (d *Disclaimer) act(now time.Duration) *Call {
	kind := d.plan()
	if d.ended() || !d.due(now, kind, 0) {
		return nil
	}
	r := &Call{Kind: kind, Key: d.key}
	if kind == Release {
		r.Prev, r.Next = d.rec, freed(d.rec, d.env.Fresh(), driver.EndAbandoned, nil)
	}
	return d.send(now, 0, r)
}

// Reply takes the result of the call under way. However long the store fails, the machine
// goes on: as long as the session lives, nobody else may release the lock.
func (d *Disclaimer) Reply(now time.Duration, r Result) Action {
	_, answered := d.replied(now, r)
	d.rec = r.Record
	d.seen = answered && r.Found && d.rec.State == driver.Held && d.rec.Session == d.of.id &&
		d.rec.Token == d.token && !d.of.mine(d.rec)
	if answered && !d.seen { // without an answer, a look tells what became of the release
		d.ends(Done)
	}
	return Action{Call: d.act(now)}
}

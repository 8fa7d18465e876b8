// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Linger returns how long a session's record stays closed before it is deleted: far
// longer than any write of it can be late.
func (t Timing) Linger(rec driver.Record) time.Duration {
	return 4 * max(t.Lease, min(rec.Lease, forever))
}

// Reaper is the machine that clears the record of a dead session. It closes the
// session when its beat has been unchanged for its lease, and deletes the record when
// it has seen it closed for [Timing.Linger].
//
// No process needs that record any more. The holders of locks in the session's name
// had lost the right to act when it was closed. None of its heartbeats can be applied
// since: a swap names the version that it replaces, and that version is gone. Contenders
// take the locks that still name the session when they find no record of it, as they
// would if it were closed. Only the claim that opened the session can be applied without
// a record. A late duplicate of it brings back a record that no process renews or uses:
// its opener counts from before it sent the claim, so that lease ended long ago, and a
// lease that has ended does not begin again. Such a record only delays contenders by a
// lease, until they or a reaper close it. Linger, which is longer than writes are late,
// makes that rare.
type Reaper struct {
	t     Timing
	env   Env
	key   string
	sight *Sight

	looked  bool
	resolve bool // a look must tell what became of a write
	tried   bool // a delete of unknown outcome was sent
	sign    string
	swept   bool

	quest
}

// NewReaper returns the machine for one session. The sight is that of its record;
// see [Env].
func NewReaper(t Timing, env Env, id string, sight *Sight) *Reaper {
	return &Reaper{t: t, env: env, key: driver.SessionKey(id), sight: sight}
}

// Swept says that this machine has deleted the record.
func (g *Reaper) Swept() bool { return g.swept }

// Next returns the instant at which Step has something to do.
func (g *Reaper) Next() (time.Duration, bool) {
	if g.out != nil || g.answer != NoAnswer {
		return 0, false
	}
	_, at := g.plan()
	return at, true
}

// Step lets time pass.
func (g *Reaper) Step(now time.Duration) Action { return Action{Call: g.act(now)} }

// plan returns the next move and when it is due.
func (g *Reaper) plan() (Kind, time.Duration) {
	rec, found := g.sight.Record()
	switch {
	case !g.looked, g.resolve, !found:
		return Peek, g.retry
	case rec.State == driver.Closed:
		return Forget, max(g.sight.Term()+g.t.Linger(rec), g.retry)
	}
	if g.sight.Dead() {
		return Close, g.retry
	}
	return Peek, max(g.sight.NextPoll(g.t.Refresh, g.t.Lease), g.retry)
}

func (g *Reaper) act(now time.Duration) *Call {
	if g.out != nil || g.answer != NoAnswer {
		return nil
	}
	if g.looked && !g.resolve { // other machines share the sight, and may have seen more
		if g.judge(); g.answer != NoAnswer {
			return nil
		}
	}
	kind, at := g.plan()
	rec, _ := g.sight.Record()
	if now < at {
		return nil
	}
	r := &Call{Kind: kind, Key: g.key}
	switch kind {
	case Close:
		r.Prev, r.Next = rec, closed(rec, g.env.Fresh(), driver.EndExpired)
	case Forget:
		r.Prev = rec
	}
	g.out, g.sent = r, now
	g.sight.sends(now, r)
	return r
}

// Reply takes the result of the call under way.
func (g *Reaper) Reply(now time.Duration, r Result) Action {
	out := g.out
	g.out = nil
	switch r.Outcome {
	case Applied, Conflicted:
		g.failures, g.retry = 0, now
		if !out.Kind.Reads() {
			g.unheard, g.mute = 0, false
		}
		g.looked, g.resolve = true, false
		g.swept = out.Kind == Forget && r.Outcome == Applied || g.tried && !r.Found
		g.sight.Saw(g.sent, now, out.fresh(), r.Record, r.Found)
		g.judge()
		if kind, at := g.plan(); at > now {
			g.unheard, g.mute = 0, false
		} else if g.unheard > 1 && !kind.Reads() {
			g.retry = now + g.t.backoff(g.env, g.unheard) // a store that answers only reads is no better than a mute one
		} else if g.unheard == 0 {
			g.mute = false
		}
	default:
		g.sight.missed(out)
		if r.Outcome == Unknown && !out.Kind.Reads() {
			g.unheard++
			g.resolve = true
			g.tried = g.tried || out.Kind == Forget
		}
		g.fail(now, g.t, g.env, g.t.Lease, r.Err)
	}
	return Action{Call: g.act(now)}
}

// judge settles the answer if the record decides it.
func (g *Reaper) judge() {
	rec, found := g.sight.Record()
	switch {
	case g.swept:
		g.settle(Done, driver.Record{}, nil)
	case !found:
		g.settle(Nobody, driver.Record{}, nil)
	case !rec.State.OfSession() || rec.Lease <= 0:
		g.settle(Unusable, rec, driver.ErrUnreadable)
	case rec.State == driver.Closed:
	case g.sign == "":
		g.sign = rec.Sign()
	case g.sign != rec.Sign():
		g.settle(Alive, rec, nil)
	}
}

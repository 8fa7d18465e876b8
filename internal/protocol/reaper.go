// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Linger returns how long a session's record is left closed before it is deleted:
// longer than any write of it is late, by far.
func (t Timing) Linger(rec driver.Record) time.Duration {
	if Making(SweptAtOnce) {
		return 0
	}
	return 4 * max(t.Lease, min(rec.Lease, forever))
}

// Reaper is the machine of who clears the record of a session that is dead: it
// closes it when its beat has stood for its lease, and deletes it when it has been
// seen closed for [Timing.Linger].
//
// That deletes nothing that anybody needs. Who holds a lock in the session's name
// had no right to act any more when it was closed, and no heartbeat of it is
// applied since: a swap names the version that it replaces, and there is none.
// Locks that still name it are taken by who finds no session, as they would be
// where it is closed. The one write that needs nothing to be there is the claim
// that opened it. A late duplicate of it brings back a record for which nobody
// beats, and which nobody believes in: its opener counts from before it sent the
// claim, and that lease is over by far; who is over does not begin again. It can
// but keep others waiting for a lease, until they close it, or a reaper does. To
// let it lie for longer than writes are late makes that rare.
type Reaper struct {
	t     Timing
	env   Env
	key   string
	sight *Sight

	looked   bool
	resolve  bool // a look must tell what became of a write
	tried    bool // to delete it
	sign     string
	out      *Request
	sent     time.Duration
	retry    time.Duration
	failures int
	unheard  int           // writes in a row that the store did not answer, while it answers looks
	begun    time.Duration // of the silence of the store
	mute     bool

	answer Answer
	rec    driver.Record
	err    error
	swept  bool
}

// NewReaper returns the machine for one session. The sight is that of its record;
// see [Env].
func NewReaper(t Timing, env Env, id string, sight *Sight) *Reaper {
	return &Reaper{t: t, env: env, key: driver.SessionPrefix + id, sight: sight}
}

// Answer returns how it ended: Done or Nobody if there is no record any more, Alive
// if the session has shown life, Unusable if the store has given no answer for a
// lease, or a record that makes no sense, Abandoned; and NoAnswer before. With it
// come the record that led to it, and the error of the store.
func (g *Reaper) Answer() (Answer, driver.Record, error) { return g.answer, g.rec, g.err }

// Swept says that this machine has deleted the record.
func (g *Reaper) Swept() bool { return g.swept }

// Over says that it sends nothing any more.
func (g *Reaper) Over() bool { return g.answer != NoAnswer && g.out == nil }

// Next returns the instant at which Step has something to do.
func (g *Reaper) Next() (time.Duration, bool) {
	if g.out != nil || g.answer != NoAnswer {
		return 0, false
	}
	_, at := g.plan()
	return at, true
}

// Step lets time pass.
func (g *Reaper) Step(now time.Duration) Action { return Action{Request: g.act(now)} }

// GiveUp ends it from outside. What is closed stays so.
func (g *Reaper) GiveUp(time.Duration) Action {
	g.settle(Abandoned, driver.Record{}, nil)
	return Action{}
}

func (g *Reaper) settle(a Answer, rec driver.Record, err error) {
	if g.answer == NoAnswer {
		g.answer, g.rec, g.err = a, rec, err
	}
}

// plan returns the next move and when it is due.
func (g *Reaper) plan() (Kind, time.Duration) {
	rec, found := g.sight.Record()
	switch {
	case !g.looked, g.resolve, !found, g.sight.doubt, g.unsure(rec):
		return Peek, g.retry
	case rec.State == driver.Closed, Making(SweptAlive):
		return Forget, max(g.sight.Term()+g.t.Linger(rec), g.retry)
	}
	dead, _ := g.sight.DeadAt()
	if look := g.sight.NextLook(); look < dead {
		return Peek, max(look, g.retry)
	}
	return Close, max(dead, g.retry)
}

// unsure says that a cheap look of others has shown another sign of life than the
// first. That may be an older one: a strong look tells.
func (g *Reaper) unsure(rec driver.Record) bool {
	return rec.State == driver.Alive && !g.sight.proved && g.sign != "" && g.sign != rec.Sign()
}

func (g *Reaper) act(now time.Duration) *Request {
	if g.out != nil || g.answer != NoAnswer {
		return nil
	}
	if g.looked && !g.resolve { // others share the sight, and may have seen more
		if g.judge(); g.answer != NoAnswer {
			return nil
		}
	}
	kind, at := g.plan()
	rec, _ := g.sight.Record()
	if dead, ok := g.sight.DeadAt(); ok && kind == Peek && g.looked && !g.resolve && !g.sight.doubt && !g.unsure(rec) && now >= dead {
		kind, at = Close, max(dead, g.retry)
	}
	if now < at {
		return nil
	}
	r := &Request{Kind: kind, Key: g.key}
	switch kind {
	case Close:
		r.Prev, r.Next = rec, closed(rec, g.env.Fresh(), driver.EndExpired)
	case Forget:
		r.Prev = rec
	}
	g.out, g.sent = r, now
	return r
}

// Reply takes the result of the request under way.
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
			g.retry = now + g.t.backoff(g.env, g.unheard) // a store that answers reads alone is no better than a mute one
		} else if g.unheard == 0 {
			g.mute = false
		}
	default:
		if r.Outcome == Unknown && !out.Kind.Reads() {
			g.unheard++
			g.resolve = true
			g.tried = g.tried || out.Kind == Forget
		}
		g.fail(now, r.Err)
	}
	return Action{Request: g.act(now)}
}

// judge says what the record means for who is to clear it.
func (g *Reaper) judge() {
	rec, found := g.sight.Record()
	switch {
	case g.swept:
		g.settle(Done, driver.Record{}, nil)
	case g.sight.doubt: // a read that proves nothing has not found it
	case !found:
		g.settle(Nobody, driver.Record{}, nil)
	case !rec.State.OfSession() || rec.Lease <= 0:
		g.settle(Unusable, rec, driver.ErrUnreadable)
	case rec.State == driver.Closed:
	case !g.sight.proved: // it may be an older sign of life than the first
	case g.sign == "":
		g.sign = rec.Sign()
	case g.sign != rec.Sign():
		g.settle(Alive, rec, nil)
	}
}

func (g *Reaper) fail(now time.Duration, err error) {
	if !g.mute {
		g.mute, g.begun = true, g.sent
	}
	g.retry = now + g.t.retry(g.env, g.failures, err, g.t.Lease)
	g.failures++
	if now-g.begun >= g.t.Lease || errors.Is(err, driver.ErrPermanent) || errors.Is(err, driver.ErrUnreadable) {
		g.settle(Unusable, driver.Record{}, err)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Linger returns how long a session's record stays closed before it is deleted: far
// longer than any write to it can be delayed.
func (t Timing) Linger(rec driver.Record) time.Duration {
	return 4 * max(t.Lease, min(rec.Lease, forever))
}

// Reaper is the machine that clears the record of a dead session. It closes the
// session when its beat has been unchanged for its lease, and deletes the record when
// the record has stayed closed for [Timing.Linger].
//
// No process needs that record any more. The holders of the session's locks had lost the
// right to act when it was closed. None of its heartbeats can be applied any more: a
// swap names the version that it replaces, and that version is gone. Acquirers take the
// locks that still name the session when they find no record of it, as they would if it
// were closed. Only the claim that opened the session can be applied without a record. A
// late duplicate of that claim brings back a record that no process renews or uses: its
// sender counts the lease from before the claim, so the lease ended long ago, and does
// not begin again. Such a record only delays contenders by one
// lease, until they or a reaper close it. Linger, which is longer than writes are
// delayed, makes that rare.
type Reaper struct {
	retrier
	key  string
	view *View

	read      bool // the record was read since the last write of unknown outcome
	tried     bool // a delete of unknown outcome was sent
	firstSign string
	swept     bool
}

// NewReaper returns the machine for one session. view is the view of its record; see
// [Env].
func NewReaper(t Timing, env Env, id string, view *View) *Reaper {
	return &Reaper{retrier: retrier{t: t, env: env, patience: t.Lease}, key: driver.SessionKey(id), view: view}
}

// Swept says that this machine has deleted the record.
func (g *Reaper) Swept() bool { return g.swept }

// Next returns the instant at which Step has something to do.
func (g *Reaper) Next() (time.Duration, bool) { return g.next(g.plan()) }

// Step lets time pass.
func (g *Reaper) Step(now time.Duration) Action { return Action{Call: g.act(now)} }

// plan returns the next move and when it is due.
func (g *Reaper) plan() (Kind, time.Duration) {
	rec, found := g.view.Record()
	switch {
	case !g.read, !found:
		return Read, 0
	case rec.State == driver.Closed:
		return Delete, g.view.TermSince() + g.t.Linger(rec) // since a reply first showed it closed
	}
	if g.view.Dead() {
		return ForceRelease, 0
	}
	return Read, g.view.NextPoll(g.t.Refresh, g.t.Lease)
}

func (g *Reaper) act(now time.Duration) *Call {
	if g.idle() && g.read { // other machines share the view, and may have read more
		g.judge()
	}
	kind, at := g.plan()
	if !g.due(now, kind, at) {
		return nil
	}
	r := &Call{Kind: kind, Key: g.key}
	rec, _ := g.view.Record()
	switch kind {
	case ForceRelease:
		r.Prev, r.Next = rec, closed(rec, g.env.Fresh(), driver.EndExpired)
	case Delete:
		r.Prev = rec
	}
	g.view.sends(now, r)
	return g.send(now, at, r)
}

// Reply takes the result of the call under way.
func (g *Reaper) Reply(now time.Duration, r Result) Action {
	out, answered := g.replied(now, r)
	if !answered {
		g.view.missed(out)
	}
	switch {
	case answered:
		g.read = true
		g.swept = out.Kind == Delete && r.Outcome == Applied || g.tried && !r.Found
		g.view.Observe(g.sent, now, out.consistency(), r.Record, r.Found)
		g.judge()
	case g.spent(now):
		g.finish(Unusable, driver.Record{}, r.Err)
	case r.Outcome == Unknown:
		g.read = false
		g.tried = g.tried || out.Kind == Delete
	}
	return Action{Call: g.act(now)}
}

// readableSession says whether rec is a valid record of a session.
func readableSession(rec driver.Record) bool { return rec.State.OfSession() && rec.Lease > 0 }

// judge settles the answer if the record decides it.
func (g *Reaper) judge() {
	rec, found := g.view.Record()
	switch {
	case g.swept:
		g.finish(Done, driver.Record{}, nil)
	case !found:
		g.finish(NoHolder, driver.Record{}, nil)
	case !readableSession(rec):
		g.finish(Unusable, rec, driver.ErrUnreadable)
	case rec.State == driver.Closed:
	case g.firstSign == "":
		g.firstSign = rec.Sign()
	case g.firstSign != rec.Sign():
		g.finish(Alive, rec, nil)
	}
}

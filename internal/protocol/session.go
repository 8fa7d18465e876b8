// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Each lock under a session has a [Holder] that sends no heartbeats, ends with the
// session, and writes the lock's record only when that lock changes hands by itself.
// The session has a [Keeper].

// NewTied returns the machine of a lock that was just granted under a session. It
// learns of the session's end, and of a new deadline, only when it is stepped.
func NewTied(t Timing, env Env, g Grant, session *Keeper) *Holder {
	h := NewHolder(t, env, g)
	h.under = session
	session.enter(h, g.by)
	return h
}

// follow ends a lock with its session, and reports whether it is over.
func (h *Holder) follow(now time.Duration, a *Action) bool {
	s := h.under
	if s.cause != None {
		if s.cause == Superseded || s.freed == Gone { // the latter while it drained
			h.by, h.replaced = s.by, s.replaced
		}
		h.end(now, s.cause, a)
		h.expired = h.expired || s.expired && !h.done()
	}
	if s.Quiet() && !h.Quiet() && !h.done() && !h.Over() {
		h.silence = followed
		a.Notes = append(a.Notes, NoteQuiet)
	}
	switch {
	case !s.Holder.Over():
		return false
	case h.out != nil:
		return false // the answer to the call under way tells how the record is left
	case h.done() && h.tells() && now < h.freeBy:
		return false // only this holder can write that; its swap overwrites no successor
	}
	h.unknown = nil
	h.finish(s.freed, a)
	return true
}

// watches says that the machine sees by itself when the deadline passes. The locks
// under a session are told when the session's deadline passes, so that each needs no
// timer.
func (h *Holder) watches() bool {
	return h.under == nil
}

// draws says that the session has ended too, and that its heartbeats stop no later
// than this lock's would.
func (h *Holder) draws() bool {
	return !h.watches() && h.under.cause != None && h.under.quietAt <= h.quietAt
}

// leaves says that the closing of the session frees the lock and tells how its
// tenure ended, so that the lock needs no write of its own: one write closes a session
// with very many locks. A lock does not wait for that when the work of another lock
// outlasts its time.
func (h *Holder) leaves() bool {
	s := h.under
	return s != nil && s.cause != None && !h.tells() && h.why() == s.why()
}

// tells says that the lock's own record has to show more than its release.
func (h *Holder) tells() bool { return h.data > h.dataKept || h.asked != nil || h.failed != nil }

// lapses says that the heartbeats of this lock would have stopped, while the
// session's go on.
//
// An ordinary record would run out: contenders take the lock when they have seen its
// beat unchanged for the lease. The session keeps this record alive for them. So the
// holder waits for the lease in their stead, and then releases the lock. That is no
// earlier: contenders would count from the last heartbeat, which was sent before the
// right to act ended, and the holder counts from that end. Work that asks Check has
// stopped by then, because Check has failed ever since; neither wait protects from
// work that does not ask. (The holder's clock may step ahead where a contender's
// does not. That shortens only this wait, and nothing else depends on it.) The
// release replaces the version that the holder wrote last, so that it overwrites
// nothing of another holder, and none of its own late writes can be applied.
func (h *Holder) lapses() bool {
	return h.under != nil && (h.silence == silent || h.silence == told) && !h.done() && !h.Over()
}

// receive ends the right to act if a request for it came through the session's
// record. A request for another tenure of the lock, or of a kind that no holder
// honours, changes nothing.
func (h *Holder) receive(now time.Duration, a *Action) {
	for _, q := range h.mail {
		meant := q.Token == 0 || q.Token == h.rec.Token
		if h.asked == nil && !h.Over() && meant && h.honours(q) {
			h.asked = &q
			h.end(now, Asked, a)
		}
	}
	h.mail = nil
}

// Mail returns the requests from the session's record that the next step will
// handle.
func (h *Holder) Mail() []driver.Request { return h.mail }

// pending returns the unanswered requests in a session's record.
func (h *Holder) pending() []driver.Request {
	var left []driver.Request
	for _, q := range h.rec.Requests {
		if !slices.Contains(h.answered, q.ID) {
			left = append(left, q)
		}
	}
	return left
}

// forget drops the ids of answered requests that have left the record.
func (h *Holder) forget() {
	h.answered = slices.DeleteFunc(h.answered, func(id string) bool {
		return !slices.ContainsFunc(h.rec.Requests, func(q driver.Request) bool { return q.ID == id })
	})
}

// closed returns the record of a session when nobody holds anything under it.
func closed(rec driver.Record, version string, end driver.EndReason) driver.Record {
	next := rec.Clone()
	next.Version, next.State, next.Requests, next.Bell = version, driver.Closed, nil, ""
	next.End = end
	return next
}

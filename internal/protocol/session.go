// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// A session is held by a [Holder] like a lock: its heartbeat renews the
// session's record, it ends at the deadline, and it is closed when all work
// under it has returned. The locks under it have a Holder each, which sends no
// heartbeats, ends with the session, and writes the record when the lock changes
// hands alone.

// NewTied returns the machine of a lock that was just granted under a session.
// It does not know when the session ends, or its deadline moves, unless it is
// stepped.
func NewTied(t Timing, env Env, g Grant, session *Holder) *Holder {
	h := NewHolder(t, env, g)
	h.under = session
	return h
}

// Open says that locks may be taken under the session now: nothing has ended it,
// and its deadline has not passed. Who has claimed a lock asks again.
func (h *Holder) Open(now time.Duration) bool {
	if Making(OnlyDeadline) {
		return now < h.Deadline()
	}
	return h.cause == None && !h.done && !h.over && now < h.Deadline()
}

// follow ends a lock with its session, and reports whether it is over.
func (h *Holder) follow(now time.Duration, a *Action) bool {
	s := h.under
	if Making(OnlyDeadline) {
		return false
	}
	if s.cause != None {
		if s.cause == Superseded {
			h.by, h.replaced = s.by, s.replaced
		}
		h.end(now, s.cause, a)
		h.expired = h.expired || s.expired && !h.done
	}
	if s.quiet && !h.quiet && !h.done && !h.over {
		h.quiet, h.said, h.followed = true, true, true
		a.Notes = append(a.Notes, NoteQuiet)
	}
	switch {
	case !s.over:
		return false
	case h.out != nil:
		return false // what was sent tells how the record was left
	case h.done && h.tells() && now < h.freeBy:
		return false // nobody else can write that down, and who has come first is not overwritten
	}
	h.unknown = nil
	h.finish(s.freed, a)
	return true
}

// watches says that the machine sees by itself when the deadline passes. One of
// many under a session is told when the session's does: nothing wakes for each.
func (h *Holder) watches() bool {
	return h.under == nil || Making(DeadlineOfItsOwn) || Making(OnlyDeadline)
}

// draws says that the session, which has ended as well, goes quiet before it.
func (h *Holder) draws() bool {
	return !h.watches() && h.under.cause != None && h.under.quietAt <= h.quietAt
}

// leaves says that the closing of the session frees the lock, and tells how its
// tenure ended, so that nothing is written of the lock alone: a session that holds
// very many is closed by one write. It is not waited for when the work of another
// lock outlasts its time.
func (h *Holder) leaves() bool {
	s := h.under
	return s != nil && s.cause != None && !h.tells() && h.why() == s.why() && !Making(OnlyDeadline)
}

// tells says that the lock's own record has to show more than that it is free.
func (h *Holder) tells() bool { return h.data > h.dataKept || h.asked != nil || h.failed != nil }

// lapses says that the heartbeats of this lock would have stopped, while the
// session's go on.
//
// An ordinary record would run out: others take the lock when they have seen its
// beat stand for the lease. The session keeps this one alive for them, so that its
// holder waits for the lease in their stead, and releases it then. That is no
// earlier: they would count from the last beat, which was sent before the end of
// the right to act; it counts from the end of that itself. Nobody who asks Check
// is at work any more, as Check has failed all the time since; and neither wait
// protects from who does not ask. (The holder's clock may step ahead where a
// contender's does not: that shortens this wait alone, on which nothing else
// rests.) It releases from the version that it wrote last, so that nothing of
// another holder is overwritten, and none of its own late writes is applied.
func (h *Holder) lapses() bool {
	return h.under != nil && h.quiet && !h.followed && !h.done && !h.lapsed && !h.over && !Making(NeverLapses)
}

// Ask ends the right to act by a request that came through the session's record.
// One for another tenure of the lock, or of a kind that no holder honours, changes
// nothing.
func (h *Holder) Ask(now time.Duration, q driver.Request) Action {
	var a Action
	h.pass(now, &a)
	meant := q.Token == 0 || q.Token == h.rec.Token || Making(FormerToken)
	if h.asked == nil && !h.over && meant && h.honours(q) {
		h.asked = &q
		h.end(now, Asked, &a)
	}
	a.Request = h.request(now)
	return a
}

// Inbox returns the requests in a session's record that were not answered.
func (h *Holder) Inbox() []driver.Request { return h.pending() }

// Answered says that a request in a session's record needs to lie there no more.
// The next heartbeat takes it out.
func (h *Holder) Answered(id string) {
	if !slices.Contains(h.answered, id) {
		h.answered = append(h.answered, id)
	}
}

func (h *Holder) pending() []driver.Request {
	var left []driver.Request
	for _, q := range h.rec.Requests {
		if !slices.Contains(h.answered, q.ID) {
			left = append(left, q)
		}
	}
	return left
}

// forget drops what is not in the record any more from what was answered.
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

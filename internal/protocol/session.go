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
	h.said = true // its record says nothing of life
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
			h.by = s.by
		}
		h.end(now, s.cause, a)
		h.expired = h.expired || s.expired && !h.done
	}
	switch {
	case !s.over:
		h.quiet = h.quiet || s.quiet
		return false
	case h.out != nil:
		return false // what was sent tells how the record was left
	}
	h.unknown = nil
	h.finish(s.freed, a)
	return true
}

// Ask ends the right to act by a request that came through the session.
func (h *Holder) Ask(now time.Duration, q driver.Request) Action {
	var a Action
	h.pass(now, &a)
	if h.asked == nil {
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
	next.Version, next.State, next.Requests = version, driver.Closed, nil
	next.End = end
	return next
}

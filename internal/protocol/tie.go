// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// A lock under a session shows no life of its own. Its holder is dead when the
// session is: closed, or absent in a strong read that was sent after the lock was
// seen under it. A session whose beat has been unchanged for its lease is closed
// first, so that it cannot renew any more; then its locks are taken.

// Tied says that the record shows a lock that a session keeps alive.
func (s *Sight) Tied() bool {
	return s.known && s.found && s.rec.State == driver.Held && s.rec.Session != ""
}

// under returns what the process has seen of the lock's session, nil if the lock is
// not under one, or the process does not follow sessions.
func (s *Sight) under() *Sight {
	if !s.Tied() || s.env.Session == nil {
		return nil
	}
	return s.env.Session(s.rec.Session)
}

// ended says whether the session is certainly over, given that a lock was seen under
// it at the given instant.
func (s *Sight) ended(at time.Duration) bool {
	return s.known && (s.found && s.rec.State == driver.Closed || !s.found && s.sent >= at)
}

// ending returns the tenure of a record that is taken over, as its successor records
// it. If the owner has closed the session of the lock, the tenure ended with that.
func (s *Sight) ending(rec driver.Record) *driver.Tenure {
	u := s.under()
	if u == nil || rec.Session == "" || !u.found || u.rec.State != driver.Closed || u.rec.End == "" {
		return rec.Tenure(driver.EndExpired).Brief()
	}
	t := rec.Tenure(u.rec.End)
	t.Until = u.rec.Until
	return t.Brief()
}

// waitingFor returns the request in a session's record that is for the holder of a
// lock, nil if there is none.
func waitingFor(session, lock driver.Record) *driver.Request {
	for i, q := range session.Requests {
		if honoured(q.Kind) && q.Lock == lock.Key && (q.Token == 0 || q.Token == lock.Token) {
			return &session.Requests[i]
		}
	}
	return nil
}

// diesAt returns when the session of a tied lock counts as dead: at once if it has
// ended, and practically never as long as it was not read.
func (s *Sight) diesAt() time.Duration {
	u := s.under()
	switch {
	case u == nil:
		return s.replied + forever
	case u.ended(s.term):
		return s.term
	}
	if dead, alive := u.DeadAt(); alive {
		return dead
	}
	return s.replied + forever
}

// inquiries is how many leases pass before a session is asked again whether it holds
// a lock.
const inquiries = 4

// planTied returns the next move, and when it is due, if the lock is under a session.
func (c *Contender) planTied(u *Sight) (Kind, time.Duration) {
	switch dead, alive := u.DeadAt(); {
	case u.ended(c.sight.term):
		return Takeover, c.retry
	case u.Dead():
		return Close, c.retry
	case !alive, c.mustSee(u):
		return Peek, c.retry // it has not been read, or not since it matters
	case c.mustSee(c.sight):
		return Look, c.retry
	default:
		kind, at := Look, c.sight.NextLook()
		sooner := func(k Kind, when time.Duration) {
			if when <= at {
				kind, at = k, when
			}
		}
		sooner(Peek, u.NextPoll(c.sight.t.Refresh, c.sight.t.Lease))
		if ask := max(c.sight.term+c.t.Lease, c.sight.inquired); c.inquires(u) && ask < dead {
			sooner(Inquire, ask)
		}
		wish, ok := c.wish(c.sight.rec)
		if ok && wish < dead && waitingFor(u.rec, c.sight.rec) == nil && len(u.rec.Requests) < driver.MaxRequests {
			sooner(Ask, wish)
		}
		return kind, max(at, c.retry)
	}
}

// inquires says whether the session has room for the question, and does not have it
// already.
func (c *Contender) inquires(u *Sight) bool {
	rec, _ := c.sight.Record()
	for _, q := range u.rec.Requests {
		if q.Kind == driver.Confirm && q.Lock == rec.Key && q.Token == rec.Token {
			return false
		}
	}
	return len(u.rec.Requests) < driver.MaxRequests
}

// askSession fills in a call about the session of the lock.
func (c *Contender) askSession(r *Call, u *Sight, now time.Duration) {
	rec, _ := c.sight.Record()
	r.Key, r.Prev = driver.SessionKey(rec.Session), u.rec
	switch r.Kind {
	case Peek:
		r.Prev = driver.Record{}
		if _, alive := u.DeadAt(); alive && !c.mustSee(u) {
			r.Consistency = u.How(now)
		}
	case Close:
		r.Next = closed(u.rec, c.env.Fresh(), driver.EndExpired)
	case Inquire:
		c.sight.inquired = now + inquiries*c.t.Lease
		r.Next = asking(u.rec, c.env.Fresh(), driver.Request{
			ID: c.env.Fresh(), Kind: driver.Confirm, By: c.want.Owner, Lock: rec.Key, Token: rec.Token,
			Reason: "somebody waits for it",
		})
	}
}

// notAsked brings the next question forward if the store did not answer this one. If
// it was written all the same, the session's record shows it, and it is not repeated.
func (c *Contender) notAsked(now time.Duration, out *Call) {
	if out.Kind == Inquire {
		c.sight.inquired = now + c.t.Lease
	}
}

// answerSession takes what the store said of a session.
func (c *Contender) answerSession(now time.Duration, out *Call, r Result) {
	c.failures, c.mute, c.lastErr = 0, false, nil
	c.retry = now
	u := c.env.Session(driver.SessionID(out.Key))
	u.Saw(c.sent, now, out.fresh(), r.Record, r.Found)
	c.met = c.met || u.sent == c.sent
	if r.Outcome == Conflicted && (out.Kind == Inquire || out.Kind == Ask) {
		// The request lost the race to a heartbeat or to another request, and was not
		// written.
		if c.beaten > 0 {
			c.retry = now + c.t.backoff(c.env, c.beaten)
		}
		c.beaten++
	}
	switch {
	case r.Outcome != Conflicted:
	case out.Kind == Inquire:
		c.sight.inquired = 0
	case out.Kind == Ask:
		c.sight.wished = false
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// quiescenceCheck checks that no program uses a store. It holds what one process has read
// of all records. The procedure after a loss of the store needs it: that procedure raises
// tokens, and no program may run meanwhile.
//
// Two scans read all records, strongly. The second scan, which does not begin before the
// instant that earliest returns, must show each record as the first one did. By then a
// contender would have waited long enough for any record: for one under which a process
// may still act (held, reserved, alive), and for a free lock: the store may have lost a
// later claim with that lease. So every right to act from a lost write has ended, by its
// process's clock. The last proof is a write that names the version that was read: a
// heartbeat in flight either comes before that write, or is refused.
type quiescenceCheck struct {
	t     protocol.Timing
	seen  map[string]driver.Record // by key, without data: records that the second scan has not shown yet
	until time.Duration
}

// newQuiescenceCheck returns a check without any records.
func newQuiescenceCheck(t protocol.Timing) *quiescenceCheck {
	return &quiescenceCheck{t: t, seen: map[string]driver.Record{}}
}

// note notes a record that the first scan has shown; now is the instant after the reply.
// If only a token was kept, rec has no version.
func (s *quiescenceCheck) note(now time.Duration, rec driver.Record) {
	s.until = max(s.until, now+max(s.t.Wait(rec), s.t.Lease))
	rec.Data = nil
	s.seen[rec.Key] = rec
}

// earliest returns the earliest instant at which the second scan may begin.
func (s *quiescenceCheck) earliest() time.Duration { return s.until }

// stands reports whether the second scan shows a record as the first one did.
func (s *quiescenceCheck) stands(rec driver.Record) bool {
	was, ok := s.seen[rec.Key]
	delete(s.seen, rec.Key)
	return ok && was.Version == rec.Version && was.Token == rec.Token
}

// gone returns a record that the second scan has not shown, and false if it has shown all
// of them.
func (s *quiescenceCheck) gone() (driver.Record, bool) {
	for _, rec := range s.seen {
		return rec, true
	}
	return driver.Record{}, false
}

// tokenRaise says how tokens are raised.
type tokenRaise struct {
	By              uint64 // by how many
	Owner, Host     string // of the process that raises
	Reason, Version string
	At              time.Time
}

// raised returns the record of a lock whose token is raised. The lock's term becomes
// the previous one: it ended with its session if the session was closed in order;
// any other held term has an unknown end. Raising again counts from the same term, so that
// an interrupted procedure may be repeated. If only a token was kept, rec has no
// version.
func (s *quiescenceCheck) raised(rec driver.Record, session driver.Record, r tokenRaise) driver.Record {
	next := rec.Clone()
	next.Version, next.Beat, next.Owner, next.Host, next.Label = r.Version, r.Version, r.Owner, r.Host, ""
	next.State, next.End, next.Since, next.Until = driver.Released, driver.EndRaised, r.At, r.At
	next.Session, next.Notify, next.Requests, next.Priority = "", "", nil, 0
	next.Lease = max(cmp.Or(rec.Lease, s.t.Lease), time.Millisecond)
	next.Token += r.By
	asked := driver.Request{
		ID: r.Version, Kind: driver.Raise, Token: rec.Token, By: r.Owner, Reason: r.Reason, At: r.At,
	}
	switch {
	case rec.Version == "":
		next.Prev = nil
	case rec.State == driver.Released && rec.End == driver.EndRaised:
		asked.Token = rec.Term("").PrevToken()
	case session.State == driver.Closed && session.End != "" && rec.Session != "":
		next.Prev = rec.Term(session.End)
		next.Prev.Until = session.Until
	default:
		next.Prev = rec.Term(driver.EndExpired)
	}
	next.Asked, next.Prev = &asked, next.Prev.Shorten()
	return next
}

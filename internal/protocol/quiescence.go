// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// QuiescenceCheck is what one process has seen of the records of a store that is to be at
// rest: all programs that use it are stopped. It is for the procedure after a loss of
// the store, which raises tokens, and which no living program may meet.
//
// Two looks show all records, by strong reads. The second one, which begins at Until at
// the earliest, must show each record as the first one did. By then a contender would have
// waited long enough for any of them: one that is held, reserved, or a session that is
// alive, because its process may live; and one that is free, because the store may have
// lost that it was taken since, by a holder whose lease was as long. So the right to act of
// every process that had it in the lost time is over, by its own clock. A write that names
// the version which was seen is the last proof: a heartbeat on its way has come before it,
// or is in vain.
type QuiescenceCheck struct {
	t     Timing
	seen  map[string]driver.Record // by key, without data: what the second look has not shown yet
	until time.Duration
}

// NewQuiescenceCheck returns one that has seen nothing yet.
func NewQuiescenceCheck(t Timing) *QuiescenceCheck {
	return &QuiescenceCheck{t: t, seen: map[string]driver.Record{}}
}

// Watch notes a record that the first look has shown; now is the instant after the reply.
// A token that is kept without a record has no version.
func (s *QuiescenceCheck) Watch(now time.Duration, rec driver.Record) {
	s.until = max(s.until, now+max(s.t.wait(rec), s.t.Lease))
	rec.Data = nil
	s.seen[rec.Key] = rec
}

// Until returns the instant at which the second look must begin, at the earliest.
func (s *QuiescenceCheck) Until() time.Duration { return s.until }

// Stands reports whether a record that the second look has shown is as the first one has
// shown it.
func (s *QuiescenceCheck) Stands(rec driver.Record) bool {
	was, ok := s.seen[rec.Key]
	delete(s.seen, rec.Key)
	return ok && was.Version == rec.Version && was.Token == rec.Token
}

// Gone returns a record that the second look has not shown, and false if it has shown all
// of them.
func (s *QuiescenceCheck) Gone() (driver.Record, bool) {
	for _, rec := range s.seen {
		return rec, true
	}
	return driver.Record{}, false
}

// Raise says how tokens are raised.
type Raise struct {
	By              uint64 // by how many
	Owner, Host     string // of who does it
	Reason, Version string
	At              time.Time
}

// Raised returns the record of a lock whose token is raised. What stood there becomes
// the term before it. It ended with its session if that was closed in order; nobody
// knows how else, if it was held. Raising again counts from the same term, so that
// one that was interrupted may be repeated. A token that is kept without a record has
// no version.
func (s *QuiescenceCheck) Raised(rec driver.Record, session driver.Record, r Raise) driver.Record {
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
		asked.Token = rec.Term("").Below()
	case session.State == driver.Closed && session.End != "" && rec.Session != "":
		next.Prev = rec.Term(session.End)
		next.Prev.Until = session.Until
	default:
		next.Prev = rec.Term(driver.EndExpired)
	}
	next.Asked, next.Prev = &asked, next.Prev.Brief()
	return next
}

// Ended returns the record of a session that the looks have shown to be dead.
func Ended(rec driver.Record, version string) driver.Record {
	return closed(rec, version, driver.EndExpired)
}

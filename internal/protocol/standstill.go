// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Standstill is what one process has seen of the records of a store that is to be at
// rest: all programs that use it are stopped. It is for the procedure after a loss of
// the store, which raises tokens, and which no living program may meet.
//
// Each look shows all records, by strong reads. Each record must stand as the first
// look showed it, for as long as a contender would wait for a holder with its lease:
// one that is held, reserved, or a session that is alive, because its process may live;
// and one that is free, because the store may have lost that it was taken since, by a
// holder whose lease was as long. When all of them have stood for so long, the right to
// act of every process that had it in the lost time is over, by its own clock. A write
// that names the version which was seen is the last proof: a heartbeat on its way has
// come before it, or is in vain.
type Standstill struct {
	t     Timing
	seen  map[string]*stance // by key
	look  int                // which one it is, from 1
	until time.Duration
}

// stance is a record as the first look showed it.
type stance struct {
	version string
	token   uint64
	owner   string
	look    int // the latest that has shown it
}

// NewStandstill returns one that has seen nothing yet.
func NewStandstill(t Timing) *Standstill { return &Standstill{t: t, seen: map[string]*stance{}} }

// Look begins a look at all records.
func (s *Standstill) Look() { s.look++ }

// First reports whether it is the first one.
func (s *Standstill) First() bool { return s.look == 1 }

// Saw notes a record that the look has shown; now is the instant after the reply. A
// token that is kept without a record has no version. It reports whether the record is
// as it was at the first look, which it is at that.
func (s *Standstill) Saw(now time.Duration, rec driver.Record) (still bool) {
	if s.First() {
		s.seen[rec.Key] = &stance{version: rec.Version, token: rec.Token, owner: rec.Owner, look: s.look}
		s.until = max(s.until, now+max(s.t.wait(rec), s.t.Lease))
		return true
	}
	was := s.seen[rec.Key]
	if was == nil || was.version != rec.Version || was.token != rec.Token {
		return false
	}
	was.look = s.look
	return true
}

// Gone returns a record that the look has not shown, as far as it is known, and false
// if it has shown all of them. It ends the look.
func (s *Standstill) Gone() (rec driver.Record, gone bool) {
	for key, was := range s.seen {
		if was.look != s.look && (!gone || key < rec.Key) {
			rec, gone = driver.Record{Key: key, Token: was.token, Owner: was.owner}, true
		}
	}
	return rec, gone
}

// Until returns the instant at which a look must begin, at the earliest, for what it
// shows to have stood for long enough.
func (s *Standstill) Until() time.Duration { return s.until }

// Raise says how tokens are raised.
type Raise struct {
	By              uint64 // by how many
	Owner, Host     string // of who does it
	Reason, Version string
	At              time.Time
}

// Raised returns the record of a lock whose token is raised. What stood there becomes
// the tenure before it. It ended with its session if that was closed in order; nobody
// knows how else, if it was held. Raising again counts from the same tenure, so that
// one that was interrupted may be repeated. A token that is kept without a record has
// no version.
func (s *Standstill) Raised(rec driver.Record, session driver.Record, r Raise) driver.Record {
	next := rec.Clone()
	next.Version, next.Beat, next.Owner, next.Host, next.Label = r.Version, r.Version, r.Owner, r.Host, ""
	next.State, next.End, next.Since, next.Until = driver.Released, driver.EndRaised, r.At, r.At
	next.Session, next.Bell, next.Requests, next.Priority = "", "", nil, 0
	next.Lease = max(cmp.Or(rec.Lease, s.t.Lease), time.Millisecond)
	next.Token += r.By
	asked := driver.Request{ID: r.Version, Kind: driver.Raise, Token: rec.Token, By: r.Owner, Reason: r.Reason, At: r.At}
	switch {
	case rec.Version == "":
		next.Prev = nil
	case rec.State == driver.Released && rec.End == driver.EndRaised:
		asked.Token = rec.Tenure("").Below()
	case session.State == driver.Closed && session.End != "" && rec.Session != "":
		next.Prev = rec.Tenure(session.End)
		next.Prev.Until = session.Until
	default:
		next.Prev = rec.Tenure(driver.EndExpired)
	}
	next.Asked, next.Prev = &asked, next.Prev.Brief()
	return next
}

// Ended returns the record of a session that the looks have shown to be dead.
func Ended(rec driver.Record, version string) driver.Record {
	return closed(rec, version, driver.EndExpired)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Kind says what a call does.
type Kind int

// The calls that the machines make. The key says whether a call is about a lock, a session or
// the history.
const (
	Read         Kind = iota + 1 // read the record
	Claim                        // take it if it is absent or released
	Takeover                     // swap a dead holder's for ours
	Heartbeat                    // swap it to show life, with the current data
	Release                      // swap it to released, or to reserved for the next owner
	Abdicate                     // swap it to say why heartbeats stop, with the same beat
	Request                      // swap it to add a request for its holder, with the same beat
	ForceRelease                 // swap another process's to released, closed, or reserved for nobody
	Delete                       // delete a session that was closed long ago, or a history entry
	HistoryPut                   // write an ended term into the history, if it has no entry yet
)

func (k Kind) String() string {
	return [...]string{
		"none", "read", "claim", "takeover", "heartbeat", "release", "abdicate", "request", "force release", "delete",
		"put history",
	}[k]
}

// Reads says that the call changes nothing.
func (k Kind) Reads() bool { return k == Read }

// Call is one store call that a machine asks for. The machine waits for its Result, or for
// the engine to say that the outcome is unknown. (A [driver.Request] is something else: a
// message to a holder.)
//
// The engine calls Stamp when it sends the call.
type Call struct {
	Kind        Kind
	Key         string
	Consistency driver.Consistency // of a Read
	// A swap has both; a Claim or HistoryPut has Next only, a Delete has Prev only.
	Prev, Next driver.Record

	sent time.Duration // of a Holder: when, by its clock
	data uint64        // likewise: the serial number of the data that it carries

	crash bool // of a ForceRelease: the holder has crashed
}

// OfSession says that the call is about a session's record.
func (r *Call) OfSession() bool { return strings.HasPrefix(r.Key, driver.SessionPrefix) }

// consistency returns the consistency of the reply. The reply to a write is strong.
func (r *Call) consistency() driver.Consistency {
	if r.Kind.Reads() {
		return r.Consistency
	}
	return driver.Strong
}

// Stamp writes the wall clock's time into the record, for people. No decision depends
// on it.
func (r *Call) Stamp(now time.Time) {
	next := &r.Next
	switch r.Kind {
	case Claim, Takeover:
		next.Since = now
	case Release:
		if next.State == driver.Reserved {
			next.Since = now
			next.Prev.Until = now
		} else {
			next.Until = now
		}
	case Request:
		next.Requests[len(next.Requests)-1].At = now
	case ForceRelease:
		switch {
		case r.crash:
			next.Until = now
		case next.State == driver.Reserved:
			next.Since = now
			next.Prev.Asked.At = now
		case next.Asked != nil && next.Asked.At.IsZero():
			next.Asked.At = now
		}
	}
}

// Outcome is the outcome of a call.
type Outcome int

// The outcomes of a call.
const (
	Applied    Outcome = iota + 1 // written, or read
	Conflicted                    // not written: the record was different
	NotApplied                    // not written, now or later
	Unknown                       // perhaps written, now or later
)

// Result is the answer to a Call.
type Result struct {
	Outcome Outcome
	// Record is the record as written or read, or the conflicting one.
	Record driver.Record
	// Found is false if there is no record.
	Found bool
	// Former is the record that a claim replaced, zero if there was none.
	Former driver.Record
	// Err is the store's error where the outcome is NotApplied or Unknown.
	Err error
}

// ResultOf returns the result for what a store call returned.
func ResultOf(kind Kind, rec, former driver.Record, err error) Result {
	switch {
	case err == nil && kind == Delete:
		return Result{Outcome: Applied}
	case err == nil:
		return Result{Outcome: Applied, Record: rec, Found: true, Former: former}
	case kind.Reads() && errors.Is(err, driver.ErrNotFound):
		return Result{Outcome: Applied}
	}
	conflict, conflicted := errors.AsType[*driver.ConflictError](err)
	switch {
	case !kind.Reads() && conflicted:
		return Result{Outcome: Conflicted, Record: conflict.Current, Found: !conflict.Absent}
	case kind.Reads(), errors.Is(err, driver.ErrNotApplied), errors.Is(err, driver.ErrUnreadable),
		errors.Is(err, driver.ErrClosed):
		return Result{Outcome: NotApplied, Err: err}
	default:
		return Result{Outcome: Unknown, Err: err}
	}
}

// attempt is a write whose outcome may become known later.
type attempt struct {
	kind       Kind
	version    string
	token      uint64 // 0: the store chooses it
	sent       time.Duration
	countsFrom time.Duration // the instant from which its lease counts: see Env.Lease
	data       uint64        // the serial number of the data that it carries
	// before are the terms before the written record's Prev that a takeover knows, newest
	// first.
	before        []*driver.Term
	replacesStray bool // it replaces a grant of the same acquire
}

// maxAttempts bounds the attempts that a machine remembers. Beyond it the
// oldest is forgotten, which can end a lease early and never prolongs one.
const maxAttempts = 256

// attempts are writes of unknown outcome, oldest first.
type attempts []attempt

func (as attempts) add(a attempt) attempts {
	if len(as) == maxAttempts {
		as = append(as[:0], as[1:]...)
	}
	return append(as, a)
}

// wrote returns the attempt that wrote rec or only its beat. latest are further
// candidates.
func (as attempts) wrote(rec driver.Record, latest ...attempt) (attempt, bool) {
	for _, all := range []attempts{as, latest} {
		for _, a := range all {
			if a.wrote(rec) {
				return a, true
			}
		}
	}
	return attempt{}, false
}

// wrote says whether the attempt wrote rec, or the beat in it: a request that was written
// into the record later has changed only the version.
func (a attempt) wrote(rec driver.Record) bool {
	live := rec.State == driver.Held || rec.State == driver.Alive
	ours := a.version == rec.Version || a.version == rec.Beat && live
	return ours && (a.token == 0 || a.token == rec.Token)
}

// released says whether one of the attempts releases the record.
func (as attempts) released() bool {
	return slices.ContainsFunc(as, func(a attempt) bool { return a.kind == Release })
}

// carry says whether one of the attempts carries data with that serial number, or newer
// data.
func (as attempts) carry(serial uint64) bool {
	return slices.ContainsFunc(as, func(a attempt) bool { return a.data >= serial })
}

func (as attempts) without(version string) attempts {
	kept := as[:0]
	for _, a := range as {
		if a.version != version {
			kept = append(kept, a)
		}
	}
	return kept
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Kind says what a request does.
type Kind int

// The requests that the machines make.
const (
	Look      Kind = iota + 1 // read the record
	Claim                     // take it if it is absent or released
	Takeover                  // swap it from a dead holder's
	Heartbeat                 // swap it to show life, with the data of the day
	Release                   // swap it to released, or reserved for who is to have it next
	Quit                      // swap it to say why no more heartbeats come, with the beat as it is
	Ask                       // swap it with a request for its holder, with the beat as it is
	Free                      // an operator's swap to released, or to reserved for nobody
	Peek                      // read the record of the session under which the lock is held
	Close                     // swap a dead session to closed
	Inquire                   // swap a session with the question whether it holds the lock
	Forget                    // delete a session's record that has been closed for long
)

func (k Kind) String() string {
	return [...]string{"none", "look", "claim", "takeover", "heartbeat", "release", "quit", "ask", "free", "peek", "close", "inquire", "forget"}[k]
}

// Reads says that the request changes nothing.
func (k Kind) Reads() bool { return k == Look || k == Peek }

// OfSession says that requests of the kind are always about a session's record. An
// Ask, a Claim or a Heartbeat may be: see [Request.OfSession].
func (k Kind) OfSession() bool { return k == Peek || k == Close || k == Inquire || k == Forget }

// Request is one call of the store that a machine asks for. The machine waits
// for its Result, or for the shell to say that the outcome is unknown.
//
// The shell calls Stamp when it sends the request.
type Request struct {
	Kind        Kind
	Key         string
	Consistency driver.Consistency // of a Look or Peek
	Prev, Next  driver.Record      // of a swap; of a Claim Next alone, of a Forget Prev
}

// OfSession says that the request is about a session's record.
func (r *Request) OfSession() bool { return strings.HasPrefix(r.Key, driver.SessionPrefix) }

// fresh says how fresh the reply is: what a write was answered is strong.
func (r *Request) fresh() driver.Consistency {
	if r.Kind.Reads() {
		return r.Consistency
	}
	return driver.Strong
}

// Stamp writes the wall clock's time into the records that show it to people.
// No decision reads it.
func (r *Request) Stamp(now time.Time) {
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
	case Ask, Inquire:
		next.Requests[len(next.Requests)-1].At = now
	case Free:
		if next.State == driver.Reserved {
			next.Since = now
			next.Prev.Asked.At = now
		} else if next.Asked != nil && next.Asked.At.IsZero() {
			next.Asked.At = now
		}
	}
}

// Outcome says what became of a request.
type Outcome int

// The outcomes of a request.
const (
	Applied    Outcome = iota + 1 // written, or read
	Conflicted                    // not written: the record is another one
	NotApplied                    // not written, and never will be
	Unknown                       // perhaps written, perhaps later
)

// Result is the answer to a Request.
type Result struct {
	Outcome Outcome
	// Record is the record as written or read, or the one in the way.
	Record driver.Record
	// Found is false if there is no record.
	Found bool
	// Former is the record that a claim replaced, zero if there was none.
	Former driver.Record
	// Err is the store's error where the outcome is NotApplied or Unknown.
	Err error
}

// ResultOf sorts what a call of a store returned.
func ResultOf(kind Kind, rec, former driver.Record, err error) Result {
	var conflict *driver.ConflictError
	switch {
	case err == nil && kind == Forget:
		return Result{Outcome: Applied}
	case err == nil:
		return Result{Outcome: Applied, Record: rec, Found: true, Former: former}
	case kind.Reads() && errors.Is(err, driver.ErrNotFound):
		return Result{Outcome: Applied}
	case !kind.Reads() && errors.As(err, &conflict):
		return Result{Outcome: Conflicted, Record: conflict.Current, Found: !conflict.Absent}
	case kind.Reads(), errors.Is(err, driver.ErrNotApplied), errors.Is(err, driver.ErrUnreadable), errors.Is(err, driver.ErrClosed):
		return Result{Outcome: NotApplied, Err: err}
	default:
		return Result{Outcome: Unknown, Err: err}
	}
}

// attempt remembers a write whose outcome may come to light later.
type attempt struct {
	kind    Kind
	version string
	token   uint64 // 0: counted by the store
	sent    time.Duration
	data    uint64 // the serial number of the data that it carries
	// before are the tenures before the one that it names as Prev, as far as a
	// takeover knows them, the newest first.
	before []*driver.Tenure
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

// wrote returns the attempt that wrote rec, or that wrote the beat which it
// shows: a request laid on top has changed the version alone.
func (as attempts) wrote(rec driver.Record) (attempt, bool) {
	for _, a := range as {
		live := rec.State == driver.Held || rec.State == driver.Alive
		ours := a.version == rec.Version || a.version == rec.Beat && live
		if ours && (a.token == 0 || a.token == rec.Token) {
			return a, true
		}
	}
	return attempt{}, false
}

// released says whether one of them releases the record.
func (as attempts) released() bool {
	for _, a := range as {
		if a.kind == Release {
			return true
		}
	}
	return false
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

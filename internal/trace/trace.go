// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Kind says what an event is.
type Kind string

// The kinds of events, each with the fields that it carries beside At and Lock.
const (
	// Start says that a process begins, or begins again after a Crash: Proc,
	// Timing. It has no Lock.
	Start Kind = "start"
	// Crash says that a process is gone, with whatever it believed: Proc. What it
	// has sent may still be applied. It has no Lock.
	Crash Kind = "crash"
	// Send says that a request leaves: Proc, Who, Request, Call; Next for a
	// write; Prev for a swap. At is the instant from which its sender counts.
	Send Kind = "send"
	// Apply says that the store carries out a request: Request, Outcome (Applied
	// or Conflicted), Found and Record as they stand afterwards. A late or
	// duplicated one is one more Apply. It may be left out for a read.
	Apply Kind = "apply"
	// Reply says that the sender learns, or gives up learning, what became of its
	// request: Proc, Who, Request, Outcome; Found and Record as they are shown to
	// it, if the outcome is Applied or Conflicted. At is the instant from which a
	// contender counts what it has seen.
	Reply Kind = "reply"
	// Grant says that an acquire has become a lease: Proc, Who, Record as granted.
	Grant Kind = "grant"
	// Check says that the check of a lease passes at this instant, so that its
	// holder may act: Proc, Who. One for each instant to be judged.
	Check Kind = "check"
	// End says that the right to act under a lease has ended: Proc, Who, Cause.
	// A process that was paused reports it late.
	End Kind = "end"
	// Quiet says that a lease sends no more heartbeats: Proc, Who.
	Quiet Kind = "quiet"
	// Done says that the work under a lease has returned: Proc, Who. Its release
	// follows.
	Done Kind = "done"
	// Leave says that an acquire has ended without a lease; it may go on to clean
	// up: Proc, Who.
	Leave Kind = "leave"
)

// Calls of a Send, as package protocol names them.
const (
	ReadCall     = "read"
	Claim        = "claim"
	Takeover     = "takeover"
	Heartbeat    = "heartbeat"
	Release      = "release"
	Abdicate     = "abdicate"
	Request      = "request"
	ForceRelease = "force release"
)

// Outcomes of an Apply and of a Reply.
const (
	Applied    = "applied"
	Conflicted = "conflicted"
	NotApplied = "not applied" // not written, and never will be
	Unknown    = "unknown"     // perhaps written, perhaps later
)

// Event is one line of a trace.
type Event struct {
	// At is the reference time since the beginning of the trace, in
	// nanoseconds. It never goes back from one event to the next.
	At   time.Duration `json:"at"`
	Do   Kind          `json:"do"`
	Lock string        `json:"lock,omitempty"`
	// Proc names the process. A restarted process may keep its name.
	Proc string `json:"proc,omitempty"`
	// Who, unique in the trace, names the machine that acts in the process: an
	// acquire and the lease that it becomes, or a requester.
	Who string `json:"who,omitempty"`
	// Request numbers a request from 1 on, unlike any other in the trace.
	Request int     `json:"request,omitempty"`
	Call    string  `json:"call,omitempty"`
	Prev    *Record `json:"prev,omitempty"`
	Next    *Record `json:"next,omitempty"`
	Outcome string  `json:"outcome,omitempty"`
	Found   bool    `json:"found,omitempty"`
	Record  *Record `json:"record,omitempty"`
	Cause   string  `json:"cause,omitempty"`
	Timing  *Timing `json:"timing,omitempty"`
}

// Record is what the model knows of a record.
type Record struct {
	Version string        `json:"version"`
	Beat    string        `json:"beat"`
	Owner   string        `json:"owner,omitempty"`
	Token   uint64        `json:"token"`
	State   string        `json:"state"`
	Lease   time.Duration `json:"lease"`
	// Requests are the kinds and IDs of the requests in it.
	Requests []Asked `json:"requests,omitempty"`
	// End says how the term ended, if the record shows it.
	End string `json:"end,omitempty"`
	// Former is the token of the term before this one, 0 for none, and
	// FormerEnd how that one ended.
	Former    uint64 `json:"former,omitempty"`
	FormerEnd string `json:"formerEnd,omitempty"`
}

// Asked is a request in a record.
type Asked struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	To   string `json:"to,omitempty"`
}

// Timing is what a process counts by.
type Timing struct {
	Lease time.Duration `json:"lease"`
	Grace time.Duration `json:"grace"`
	// Window is how long after sending a write its sender may count on the
	// lease, by its own clock, before the grace is taken off.
	Window time.Duration `json:"window"`
	// Drift bounds the rate error of every clock.
	Drift float64 `json:"drift"`
}

// Of returns the part of rec that the model knows.
func Of(rec driver.Record) *Record {
	r := &Record{
		Version: rec.Version, Beat: rec.Beat, Owner: rec.Owner, Token: rec.Token,
		State: string(rec.State), Lease: rec.Lease, End: string(rec.End),
	}
	for _, q := range rec.Requests {
		r.Requests = append(r.Requests, Asked{ID: q.ID, Kind: string(q.Kind), To: q.To})
	}
	if rec.Prev != nil {
		r.Former, r.FormerEnd = rec.Prev.Token, string(rec.Prev.End)
	}
	return r
}

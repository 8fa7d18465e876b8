// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"time"
	"unicode/utf8"
)

// Term is one holder's time with a lock, as the record of its successor
// remembers it.
type Term struct {
	Owner        string
	Token        uint64
	Host, Label  string
	Since, Until time.Time // Until is zero if it is unknown
	End          EndReason
	Asked        *Request // who asked for the end; in vain, if it is EndExpired
}

// Term returns the term that the record shows, ended for the given reason
// unless the record says itself how it ended. A Reserved record shows the term
// before, since it has no holder yet. The term does not name its session, which
// is not needed once the end of the term is known.
func (r Record) Term(end EndReason) *Term {
	if r.State == Reserved {
		return r.Prev.clone()
	}
	if r.End != "" {
		end = r.End
	}
	t := &Term{
		Owner: r.Owner, Token: r.Token, Host: r.Host, Label: r.Label,
		Since: r.Since, Until: r.Until, End: end, Asked: r.Asked,
	}
	if r.State == Held && len(r.Requests) > 0 {
		t.Asked = &r.Requests[0]
	}
	return t.clone()
}

// PrevToken returns the token of the term before this one: one lower, unless this
// one ended with [EndRaised].
func (t *Term) PrevToken() uint64 {
	if t.End == EndRaised && t.Asked != nil && t.Asked.Kind == Raise && t.Asked.Token < t.Token {
		return t.Asked.Token
	}
	return t.Token - min(t.Token, 1)
}

// Shorten returns the term as the record of the next holder keeps it: with a
// reason of at most [MaxPrevReasonLen]. It returns nil for nil.
func (t *Term) Shorten() *Term {
	if t == nil || t.Asked == nil || len(t.Asked.Reason) <= MaxPrevReasonLen {
		return t
	}
	const more = "…"
	end := MaxPrevReasonLen - len(more)
	for end > 0 && !utf8.RuneStart(t.Asked.Reason[end]) {
		end--
	}
	t = t.clone()
	t.Asked.Reason = t.Asked.Reason[:end] + more
	return t
}

func (t *Term) clone() *Term {
	if t == nil {
		return nil
	}
	c := *t
	c.Asked = c.Asked.clone()
	return &c
}

func (q *Request) clone() *Request {
	if q == nil {
		return nil
	}
	c := *q
	return &c
}

// EndReason says how a term ended.
type EndReason string

const (
	// EndReleased: the holder released the lock after its work.
	EndReleased EndReason = "released"
	// EndExpired: the holder's beat did not change for its lease, and an
	// acquirer took over.
	EndExpired EndReason = "expired"
	// EndSteppedDown: the holder was asked to stop, and released the lock.
	EndSteppedDown EndReason = "stepped_down"
	// EndHandedOver: the holder was asked to hand over to another process.
	EndHandedOver EndReason = "handed_over"
	// EndStalled: the work showed no progress, so that the holder stopped its
	// heartbeats and said so.
	EndStalled EndReason = "stalled"
	// EndStopTimeout: the work did not return in time after the request to
	// stop, so that the holder stopped its heartbeats and recorded this.
	EndStopTimeout EndReason = "stop_timeout"
	// EndReleasedDead: an operator released the lock of a dead holder.
	EndReleasedDead EndReason = "freed"
	// EndAbandoned: the acquire was given up while the lock was granted, and
	// nothing was done under it.
	EndAbandoned EndReason = "abandoned"
	// EndRevoked: an operator took the lock from its holder.
	EndRevoked EndReason = "revoked"
	// EndFailed: the holder released the lock and said that its work had failed.
	EndFailed EndReason = "failed"
	// EndCrashed: the holder's process ended without a release, with all
	// processes that it had started; another process knew this for certain
	// and released the lock.
	EndCrashed EndReason = "crashed"
	// EndRaised: no process held the lock under this token. An operator raised it
	// after a loss of the store. Asked names the token of the term before.
	EndRaised EndReason = "raised"
)

// RequestKind says what a request asks for.
type RequestKind string

// The kinds of requests.
const (
	StepDown RequestKind = "step_down" // stop, and release the lock
	HandOver RequestKind = "hand_over" // stop, and reserve the lock for To, or for ToLabel
	// Confirm asks a session whether it holds Lock under Token. If it does, it
	// drops the request; if not, it releases the lock: a claim whose outcome it
	// never learnt, or a late duplicate, was granted in its name.
	Confirm RequestKind = "confirm"
	// ReleaseDead and Revoke are acts of operators. They are never requests in a
	// held record; they record who ended a term, and why.
	ReleaseDead RequestKind = "free"
	Revoke      RequestKind = "revoke"
	// Fail is never a request in a held record either: it records why a holder
	// called its own term [EndFailed].
	Fail RequestKind = "fail"
	// Nor is Raise: it records who raised the token of a lock, and why, and its
	// Token is the token before. See [EndRaised].
	Raise RequestKind = "raise"
)

// Request is a message for the holder of a lock, which another process writes into
// the record of the lock or of its session. It changes the version and leaves the
// beat alone, so that it cannot prolong the life of a dead holder; the holder's next
// heartbeat conflicts, and so it is delivered. Its text follows the rule of
// [Record].
type Request struct {
	ID     string // opaque, never used again; letters, digits and dashes
	Kind   RequestKind
	Lock   string // in a session's record: the key of the lock that is meant
	Token  uint64 // the token under which it is meant, 0 for any
	By     string // who asked
	Reason string // why, for people
	To     string // the owner to hand over to
	// ToLabel is the label to hand over to, if To is empty; at least one of them is. A
	// holder of an older version does not know it, and reserves the lock for nobody.
	ToLabel string
	At      time.Time // by the clock of who asked, for people
}

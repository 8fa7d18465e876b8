// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"strings"
	"time"
)

// Limits for every store, so that a program can move from one store to
// another. The layer above the stores enforces them.
const (
	// MaxNameLen is the longest name of a lock in bytes.
	MaxNameLen = 1024
	// MaxKeyLen is the longest key in bytes: the name of a lock, or a key that
	// contains one. The narrowest engine allows 2048 for a partition key;
	// prefixes need room.
	MaxKeyLen = MaxNameLen + 64
	// MaxOwnerLen is the longest owner name, host or label in bytes.
	MaxOwnerLen = 1024
	// MaxReasonLen is the longest reason of a request in bytes.
	MaxReasonLen = 1024
	// MaxPrevReasonLen is the longest reason in bytes that a held record keeps of
	// the term before. The history keeps it in full.
	MaxPrevReasonLen = 120
	// MaxRequests is how many requests a record can hold.
	MaxRequests = 64
	// MaxSessionLen is the longest id of a session in bytes.
	MaxSessionLen = 64
	// MaxDataLen is the longest data in bytes. The narrowest engine stores 400
	// kB in an item, with everything in it.
	MaxDataLen = 256 << 10
	// MaxSessionDataLen is the longest data of a session in bytes: as many as the
	// narrowest engine stores beside MaxRequests of the longest requests.
	MaxSessionDataLen = 64 << 10
	// MaxNotifyLen is the longest address for notifications in bytes.
	MaxNotifyLen = 256
	// MaxToken is the highest token: what a signed 64-bit column holds.
	MaxToken = 1<<63 - 1
)

// OwnPrefix begins the keys of records that are no locks, such as the history
// of one. No lock has such a name.
const OwnPrefix = "tenure/"

// SessionPrefix begins the keys of sessions' records.
const SessionPrefix = OwnPrefix + "session/"

// SessionKey returns the key of a session's record, by the id of the session.
func SessionKey(id string) string { return SessionPrefix + id }

// SessionID returns the id of the session whose record has the key, or the key
// itself if it is not a session's.
func SessionID(key string) string { return strings.TrimPrefix(key, SessionPrefix) }

// State says what a record stands for. It is a word of lower-case letters and dashes,
// in later versions too.
type State string

const (
	// Held says that Owner had the lock when the record was written, and
	// still has it as long as the beat keeps changing.
	Held State = "held"
	// Reserved says that the lock has no holder, and is reserved for Owner, which
	// may take it at once. Others take it over like a dead holder's when Beat has
	// not changed for Lease. The term that ended is Prev. Without an Owner it is
	// reserved for the first process that has its Label. With neither it is
	// reserved for nobody, and waits until a former holder has stopped.
	Reserved State = "reserved"
	// Released says that the lock has no holder. The record stays, because it
	// carries the token.
	Released State = "released"
	// Past says that the record is no lock, but the memory of a term that
	// has ended. It is written once, by Claim, and never taken.
	Past State = "past"
	// Alive says that the record is not a lock, but a session of Owner: all
	// locks that name it are held as long as its beat keeps changing. It is
	// written by Claim, once, under an id that is never used again.
	Alive State = "alive"
	// Closed says that the session has ended, and that no lock is held under it.
	// It is the last state of the record: the record is neither claimed nor
	// swapped, and is deleted when no late write of the session can come any
	// more.
	Closed State = "closed"
)

// OfSession reports whether a record in this state is a session's.
func (s State) OfSession() bool { return s == Alive || s == Closed }

// Record is what a store keeps for one lock, or for one session, which renews
// many locks with one heartbeat.
//
// All text in it, also in its requests and terms, is valid UTF-8 without U+0000, which some
// engines cannot keep: [CheckClaim], [CheckSwap] and [CheckRaise] refuse any other. Every
// other character comes back as it was written, also control characters and noncharacters
// (U+FFFE). Text that Tenure itself writes for people is printable, rune by rune
// (unicode.IsPrint); text of other clients need not be. A store that reads U+0000 in the
// text of another client, except in a key or a version, returns U+FFFD in its place:
// otherwise no process could take that lock over.
type Record struct {
	// Key names the lock. It is not empty, and at most MaxKeyLen bytes long. Owner,
	// Host and Label have at most MaxOwnerLen; Host and Label may be empty.
	Key string

	// Version is an opaque string of at most 64 letters, digits and dashes, new
	// with every write of the record. The caller chooses it, and the store keeps it
	// as it is: Tenure writes some records under a version that all its processes
	// know beforehand. So it cannot be the engine's own revision. A store compares
	// it, or a value of the engine that represents it. Foreign clients may write
	// longer versions with other characters.
	Version string

	// Beat is an opaque string, new with every grant and every heartbeat. It
	// is what acquirers watch: while it changes, the holder lives. It is
	// empty in a record that a foreign client wrote; there Version serves.
	Beat string

	// Owner is the name by which people know the holder. No decision depends
	// on it being unique.
	Owner string

	// Token is the fencing token: one higher with every change of holder,
	// never lower again. A granted record has a token of 1 or more. There are no
	// gaps: the history of a lock is kept under keys that are made of its tokens, and
	// read downwards from the last. So it cannot be the engine's own revision either.
	// Only a [Raiser] leaves a gap, and a record that ended with [EndRaised] names
	// the token below it.
	Token uint64

	// Lease is how long an unchanged Beat proves that the holder may still be
	// at work. Stores keep it to the nanosecond where they can and to the
	// millisecond at least.
	Lease time.Duration

	// Session is the id of the session that renews the lock: at most
	// MaxSessionLen letters, digits and dashes, only in a held record. If it is
	// empty, the record is its own lease. Otherwise Beat does not change from
	// the grant to the end, which proves nothing: acquirers watch the beat of
	// the session's record.
	Session string

	// Heartbeat is the period in which the holder intends to change the beat,
	// 0 if unknown. It is a hint for the time of the next poll. No decision
	// depends on it. Stores keep it as precisely as Lease.
	Heartbeat time.Duration

	// Drift is the bound on the error of clock rates that the holder counts its
	// lease with, such as 0.09; 0 if unknown. It is 0 or more, and less than 1.
	// An acquirer that counts with a higher bound waits for longer than Lease;
	// none waits for less. Stores keep it as it is.
	Drift float64

	// Notify is where and how the holder receives hints from other processes: an
	// address and a secret, only in a record that is Held or Alive, empty if it
	// receives none. It is at most MaxNotifyLen bytes of text without control
	// characters. It contains a secret: code that shows, logs or serves records
	// leaves it out. Stores keep it as it is, and a release drops it.
	Notify string

	// State is Held, Reserved or Released. A record in any other state is neither
	// claimed nor taken over as a lock. A state that the store does not know is of a
	// later version: the record is read and kept as it is, and is not unreadable.
	State State

	// Priority is this holder's own preference over others: candidates with a
	// higher priority ask it to hand over. Usually 0.
	Priority int

	// Requests are for the holder, oldest first, only in a record that is Held or
	// Alive. A lock has at most one. Requests to the locks under a session are in
	// the session's record, where its next heartbeat finds them.
	Requests []Request

	// Data is the holder's own: its address, a checkpoint. It stays when the
	// lock changes hands, unless the new holder brings its own. A store need
	// not distinguish nil from empty. The data of a session are at most
	// MaxSessionDataLen bytes.
	Data []byte

	// Host and Label tell people where the holder runs and which version of
	// the software it is. In a Reserved record without an Owner, the lock is
	// reserved for processes with this Label.
	Host, Label string

	// Since is when the term began, by the holder's wall clock, and Until
	// when it was released, zero before that. They are for people; no decision
	// reads them. Stores keep them to the millisecond at least.
	Since, Until time.Time

	// End says how the term ended, in a released record. In a held record it
	// says why the holder has stopped its heartbeats, and the term ends when
	// another process takes over. Otherwise it is empty.
	End EndReason

	// Asked is the request that ended the term, in a released record.
	Asked *Request

	// Prev is the term before this one, nil if this is the key's first. The
	// reason of its request is cut to MaxPrevReasonLen in a record that is Held, so
	// that heartbeats do not carry a long one for the life of the term.
	Prev *Term

	// Life names the life of the engine that has shown the record, in a record that a
	// [Guarded] store returns. It is not stored, and empty from any other store. In the prev
	// of a write it binds the write to that life; empty, it binds to none.
	Life string

	// Opens, in a record to be written to a [Guarded] store, allows the write to open the
	// life that it names. It is not stored. Other stores ignore it.
	Opens Opening

	// Unknown holds the fields of a newer version of Tenure that a store read in the
	// record, as text in the store's own format. A write of the same term leaves it
	// as it is, so that they are kept; a new term begins without. It is empty in a
	// store that keeps such fields by itself, such as a store with columns: there a
	// new term may find the fields of the former term. So a field that a later
	// version adds names the token that it belongs to, or means the same for all
	// holders.
	Unknown string
}

// Sign returns the sign of life that acquirers watch: the beat, or the
// version in a record without a beat.
func (r Record) Sign() string {
	if r.Beat != "" {
		return r.Beat
	}
	return r.Version
}

// Clone returns a copy that shares no memory with r.
func (r Record) Clone() Record {
	if r.Data != nil {
		r.Data = append([]byte{}, r.Data...)
	}
	if r.Requests != nil {
		r.Requests = append([]Request{}, r.Requests...)
	}
	r.Asked, r.Prev = r.Asked.clone(), r.Prev.clone()
	return r
}

// Detach returns a clone whose times are as they come back from a database: no
// monotonic reading, no location. Stores return such records.
func (r Record) Detach() Record {
	r = r.Clone()
	bare(&r.Since, &r.Until)
	for i := range r.Requests {
		bare(&r.Requests[i].At)
	}
	if r.Asked != nil {
		bare(&r.Asked.At)
	}
	if r.Prev != nil {
		bare(&r.Prev.Since, &r.Prev.Until)
		if r.Prev.Asked != nil {
			bare(&r.Prev.Asked.At)
		}
	}
	return r
}

func bare(times ...*time.Time) {
	for _, t := range times {
		*t = t.UTC().Round(0)
	}
}

// Claimed returns the record that [Store.Claim] writes when the key holds
// prev, or nothing if found is false. Stores that read and write inside a
// transaction call it; stores that claim with one expression of their engine
// do the same in that expression. It equals next except in these fields:
//
//   - Token is 1 if nothing was found, else one more than that of prev.
//   - Prev is nil if nothing was found. Else its Owner, Token, Host, Label, Since,
//     Until and Asked are those of prev, and its End is that of prev, or
//     [EndReleased] if prev has none. The reason in Asked is cut to
//     [MaxPrevReasonLen], as [Term.Shorten] does it.
//   - Data is that of prev if next.Data is nil. Data that is empty and not nil
//     replaces it.
//
// The session is next's: a released record names none.
func Claimed(next, prev Record, found bool) Record {
	if !found {
		next.Token, next.Prev = 1, nil
		return next
	}
	next.Token = prev.Token + 1
	next.Prev = prev.Term(EndReleased).Shorten()
	if next.Data == nil {
		next.Data = prev.Data
	}
	return next
}

// CheckClaim returns an error if next is not a record that [Store.Claim] may
// write, marked by [Unsupported]. Stores call it before they touch their engine, so that a mistake above them never reaches a table.
func CheckClaim(next Record) error {
	err := checkWrite(next)
	if err == nil && next.State != Held && next.State != Past && next.State != Alive {
		err = fmt.Errorf("claim of %q writes a record in state %q: it must be %q, %q for history, or %q for a session",
			next.Key, next.State, Held, Past, Alive)
	}
	return Unsupported(err)
}

// CheckSwap returns an error if prev and next are not a step that
// [Store.Swap] may take, marked by [Unsupported]. A prev that names no more than key, version and token passes for any step.
func CheckSwap(prev, next Record) error {
	err := checkWrite(next)
	switch {
	case prev.Key != next.Key:
		err = fmt.Errorf("swap of %q with a record of %q: the keys must be the same", prev.Key, next.Key)
	case next.Version == prev.Version:
		err = fmt.Errorf("swap of %q keeps version %q: every write needs a new one", next.Key, next.Version)
	case next.Token != prev.Token && next.Token != prev.Token+1:
		err = fmt.Errorf("swap of %q from token %d to %d: the token may stay or rise by one", next.Key, prev.Token, next.Token)
	case prev.State == Closed:
		err = fmt.Errorf("swap of %q, a closed session: it stays closed until it is deleted", next.Key)
	case prev.State != "" && prev.State.OfSession() != next.State.OfSession():
		err = fmt.Errorf("swap of %q from state %q to %q: a session's record is never a lock's", next.Key, prev.State, next.State)
	case next.State.OfSession() && next.Token != prev.Token:
		err = fmt.Errorf("swap of %q, a session, from token %d to %d: it has one holder, and keeps its token", next.Key, prev.Token, next.Token)
	}
	return Unsupported(err)
}

// CheckRaise returns an error if prev and next are not a step that [Raiser.Raise] may
// take, marked by [Unsupported]. A prev that names no more than key, version and token
// passes for any record of a lock.
func CheckRaise(prev, next Record) error {
	err := checkWrite(next)
	switch {
	case err != nil:
	case prev.Key != next.Key:
		err = fmt.Errorf("raise of %q with a record of %q: the keys must be the same", prev.Key, next.Key)
	case next.Version == prev.Version:
		err = fmt.Errorf("raise of %q keeps version %q: every write needs a new one", next.Key, next.Version)
	case prev.State.OfSession():
		err = fmt.Errorf("raise of %q, a session that is %q: it has one holder, and keeps its token; close it by a swap", next.Key, prev.State)
	case prev.State == Past:
		err = fmt.Errorf("raise of %q, a history record: it describes one term, and has no token to raise", next.Key)
	case next.State != Released:
		err = fmt.Errorf("raise of %q to state %q: it must be %q, because no process was granted the token", next.Key, next.State, Released)
	case next.Token <= prev.Token:
		err = fmt.Errorf("raise of %q from token %d to %d: the token must rise", next.Key, prev.Token, next.Token)
	}
	return Unsupported(err)
}

func checkWrite(next Record) error {
	if err := next.checkText(); err != nil {
		return err
	}
	switch {
	case next.Key == "":
		return fmt.Errorf("write of a record without a key")
	case next.Version == "":
		return fmt.Errorf("write of %q without a version", next.Key)
	case next.Owner == "" && next.State != Reserved:
		return fmt.Errorf("write of %q without an owner", next.Key)
	case len(next.Requests) > MaxRequests:
		return fmt.Errorf("write of %q with %d requests: at most %d are allowed", next.Key, len(next.Requests), MaxRequests)
	case next.Lease < time.Millisecond:
		return fmt.Errorf("write of %q with a lease of %v: it must be at least a millisecond, or a store could read it back as zero", next.Key, next.Lease)
	case next.Heartbeat < 0:
		return fmt.Errorf("write of %q with a heartbeat period of %v: it must not be negative", next.Key, next.Heartbeat)
	case next.State == "":
		return fmt.Errorf("write of %q without a state", next.Key)
	case strings.Trim(string(next.State), "abcdefghijklmnopqrstuvwxyz-") != "":
		return fmt.Errorf("write of %q in state %q: a state is a word of lower-case letters and dashes", next.Key, next.State)
	case next.Session != "" && next.State != Held:
		return fmt.Errorf("write of %q, which is %q, under session %q: it must be %q, or name no session", next.Key, next.State, next.Session, Held)
	case !isSession(next.Session):
		return fmt.Errorf("write of %q under session %q: an id has letters, digits and dashes, at most %d", next.Key, next.Session, MaxSessionLen)
	case !(next.Drift >= 0 && next.Drift < 1): // NaN as well
		return fmt.Errorf("write of %q with a clock drift of %v: it must be 0 or more, and less than 1", next.Key, next.Drift)
	case next.Notify != "" && next.State != Held && next.State != Alive:
		return fmt.Errorf("write of %q, which is %q, with an address for notifications: only a record that is %q or %q may have one", next.Key, next.State, Held, Alive)
	case len(next.Notify) > MaxNotifyLen:
		return fmt.Errorf("write of %q with an address for notifications of %d bytes: the longest is %d", next.Key, len(next.Notify), MaxNotifyLen)
	case next.Token > MaxToken:
		return fmt.Errorf("write of %q with token %d: the highest is %d", next.Key, next.Token, uint64(MaxToken))
	}
	for _, request := range next.Requests {
		if request.Token > MaxToken {
			return fmt.Errorf("write of %q with a request under token %d: the highest is %d", next.Key, request.Token, uint64(MaxToken))
		}
	}
	return nil
}

// isSession reports whether id may be the id of a session, or is empty.
func isSession(id string) bool {
	other := func(c rune) bool {
		return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}
	return len(id) <= MaxSessionLen && !strings.ContainsFunc(id, other)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// A remote holder may keep many locks alive by one session. As for a lock, it makes the beats of the
// session itself, and counts from before it first sent one. A [RemoteWrite] of the session's record
// carries out each heartbeat, and the closing.
//
// It takes a lock in two steps. It acquires the lock as a lease of its own, which expires if the
// holder goes no further: so an acquire that is delivered late or twice leaves no lock under a session
// that lives on. Then it attaches the lock to the session: one swap, from the granted beat to a beat
// of the holder's under the session. It holds the lock from the confirmed attachment on, as long as
// the deadline of the session has not passed. That is safe whenever the session ends:
//
//   - Another process takes an attached lock only when it has seen the session's record closed, or
//     absent after it was there. The holder closes the session only when it has ended all work. Any
//     other process closes it when its beat was unchanged for its lease: then the holder's deadline
//     has passed, and no later heartbeat can be confirmed, since each replaces an open record.
//   - So a session that ends between the look at its record and the swap is one whose holder has
//     stopped. The lock is then attached to an ended session: it is free at once for the others.
//     The look refuses most of these, and the sessions of others.
//   - An attachment that is delivered late or twice finds another beat: that of the attachment itself,
//     of a later heartbeat, or of a later term. It has no effect.
//   - The attachment changes the beat. So a contender that has counted on the granted beat begins
//     again, with the session, and whatever releases an unused grant finds that it was used.
//
// Before the attachment is confirmed, the lock may have either lease: a holder that has already
// counted heartbeats of the lock may act only until the earlier of both deadlines.

// OfSession says what a [RemoteHeartbeat] has to do with a session.
type OfSession struct {
	// ID is the id of the session to which the lock is attached, or from which it is detached;
	// empty: the heartbeat is the session's own.
	ID string
	// Owner is the owner of that session. It attaches only its own locks.
	Owner string
	// Detaches says that the lock is released, whether it is attached, with the beat Next, or not
	// yet, with the beat After.
	Detaches bool
	// Asked is what the session's record asks of the holder of a lock that is detached, or nil.
	Asked *driver.Request

	// Answered are the ids of the requests that leave the session's record.
	Answered []string
}

// attaches says that the heartbeat attaches the lock to a session.
func (d RemoteHeartbeat) attaches() bool { return d.Of != nil && d.Of.ID != "" && !d.Of.Detaches }

// attached says whether rec shows the lock as this heartbeat has attached it, or its attachment had.
func (d RemoteHeartbeat) attached(rec driver.Record) bool {
	return d.Of != nil && d.Of.ID != "" && rec.Session == d.Of.ID && rec.Beat == d.Next
}

// reason returns why the term in rec ends, as its record will show it: what its holder was asked in
// the session's record, or in the lock's own, or a failure. A session's requests are for its locks.
func (d RemoteHeartbeat) reason(rec driver.Record) *driver.Request {
	if rec.State == driver.Alive {
		return nil
	}
	var asked *driver.Request
	if d.Of != nil {
		asked = d.Of.Asked
	}
	return cmp.Or(asked, AskedOf(rec), d.Failed)
}

// inSession adds to the next record of a heartbeat what it has to do with a session.
func (d RemoteHeartbeat) inSession(next *driver.Record) {
	switch {
	case d.Of == nil:
	case d.attaches():
		next.Session, next.Heartbeat = d.Of.ID, 0
	default:
		// Whether the session holds a lock ([driver.Confirm]) is no question for a remote holder: it
		// detaches each lock that it has attached, and a late attachment has no effect.
		next.Requests = slices.DeleteFunc(next.Requests, func(q driver.Request) bool {
			return !honoured(q.Kind) || slices.Contains(d.Of.Answered, q.ID)
		})
		if d.Data != nil {
			next.Data = d.Data
		}
	}
}

// SessionRequests returns the requests in a session's record that its remote holder must honour.
func SessionRequests(rec driver.Record) []driver.Request {
	var all []driver.Request
	for _, q := range rec.Requests {
		if honoured(q.Kind) && q.Lock != "" {
			all = append(all, q)
		}
	}
	return all
}

// SessionRequest returns what the record of a session asks of the holder of a lock, or nil.
func SessionRequest(session driver.Record, key string, token uint64) *driver.Request {
	return waitingFor(session, driver.Record{Key: key, Token: token})
}

// NewRemoteSessionOpener returns the machine that opens a session for a remote holder. rec has its
// owner, host, label and data, and the bound on the error of the holder's clock in Drift. The beats
// of the session begin with a secret, not with its id, which others read in the records of locks: a
// call that names a beat is its holder's. Nothing counts before the first confirmed heartbeat. A
// session that nobody renews expires.
func NewRemoteSessionOpener(t Timing, env Env, rec driver.Record, patience time.Duration) *SessionOpener {
	o := NewSessionOpener(t, env, rec, patience)
	o.rec.Drift, o.remote = max(rec.Drift, t.Drift), true
	return o
}

// SessionLook is the machine that reads the record of a remote holder's session, before a lock is
// attached to it. It answers Done with the record, HolderChanged if the session has ended or
// is another holder's, or Unusable if the store gives no answer.
type SessionLook struct {
	retrier
	id, beat string
}

// NewSessionLook returns the machine of one session; beat is any of its beats. patience is how long
// the store may give no answer.
func NewSessionLook(t Timing, env Env, id, beat string, patience time.Duration) *SessionLook {
	return &SessionLook{retrier: retrier{t: t, env: env, patience: patience}, id: id, beat: beat}
}

// Next returns the instant at which Step has something to do.
func (l *SessionLook) Next() (time.Duration, bool) { return l.next(Read, 0) }

// Step lets time pass.
func (l *SessionLook) Step(now time.Duration) Action { return Action{Call: l.act(now)} }

func (l *SessionLook) act(now time.Duration) *Call {
	if !l.due(now, Read, 0) {
		return nil
	}
	return l.send(now, 0, &Call{Kind: Read, Key: driver.SessionKey(l.id)})
}

// Reply takes the result of the call under way.
func (l *SessionLook) Reply(now time.Duration, r Result) Action {
	_, answered := l.replied(now, r)
	switch {
	case answered && r.Found && r.Record.State == driver.Alive && l.owns(r.Record):
		l.finish(Done, r.Record, nil)
	case answered && r.Found:
		l.finish(HolderChanged, r.Record, nil)
	case answered:
		l.finish(HolderChanged, driver.Record{}, nil)
	case l.spent(now):
		l.finish(Unusable, driver.Record{}, r.Err)
	}
	return Action{Call: l.act(now)}
}

// owns says whether the beat is one of the session in rec, and a secret: the beats of a session that
// a process keeps itself begin like its id.
func (l *SessionLook) owns(rec driver.Record) bool {
	secret, _, found := strings.Cut(l.beat, "-")
	return found && IsBeatOf(rec.Beat, secret) && !strings.HasPrefix(l.id, secret)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// UnconfirmedGrant is the machine of a lock that was granted to a remote holder. That holder has
// the lock from its first confirmed [RemoteHeartbeat] on; until then no process acts under it. If
// none has come within a third of the lease, the machine releases the lock, so that a program that
// went away while it waited does not cost the others a whole lease. It replaces only the granted
// beat, which a remote heartbeat through another process would change.
//
// A grant that was fast enough may be counted: see [UnconfirmedGrant.Counts]. The holder may then
// have the lock before any heartbeat, so the machine never releases it.
type UnconfirmedGrant struct {
	retrier
	rec     driver.Record
	begun   bool
	freeAt  time.Duration
	until   time.Duration // when the record has expired by itself
	givenUp bool
}

// NewUnconfirmedGrant returns the machine of a lock that was just granted.
func NewUnconfirmedGrant(t Timing, env Env, g Grant) *UnconfirmedGrant {
	return &UnconfirmedGrant{retrier: retrier{t: t, env: env}, rec: g.Record}
}

// FreeAfter returns how long a grant stays unconfirmed before it is released.
func (t Timing) FreeAfter() time.Duration { return t.Lease / 3 }

// countedPart is the part of a lease within which an acquire must be answered for its grant to be
// counted, by the clock of the holder, from before the call was sent.
const countedPart = 10

// Counts is asked just before the grant is sent to its holder, and says for how long the holder may
// act after it sent its acquire, or 0 if it must not count the grant. took is the time since the
// beginning of that call arrived. If the result is not 0, the machine is over: the holder may
// count the grant as soon as the first byte is under way, so that nobody but the holder may release
// it, even if the sending fails.
//
// A holder counts the grant only if the answer comes in less than a tenth of the lease. More time
// has certainly passed by its clock if that is slow by the record's drift, this process's clock
// is fast by its own, and still a tenth has passed. Then the grant is not to be counted, and is
// released early. Nor is it if its release may be under way.
func (o *UnconfirmedGrant) Counts(now, took time.Duration) time.Duration {
	o.begin(now)
	least := float64(took) * (1 - o.rec.Drift) / (1 + o.t.Drift)
	usable := o.t.UsableOf(o.rec)
	if o.givenUp || now >= o.freeAt || !o.idle() || least >= float64(o.rec.Lease/countedPart) || usable <= 0 {
		return 0
	}
	o.finish(HolderChanged, driver.Record{}, nil)
	return usable
}

// Taken says that a holder with the grant's token has shown life through this process, by a beat that
// follows the given one. The holder of another term is ignored: tokens restart when a record was deleted.
func (o *UnconfirmedGrant) Taken(after string) {
	if id, _, _ := strings.Cut(o.rec.Beat, "-"); IsBeatOf(after, id) {
		o.finish(HolderChanged, driver.Record{}, nil)
	}
}

// Next returns the instant at which Step has something to do.
func (o *UnconfirmedGrant) Next() (time.Duration, bool) { return o.next(Release, o.freeAt) }

// GiveUp releases the lock at once: no holder learns of the grant.
func (o *UnconfirmedGrant) GiveUp(now time.Duration) Action {
	if !o.givenUp {
		o.begin(now)
		o.givenUp, o.freeAt = true, now
	}
	return Action{Call: o.act(now)}
}

// Step lets time pass.
func (o *UnconfirmedGrant) Step(now time.Duration) Action {
	o.begin(now)
	return Action{Call: o.act(now)}
}

func (o *UnconfirmedGrant) begin(now time.Duration) {
	if !o.begun {
		o.begun, o.freeAt, o.until = true, now+o.t.FreeAfter(), now+o.t.Lease
	}
}

func (o *UnconfirmedGrant) act(now time.Duration) *Call {
	if !o.due(now, Release, o.freeAt) {
		return nil
	}
	if now >= o.until {
		o.finish(NoHolder, driver.Record{}, nil)
		return nil
	}
	next := freed(o.rec, o.env.Fresh(), driver.EndAbandoned, nil)
	return o.send(now, o.freeAt, &Call{Kind: Release, Key: o.rec.Key, Prev: o.rec, Next: next})
}

// Reply takes the result of the call under way.
func (o *UnconfirmedGrant) Reply(now time.Duration, r Result) Action {
	_, answered := o.replied(now, r)
	switch rec := r.Record; {
	case !answered: // the release is retried until the record has expired
	case r.Outcome == Conflicted && r.Found && lifeSignOf(rec) == lifeSignOf(o.rec):
		o.rec = rec // a request was written into it
	default:
		o.finish(Done, rec, nil)
	}
	return Action{Call: o.act(now)}
}

// RemoteHeartbeat is what a remote holder sends: for example, a program behind a lock service
// that has no store and makes its own beats.
//
// Key, token and the last confirmed beat identify it. A proxy may deliver it late, twice, or
// never. A heartbeat that follows an old beat finds another beat in the record, and has no
// effect. So the process that carries it out needs no state.
type RemoteHeartbeat struct {
	Key   string
	Token uint64
	After string // the beat that was confirmed last; at first, the granted one
	// Next is the beat that follows it. If empty, the holder has done its work, and the
	// lock is released.
	Next string
	// Data replaces the data in a released record, or in a session's; nil keeps them. Failed says why
	// the work has failed, nil if it has not.
	Data   []byte
	Failed *driver.Request

	// Of says what it has to do with a session; nil: nothing. See remote_session.go.
	Of *OfSession
}

// Releases says that the holder has done its work.
func (d RemoteHeartbeat) Releases() bool { return d.Next == "" || d.Of != nil && d.Of.Detaches }

// FollowsBeat says whether next may follow a beat of the same term: it begins with the
// same ID of the lease, and ends with 13 new letters or digits.
func FollowsBeat(after, next string) bool {
	id, _, found := strings.Cut(after, "-")
	n, follows := strings.CutPrefix(next, id+"-")
	if !found || !follows || next == after || len(n) != partLen {
		return false
	}
	for i := range len(n) {
		if c := n[i] | 0x20; !(c >= 'a' && c <= 'z' || n[i] >= '0' && n[i] <= '9') {
			return false
		}
	}
	return true
}

// RemoteWrite is the machine that carries out one [RemoteHeartbeat]: it swaps the record that has
// the heartbeat's beat, and answers Done, HolderChanged if the term is over, or Unusable if the
// store gives no answer. Only the store's answer confirms a remote heartbeat. The holder counts its
// lease from before it first sent the heartbeat.
//
// Another process may carry out the same heartbeat, at once or later. At most one of the writes is
// applied, because each replaces a version, and no version comes back.
type RemoteWrite struct {
	retrier
	of RemoteHeartbeat

	// seen is the record with the beat that the remote heartbeat follows, if known.
	seen  driver.Record
	known bool
}

// NewRemoteWrite returns the machine of one remote heartbeat. known is the record as it was last
// read, or zero: it saves a read if the record has not changed since. patience is how long the
// store may give no answer.
func NewRemoteWrite(t Timing, env Env, of RemoteHeartbeat, known driver.Record, patience time.Duration) *RemoteWrite {
	r := &RemoteWrite{retrier: retrier{t: t, env: env, patience: patience}, of: of}
	if of.Failed != nil {
		q := *of.Failed
		q.ID, q.Kind = env.Fresh(), driver.Fail
		r.of.Failed = &q
	}
	if r.holds(known) && r.follows(known) {
		r.seen, r.known = known, true
	}
	return r
}

// holds says whether rec shows the term of the remote heartbeat: a lock with its own lease, or,
// if the heartbeat attaches or detaches it, under that session.
func (r *RemoteWrite) holds(rec driver.Record) bool {
	if !holder(rec) || rec.Token != r.of.Token {
		return false
	}
	if rec.Session == "" {
		return !r.of.attaches() || rec.Owner == r.of.Of.Owner
	}
	return r.of.attached(rec)
}

// follows says whether the remote heartbeat replaces rec, which shows its term.
func (r *RemoteWrite) follows(rec driver.Record) bool {
	if rec.Session == "" {
		return rec.Beat == r.of.After
	}
	return r.of.Releases()
}

// done says whether rec, which shows its term, is what the remote heartbeat has led to.
func (r *RemoteWrite) done(rec driver.Record) bool {
	return rec.Beat == r.of.Next && !r.of.Releases() && r.of.attached(rec) == r.of.attaches()
}

// Next returns the instant at which Step has something to do.
func (r *RemoteWrite) Next() (time.Duration, bool) { return r.next(r.plan(), 0) }

// Step lets time pass.
func (r *RemoteWrite) Step(now time.Duration) Action { return Action{Call: r.act(now)} }

func (r *RemoteWrite) act(now time.Duration) *Call {
	kind := r.plan()
	if !r.due(now, kind, 0) {
		return nil
	}
	call := &Call{Kind: kind, Key: r.of.Key}
	if r.known {
		call.Prev, call.Next = r.seen, r.following()
		call.Prev.Life = "" // as a holder's own
	}
	return r.send(now, 0, call)
}

func (r *RemoteWrite) plan() Kind {
	switch {
	case !r.known:
		return Read
	case r.of.Releases():
		return Release
	}
	return Heartbeat
}

// following returns the record that the remote heartbeat leads to.
func (r *RemoteWrite) following() driver.Record {
	if r.of.Releases() {
		// A holder that knew of the request would write the same record.
		reason := r.of.reason(r.seen)
		next := leftFor(r.seen, r.env.Fresh(), endFor(reason), reason, r.t.Reservation())
		if r.of.Data != nil {
			next.Data = r.of.Data
		}
		return next
	}
	// Lease and drift stay as granted, whatever this process's are: the holder counts by
	// them until it learns of others, and a shorter lease would admit another holder
	// before that. The drift is that of the clock which the holder named when it acquired.
	next := r.seen.Clone()
	next.Version, next.Beat = r.of.Next, r.of.Next
	r.of.inSession(&next)
	return next
}

// AskedOf returns the request in a lock's record that its holder must honour, or nil.
func AskedOf(rec driver.Record) *driver.Request {
	if len(rec.Requests) == 0 || !honoured(rec.Requests[0].Kind) {
		return nil
	}
	q := rec.Requests[0]
	return &q
}

// Reply takes the result of the call under way.
func (r *RemoteWrite) Reply(now time.Duration, res Result) Action {
	out, answered := r.replied(now, res)
	r.known = false
	switch {
	case answered:
		r.judge(out, res)
	case r.spent(now):
		r.finish(Unusable, driver.Record{}, res.Err)
	}
	return Action{Call: r.act(now)}
}

// judge handles what the store returned about the record.
func (r *RemoteWrite) judge(out *Call, res Result) {
	rec := res.Record
	switch {
	case res.Outcome == Applied && !out.Kind.Reads():
		r.finish(Done, rec, nil)
	case !res.Found:
		r.finish(HolderChanged, driver.Record{}, nil)
	case r.of.Releases() && endedByHolder(rec, r.of.Token):
		r.finish(Done, rec, nil) // by an earlier attempt, or by another process that got the heartbeat
	case !r.holds(rec):
		r.finish(HolderChanged, rec, nil)
	case r.done(rec):
		r.finish(Done, rec, nil) // likewise
	case r.follows(rec):
		r.seen, r.known = rec, true // perhaps with a request written in between
	default:
		r.finish(HolderChanged, rec, nil)
	}
}

// endedByHolder says whether rec shows that the holder itself ended the term of that token, by a
// release.
func endedByHolder(rec driver.Record, token uint64) bool {
	end := driver.EndReason("")
	switch prev := rec.Prev; {
	case (rec.State == driver.Released || rec.State == driver.Closed) && rec.Token == token:
		end = rec.End
	case prev != nil && prev.Token == token && (rec.State == driver.Reserved || rec.Token > token):
		end = prev.End
	}
	switch end {
	case driver.EndReleased, driver.EndFailed, driver.EndSteppedDown, driver.EndHandedOver:
		return true
	}
	return false
}

// UsableOf returns how long a holder may act after it first sent the beat in rec: by the
// record's lease and drift, by which contenders wait, less this process's
// grace. Without a valid drift in rec, it takes at least DefaultDrift. The result may
// be negative if another process wrote a short lease.
func (t Timing) UsableOf(rec driver.Record) time.Duration {
	of := t
	of.Lease, of.Drift = min(rec.Lease, MaxLease), max(t.Drift, DefaultDrift)
	if rec.Drift > 0 && rec.Drift < 1 {
		of.Drift = rec.Drift
	}
	return of.Usable()
}

// HeartbeatOf returns how often the remote holder of the lock in rec sends a heartbeat.
func (t Timing) HeartbeatOf(rec driver.Record) time.Duration { return min(t.Heartbeat, rec.Lease/5) }

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// asking returns rec with a request in it and a new version. The beat stays, so that
// a request cannot prolong a dead holder's lease.
func asking(rec driver.Record, version string, q driver.Request) driver.Record {
	next := rec.Clone()
	next.Version = version
	next.Requests = append(next.Requests, q)
	return next
}

// Answer is how a machine ended.
type Answer int

// The answers.
const (
	NoAnswer      Answer = iota
	Delivered            // the request is in the record, or has been honoured already
	Done                 // the aim is reached; of a Requester: the lock has no holder any more
	NoHolder             // there is no holder to ask, or the unconfirmed grant has expired
	HolderChanged        // the term ended before the request was written; of an UnconfirmedGrant: its holder has shown life
	OtherPending         // another request came first
	Foreign              // another lock client wrote the record: it has no beat, and its writer reads no requests
	Alive                // the holder shows life: only revoking can end its term
	Self                 // the holder would hand over to itself
	Unusable             // the store failed: see Err
	Abandoned            // given up from outside
	UnderSession         // the lock is under a live session, and cannot be revoked alone
)

// ProvenCrash describes a holder that has certainly ended, and so has every process that it
// had started: for example, their parent has observed that.
type ProvenCrash struct {
	// Key is the key of the lock, or of the session's record.
	Key string
	// ID is the ID of the lease (see [Grant]), or of the session.
	ID string
	// From is when the machine may write the record. By then the dead holder's last requests
	// to the resource have ended too: they get the grace, as after an expiry. Reads may come
	// earlier.
	From time.Duration
	// Until is when the machine gives up. A lock that it has not freed expires by itself.
	Until time.Duration
}

// ErrNotProved is the error of a [Requester] whose time is up before the store has shown what
// became of a crashed holder's record.
var ErrNotProved = errors.New("the store did not show in time that the lock is free: the lock expires by itself")

var errFull = errors.New("the session's record has no room for another request")

// Requester is the machine of a process that wants something from a holder: that it
// steps down or hands over. It also releases a dead holder's lock, revokes a living
// holder's, or releases a crashed holder's.
//
// It writes a request into the record, where the holder's next heartbeat finds it. A
// dead holder's lock is released when its beat has been unchanged for its lease, just
// as it would be taken over. Revoking reserves the lock for nobody: the holder cannot
// renew from then on, and the lock is released when its lease has certainly expired. So
// no other holder begins while it may still be at work.
//
// A request to the holder of a lock under a session is written into the session's
// record. That holder is dead when its session is, and the session is closed first.
//
// The beat alone identifies the record of a crashed holder: all beats of a lease begin with
// its ID, and no others do. Owner and token prove nothing: owners may share a name, and
// tokens restart when a record was deleted. A version proves nothing either (a request changes it),
// nor does an older Tenure's beat (it has no ID). A record in any state but a holder's, such as
// released or reserved, is not the dead holder's any more. The write
// replaces the version that was read, and has a new version. So no late heartbeat of the dead
// holder can revive the record. If such a heartbeat, or a request, comes first, the machine
// reads again. It also reads again for a while if the lock has no holder: a late claim of the
// dead holder may be in flight.
type Requester struct {
	retrier
	key   string
	want  driver.Request
	crash *ProvenCrash // instead of a request
	view  *View

	before   *driver.Term  // the term before the revoked one
	lockRead bool          // the record was read since the last write of unknown outcome
	again    time.Duration // when to read again, if the last read decided nothing
	first    lifeSign      // the sign of life that was read first
	alone    bool          // the record last read shows a lease of its own
	token    uint64        // of the term in question
	tried    bool          // it has sent a write of unknown outcome
	wrote    attempts      // to the record of a crashed holder
	revoked  bool          // reserved for nobody, by this requester or another one

	// For a lock under a session:
	sessionRead bool   // the session was read since the last write of unknown outcome
	sign        string // the session's sign of life when it was read first
	full        bool   // there was no room for the request
	fullFrom    time.Duration
}

// NewRequester returns the machine of one request. The request's ID is filled in.
// patience is how long the store may fail to give any answer, 0 for ever.
func NewRequester(t Timing, env Env, key string, want driver.Request, patience time.Duration, view *View) *Requester {
	want.ID = env.Fresh()
	return &Requester{retrier: retrier{t: t, env: env, patience: patience}, key: key, want: want, view: view}
}

// NewCrashReleaser returns the machine that releases a crashed holder's lock. It relies
// only on its own reads of the lock's record.
func NewCrashReleaser(t Timing, env Env, crash ProvenCrash) *Requester {
	env.Session, env.Differs = nil, nil
	return &Requester{retrier: retrier{t: t, env: env}, key: crash.Key, crash: &crash, view: NewView(t, env)}
}

// Key returns the key of the lock.
func (k *Requester) Key() string { return k.key }

// Asked returns the request.
func (k *Requester) Asked() driver.Request { return k.want }

// Token returns the token of the term that was asked.
func (k *Requester) Token() uint64 { return k.token }

// Before returns the term before the revoked one, or nil. The record does not show it
// any more.
func (k *Requester) Before() *driver.Term { return k.before }

// Revoked says that the holder cannot renew any more, and that the requester waits for
// the end of its lease.
func (k *Requester) Revoked() bool { return k.revoked }

// Next returns the instant at which Step has something to do.
func (k *Requester) Next() (time.Duration, bool) {
	m := k.plan()
	at, due := k.next(m.kind, m.at)
	if k.crash != nil {
		at = min(at, k.crash.Until)
	}
	return at, due
}

// Step lets time pass.
func (k *Requester) Step(now time.Duration) Action { return Action{Call: k.act(now)} }

// waits says that the requester acts only when the holder is dead.
func (k *Requester) waits(rec driver.Record) bool {
	return k.want.Kind == driver.ReleaseDead ||
		k.want.Kind == driver.Revoke && (rec.State == driver.Reserved || rec.Session != "")
}

// plan returns the next move.
func (k *Requester) plan() move {
	rec, found := k.view.Record()
	switch u := k.view.under(); {
	case !k.lockRead:
		return move{kind: Read, at: k.again}
	case !k.fits(rec, found):
		return move{kind: Read} // another machine has put another state into the shared view
	case k.crash != nil:
		return move{kind: ForceRelease, at: k.crash.From}
	case u != nil:
		return k.planUnderSession(u)
	case k.waits(rec) && !k.view.Dead():
		return move{kind: Read, at: k.view.NextPoll(k.t.Refresh, k.t.Lease)}
	case k.waits(rec), k.want.Kind == driver.Revoke:
		return move{kind: ForceRelease}
	}
	return move{kind: Request}
}

// planUnderSession returns the next move if the lock is under a session.
func (k *Requester) planUnderSession(u *View) move {
	switch {
	case k.sessionRead && u.ended(k.view):
		return move{kind: ForceRelease}
	case !k.sessionRead || !u.isRead(k.view):
		return move{kind: Read, session: true, at: k.again}
	case !u.holds():
		return k.view.settles(u)
	case honoured(k.want.Kind):
		return move{kind: Request, session: true}
	case u.Dead():
		return move{kind: ForceRelease, session: true}
	}
	at := k.view.NextPoll(k.t.Refresh, k.t.Lease)
	if next := u.NextPoll(k.t.Refresh, k.t.Lease); next <= at {
		return move{kind: Read, session: true, poll: true, at: next}
	}
	return move{kind: Read, at: at}
}

func (k *Requester) act(now time.Duration) *Call {
	if k.crash != nil && k.idle() && now >= k.crash.Until {
		k.finish(Unusable, driver.Record{}, cmp.Or(k.failed, ErrNotProved))
	}
	if k.idle() {
		k.judgeSession(now)
	}
	m := k.plan()
	if !k.due(now, m.kind, m.at) {
		return nil
	}
	r := k.call(now, m)
	k.view.of(r, k.key).sends(now, r)
	return k.send(now, m.at, r)
}

// call returns the call of a move that is made now.
func (k *Requester) call(now time.Duration, m move) *Call {
	rec, _ := k.view.Record()
	r := &Call{Kind: m.kind, Key: k.key}
	view, q := k.view, k.want
	if m.session {
		view, r.Key = k.view.under(), driver.SessionKey(rec.Session)
		q.Lock, q.Token = rec.Key, rec.Token
	}
	if m.poll {
		r.Consistency = view.PollConsistency(now)
	}
	if m.kind.Reads() {
		return r
	}
	r.Prev = view.rec
	switch version := k.env.Fresh(); {
	case m.kind == Request:
		r.Next = asking(view.rec, version, q)
	case k.crash != nil:
		r.Next, r.crash = crashed(rec, version), true
		k.wrote = k.wrote.add(attempt{version: version})
	case m.session:
		r.Next = closed(view.rec, version, driver.EndExpired)
	default:
		r.Next = k.forced(rec, version)
	}
	return r
}

// forced returns the record as an operator's release leaves it.
func (k *Requester) forced(rec driver.Record, version string) driver.Record {
	asked := k.want
	if k.waits(rec) {
		return freed(rec, version, driver.EndReleasedDead, &asked)
	}
	k.before = rec.Prev
	return reserved(rec, version, reservation{}, rec.Lease, driver.EndRevoked, &asked)
}

// crashed returns the record after a crash. An end that the dead holder has written
// itself stays.
func crashed(rec driver.Record, version string) driver.Record {
	end := cmp.Or(rec.End, driver.EndCrashed)
	if rec.State == driver.Alive {
		return closed(rec, version, end)
	}
	var asked *driver.Request // a request that the dead holder did not honour
	if len(rec.Requests) > 0 {
		q := rec.Requests[0]
		asked = &q
	}
	return freed(rec, version, end, asked)
}

// IsBeatOf says whether a beat belongs to the lease, or the session, with that id.
func IsBeatOf(beat, id string) bool {
	of, _, found := strings.Cut(beat, "-")
	return found && of == id && id != ""
}

// fits says whether the requester may write to rec. If not, a read finds out the state
// of the term.
func (k *Requester) fits(rec driver.Record, found bool) bool {
	switch {
	case k.crash != nil:
		return found && holder(rec) && IsBeatOf(rec.Beat, k.crash.ID)
	case !found || rec.Token != k.token || !Readable(rec):
		return false
	case k.want.Kind == driver.ReleaseDead:
		return k.first == lifeSignOf(rec)
	case k.want.Kind == driver.Revoke && rec.State == driver.Reserved:
		return true
	case rec.Session != "":
		return k.view.under() != nil && k.first == lifeSignOf(rec)
	}
	return rec.State == driver.Held && rec.Beat != "" && (k.want.Kind == driver.Revoke || len(rec.Requests) == 0)
}

// holder says whether the record is that of a holder, or of a session that is open.
func holder(rec driver.Record) bool { return rec.State == driver.Held || rec.State == driver.Alive }

// Reply takes the result of the call under way.
func (k *Requester) Reply(now time.Duration, r Result) Action {
	out, answered := k.replied(now, r)
	switch {
	case !answered:
		k.view.of(out, k.key).missed(out)
		if r.Outcome == Unknown && !out.Kind.Reads() { // the records decide
			k.tried, k.lockRead, k.sessionRead = true, false, false
		}
		if k.spent(now) {
			k.finish(Unusable, driver.Record{}, r.Err)
		}
	case out.Key != k.key:
		k.view.of(out, k.key).Observe(k.sent, now, out.consistency(), r.Record, r.Found)
		k.sessionRead = true
	default:
		k.lockRead = true
		k.view.Observe(k.sent, now, out.consistency(), r.Record, r.Found)
		if k.crash != nil {
			k.judgeCrash(now, r.Record, r.Found)
		} else {
			k.judge(r.Record, r.Found, out.Kind == ForceRelease && r.Outcome == Applied)
		}
	}
	return Action{Call: k.act(now)}
}

// judge settles the answer if the record decides it. wrote says that this requester's own
// release has just written the record.
func (k *Requester) judge(rec driver.Record, found, wrote bool) {
	// A remote holder may attach its lock to a session in the middle of its term, as a sign of life.
	attached := k.alone && rec.Session != "" && rec.Token == k.token && k.want.Kind != driver.ReleaseDead
	if k.token == 0 || attached {
		k.first, k.token = lifeSignOf(rec), rec.Token
	}
	k.alone = rec.Session == ""
	over := !found || rec.State == driver.Released
	switch {
	case found && !Readable(rec):
		k.finish(Unusable, rec, driver.ErrUnreadable)
	case k.want.Token != 0 && k.token != k.want.Token:
		k.finish(HolderChanged, rec, nil)
	case rec.Session != "" && k.env.Session == nil:
		k.finish(Foreign, rec, nil)
	case honoured(k.want.Kind) && k.ended(rec):
		k.finish(Delivered, rec, nil)
	case !over && rec.Token == k.token:
		k.judgeHolder(rec)
	default:
		k.judgeOver(rec, over, wrote || k.revoked || k.tried && k.ended(rec))
	}
}

// judgeOver settles the answer when the term in question has ended, by this requester or
// otherwise.
func (k *Requester) judgeOver(rec driver.Record, over, ours bool) {
	switch {
	case ours:
		k.finish(Done, rec, nil) // perhaps another holder has taken the lock since
	case over:
		k.finish(NoHolder, rec, nil)
	default:
		k.finish(HolderChanged, rec, nil)
	}
}

// judgeHolder settles the answer if the record of the term in question decides it.
func (k *Requester) judgeHolder(rec driver.Record) {
	foreign, changed := rec.State == driver.Held && rec.Beat == "", lifeSignOf(rec) != k.first
	switch {
	case k.want.Kind == driver.ReleaseDead:
		if changed {
			k.finish(Alive, rec, nil)
		}
	case k.want.Kind == driver.Revoke:
		k.revoked = k.revoked || ReservedForNobody(rec) // a reservation for an owner or label is no revocation
		if foreign {
			k.finish(Foreign, rec, nil)
		}
	case rec.State != driver.Held:
		k.finish(NoHolder, rec, nil)
	case foreign:
		k.finish(Foreign, rec, nil)
	case rec.Session != "":
		if changed { // otherwise the session's record decides
			k.finish(HolderChanged, rec, nil) // the key was deleted, and its tokens restarted
		}
	case len(rec.Requests) > 0:
		k.judgeAsked(rec, &rec.Requests[0])
	default:
		k.judgeAsked(rec, nil)
	}
}

// judgeAsked settles the answer if a request is there already (waits is not nil), or if the
// holder would hand over to itself.
func (k *Requester) judgeAsked(lock driver.Record, waits *driver.Request) {
	switch {
	case waits != nil && waits.ID == k.want.ID:
		k.finish(Delivered, lock, nil)
	case waits != nil:
		lock = lock.Clone()
		lock.Requests = []driver.Request{*waits}
		k.finish(OtherPending, lock, nil)
	case k.want.Kind == driver.HandOver && reservation{k.want.To, k.want.ToLabel}.isFor(lock.Owner, lock.Label):
		k.finish(Self, lock, nil)
	}
}

// ended says whether a record shows that this request has ended a term.
func (k *Requester) ended(rec driver.Record) bool {
	mine := func(q *driver.Request) bool { return q != nil && q.ID == k.want.ID }
	return mine(rec.Asked) || rec.Prev != nil && mine(rec.Prev.Asked)
}

// judgeSession settles the answer if the session's record decides it. Other machines
// share both views, and may have read more.
func (k *Requester) judgeSession(now time.Duration) {
	u := k.view.under()
	lock, found := k.view.Record()
	if u == nil || !k.lockRead || !k.sessionRead || !k.fits(lock, found) {
		return
	}
	dead, alive := u.DeadAt()
	step := honoured(k.want.Kind)
	switch {
	case u.found && !readableSession(u.rec):
		k.finish(Unusable, u.rec, driver.ErrUnreadable)
	case u.ended(k.view):
		if step || closedInOrder(u.rec) {
			k.finish(NoHolder, lock, nil)
		}
	case !alive:
	case step:
		k.judgeAsked(lock, waitingFor(u.rec, lock))
		k.room(now, u.rec)
	case k.want.Kind == driver.Revoke:
		if now < dead { // closing a live session would free all of its locks at once
			k.finish(UnderSession, lock, nil)
		}
	default:
		k.judgeLife(lock, u)
	}
}

// judgeLife settles the answer if the session of the lock has shown life since its first
// read.
func (k *Requester) judgeLife(lock driver.Record, u *View) {
	if k.sign == "" {
		k.sign = u.rec.Sign()
	}
	if k.sign != u.rec.Sign() {
		k.finish(Alive, lock, nil)
	}
}

// room waits until the session's record has room for the request: each session
// heartbeat makes some.
func (k *Requester) room(now time.Duration, session driver.Record) {
	was := k.full
	if k.full = len(session.Requests) >= driver.MaxRequests; !k.full {
		return
	}
	if !was {
		k.fullFrom = now
	}
	d := min(k.t.Refresh, k.t.Lease/20)
	k.sessionRead, k.again = false, now+k.env.between(d/2, d)
	if k.patience > 0 && now-k.fullFrom >= k.patience {
		k.finish(Unusable, driver.Record{}, errFull)
	}
}

// judgeCrash settles the answer if the record decides it.
func (k *Requester) judgeCrash(now time.Duration, rec driver.Record, found bool) {
	_, ours := k.wrote.wrote(rec)
	switch {
	case ours && found:
		k.finish(Done, rec, nil) // perhaps by an earlier write of unknown outcome
	case found && !Readable(rec) && !rec.State.OfSession():
		k.finish(Unusable, rec, driver.ErrUnreadable)
	case k.fits(rec, found):
		k.token = rec.Token
	case found && holder(rec):
		k.finish(HolderChanged, rec, nil)
	// Twice the timeout: a call may stay out that long before the engine gives it up.
	case found && rec.State == driver.Closed, k.sent >= k.crash.From+2*k.t.RequestTimeout:
		k.finish(NoHolder, rec, nil)
	default: // a claim of the dead holder may be in flight
		k.lockRead, k.again = false, now+k.t.MinPollInterval()
	}
}

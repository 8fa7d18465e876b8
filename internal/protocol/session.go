// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// SessionHolder is the machine of a session in the process that opened it. It holds the
// session's record as any [Holder] does: its heartbeat renews the record, and it
// ends at the deadline. It also knows which locks are held and acquired under the
// session, and decides what the session's state means for the locks, and what their
// states mean for the session:
//
//   - the locks follow the session, a few at a time: they end with it, and go quiet
//     with it;
//   - the session is closed when it has ended and all work under it has returned,
//     which frees all its locks in one write;
//   - a request in its record goes to the lock that it names. A request for a lock that
//     is being acquired is kept for a lease: the lock may have been granted to an
//     acquire that does not know it yet;
//   - a lock that is held in the session's name without the session's knowledge (a
//     claim of unknown outcome was applied) is released when a request about it comes.
//     See [OrphanReleaser]. An acquire under the session that meets such a lock
//     releases it itself.
//
// The Holders of the locks ([NewUnderSession]) and the Acquirers for them
// ([Want.Under]) register and unregister themselves. All of them, and the
// OrphanReleasers, read and change the SessionHolder: they are stepped under its mutex.
type SessionHolder struct {
	*Holder // of the session's own record

	id       string
	locks    map[*Holder]struct{}         // not over
	byLock   map[string]*Holder           // the latest of each lock
	acquires map[*Acquirer]struct{}       // not over, or granted but not handed to a Holder yet
	deferred map[string]time.Duration     // requests for locks that are being acquired: since when
	orphans  map[orphanID]*OrphanReleaser // under way
	working  int                          // locks whose work has not returned
	closing  bool
	outlived bool // the engine goes on in another life: see [driver.Guarded]

	// Requests in the session's record: those that the next step of a lock will handle,
	// and the ids of the answered ones, which the next heartbeat removes.
	lockRequests map[*Holder][]driver.Request
	answered     []string

	toFollow []*Holder     // locks that have not followed yet
	moved    time.Duration // when some of them were last stepped
}

// orphanID is a lock under a token.
type orphanID struct {
	lock  string
	token uint64
}

// ofSession returns the timing of a session's own record. Its heartbeats are always
// sent in the background, and progress counts for the work under each lock.
func (t Timing) ofSession() Timing {
	t.Manual, t.Progress = false, 0
	return t
}

// NewSessionHolder returns the machine of a session that was just opened.
func NewSessionHolder(t Timing, env Env, g Grant) *SessionHolder {
	t = t.ofSession()
	return &SessionHolder{
		Holder: NewHolder(&t, &env, g), id: driver.SessionID(g.Record.Key),
		locks: map[*Holder]struct{}{}, byLock: map[string]*Holder{}, acquires: map[*Acquirer]struct{}{},
		deferred: map[string]time.Duration{}, orphans: map[orphanID]*OrphanReleaser{}, lockRequests: map[*Holder][]driver.Request{},
	}
}

// ID returns the id of the session.
func (k *SessionHolder) ID() string { return k.id }

// Locks returns how many locks are held under the session. A lock whose work is
// still stopping counts.
func (k *SessionHolder) Locks() int {
	if k.Holder.Over() {
		return 0
	}
	return len(k.locks)
}

// Open says that locks may be taken under the session now: it has not ended, and its
// deadline has not passed. The caller checks again when the lock is granted.
func (k *SessionHolder) Open(now time.Duration) bool {
	return k.Cause() == None && now < k.Deadline()
}

// Over says that there is nothing left to do: the session's own record is final, and
// all locks have followed.
func (k *SessionHolder) Over() bool {
	return k.Holder.Over() && len(k.toFollow) == 0
}

// Next returns the instant at which Step has something to do.
func (k *SessionHolder) Next() (time.Duration, bool) {
	if len(k.toFollow) > 0 {
		return k.moved, true
	}
	return k.Holder.Next()
}

// Step lets time pass.
func (k *SessionHolder) Step(now time.Duration) Action {
	if k.outlived {
		return k.Replace(now, nil)
	}
	return k.driveLocks(now, k.Holder.Step(now))
}

// Reply takes the result of the call under way.
func (k *SessionHolder) Reply(now time.Duration, r Result) Action {
	return k.driveLocks(now, k.Holder.Reply(now, r))
}

// Stop ends the session. It is closed when the work under all its locks has
// returned.
func (k *SessionHolder) Stop(now time.Duration) Action { return k.driveLocks(now, k.Holder.Stop(now)) }

// GiveUp ends a session that no caller waits for.
func (k *SessionHolder) GiveUp(now time.Duration) Action {
	if k.working > 0 || k.closing {
		return k.Stop(now)
	}
	k.closing = true
	return k.driveLocks(now, k.Holder.GiveUp(now))
}

// Expire ends the session as expired: see [Holder.Expire].
func (k *SessionHolder) Expire(now time.Duration) Action {
	return k.driveLocks(now, k.Holder.Expire(now))
}

// Replace ends the session as superseded, for good: see [Holder.Replace].
func (k *SessionHolder) Replace(now time.Duration, err error) Action {
	return k.driveLocks(now, k.Holder.Replace(now, err))
}

// Renew asks for a heartbeat at once.
func (k *SessionHolder) Renew(now time.Duration) Action {
	return k.driveLocks(now, k.Holder.Renew(now))
}

// SetData stores data in the session's record: see [Holder.SetData].
func (k *SessionHolder) SetData(now time.Duration, data []byte) (uint64, Action) {
	serial, a := k.Holder.SetData(now, data)
	return serial, k.driveLocks(now, a)
}

// followAtOnce is how many locks follow their session in one step, so that heartbeats
// and releases can run in between. See [Env.Follow].
const followAtOnce = 64

// driveLocks adds the consequences for the locks to the action of the session's own record.
func (k *SessionHolder) driveLocks(now time.Duration, a Action) Action {
	k.forget()
	if a.Call != nil && a.Call.Kind == Heartbeat {
		a.Call.Next.Requests = k.pending()
	}
	for _, n := range a.Notes {
		if n != NoteEnded && n != NoteQuiet && n != NoteOver {
			continue
		}
		k.toFollow = k.toFollow[:0]
		for h := range k.locks {
			k.toFollow = append(k.toFollow, h)
		}
		slices.SortFunc(k.toFollow, func(a, b *Holder) int {
			return cmp.Or(cmp.Compare(a.rec.Key, b.rec.Key), cmp.Compare(a.rec.Token, b.rec.Token))
		})
		break
	}
	k.moved = now
	rest := k.toFollow[:max(0, len(k.toFollow)-cmp.Or(k.env.Follow, followAtOnce))]
	for _, h := range k.toFollow[len(rest):] {
		a.Wake = append(a.Wake, h)
	}
	clear(k.toFollow[len(rest):])
	k.toFollow = rest
	k.deliver(now, &a)
	if k.working == 0 && !k.closing && k.Cause() != None {
		k.closing = true
		done := k.Done(now)
		a.Notes = append(a.Notes, done.Notes...)
		if done.Call != nil {
			a.Call = done.Call
		}
	}
	return a
}

// deliver hands the requests in the session's record to their locks.
func (k *SessionHolder) deliver(now time.Duration, a *Action) {
	kept := k.deferred
	k.deferred = map[string]time.Duration{}
	for _, q := range k.pending() {
		h := k.byLock[q.Lock]
		mine := h != nil && (q.Token == 0 || q.Token == h.rec.Token)
		since, seen := kept[q.ID]
		if !seen {
			since = now
		}
		switch {
		case !honoured(q.Kind) && q.Kind != driver.Confirm:
			// Perhaps of a later version of Tenure.
		case q.Kind == driver.Confirm: // somebody asks whether the session holds the lock
			if !mine {
				k.releaseOrphan(q, a)
			}
		case mine:
			k.lockRequests[h] = append(k.lockRequests[h], q)
			a.Wake = append(a.Wake, h)
		case k.acquiring(q.Lock) && now < since+k.t.Lease:
			k.deferred[q.ID] = since // the lock may have been granted without its acquire knowing it yet
			continue
		default:
			k.releaseOrphan(q, a) // the requester has read that the session holds the lock
		}
		k.answer(q.ID)
	}
}

// acquiring says whether an acquire under the session wants the lock.
func (k *SessionHolder) acquiring(key string) bool {
	for c := range k.acquires {
		if c.want.Key == key {
			return true
		}
	}
	return false
}

// releaseOrphan begins to release a lock that is held in the session's name, unless an
// OrphanReleaser does so already.
func (k *SessionHolder) releaseOrphan(q driver.Request, a *Action) {
	g := orphanID{q.Lock, q.Token}
	if k.orphans[g] == nil {
		d := NewOrphanReleaser(*k.t, *k.env, k, q.Lock, q.Token)
		k.orphans[g] = d
		a.Begin = append(a.Begin, d)
	}
}

// knows says whether a lease of the session holds the lock as the record shows it, or
// an acquire of the session has written the record and does not know it yet.
func (k *SessionHolder) knows(rec driver.Record) bool {
	if h := k.byLock[rec.Key]; h != nil && h.rec.Token == rec.Token {
		return true
	}
	for c := range k.acquires {
		if c.want.Key == rec.Key && c.wrote(rec) {
			return true
		}
	}
	return false
}

// enter notes the holder of a lock that was just granted.
func (k *SessionHolder) enter(h *Holder, by *Acquirer) {
	k.locks[h], k.byLock[h.rec.Key] = struct{}{}, h
	k.working++
	delete(k.acquires, by)
}

// leave forgets a lock that is over. Its work may still run, if the lock has lapsed.
func (k *SessionHolder) leave(h *Holder) {
	delete(k.locks, h)
	delete(k.lockRequests, h)
	if k.byLock[h.rec.Key] == h {
		delete(k.byLock, h.rec.Key)
	}
}

// returned notes that the work under a lock has returned. After the last one, the
// session can be closed.
func (k *SessionHolder) returned(a *Action) {
	if k.working--; k.working == 0 && k.Cause() != None {
		a.Wake = append(a.Wake, k)
	}
}

// answer marks a request in the session's record as answered. The next heartbeat
// removes it.
func (k *SessionHolder) answer(id string) { k.answered = append(k.answered, id) }

// SessionRequests returns the requests from the session's record that the next step will
// handle.
func (h *Holder) SessionRequests() []driver.Request {
	if h.under == nil {
		return nil
	}
	return h.under.lockRequests[h]
}

// pending returns the unanswered requests in the session's record.
func (k *SessionHolder) pending() []driver.Request {
	var left []driver.Request
	for _, q := range k.rec.Requests {
		if !slices.Contains(k.answered, q.ID) {
			left = append(left, q)
		}
	}
	return left
}

// forget drops the ids of answered requests that have left the record.
func (k *SessionHolder) forget() {
	k.answered = slices.DeleteFunc(k.answered, func(id string) bool {
		return !slices.ContainsFunc(k.rec.Requests, func(q driver.Request) bool { return q.ID == id })
	})
}

// SessionOpener is the machine that opens a session: it claims a record under a new id, and
// is done when it knows that the claim was applied. If it cannot learn that, it abandons the
// id for good: a late duplicate of the claim may still open that session, and no lock may
// name a session that other processes may have found dead.
type SessionOpener struct {
	retrier
	rec    driver.Record // the record of a session of this process
	try    attempt       // the claim of the current id
	lost   bool          // its outcome is unknown
	remote bool          // it is for a holder in another process

	grant *Grant
}

// NewSessionOpener returns the machine of one session. rec has its owner, host, label
// and data. patience is how long the store may fail to give any answer, 0 for ever.
func NewSessionOpener(t Timing, env Env, rec driver.Record, patience time.Duration) *SessionOpener {
	t = t.ofSession()
	rec.State, rec.Token, rec.Lease, rec.Heartbeat, rec.Drift = driver.Alive, 1, t.Lease, t.Heartbeat, t.Drift
	return &SessionOpener{retrier: retrier{t: t, env: env, patience: patience}, rec: rec}
}

// Granted returns the session, once it is open.
func (o *SessionOpener) Granted() (Grant, bool) {
	if o.grant == nil {
		return Grant{}, false
	}
	return *o.grant, true
}

// Err returns why the machine ended without a session.
func (o *SessionOpener) Err() error { return o.err }

// Next returns the instant at which Step has something to do.
func (o *SessionOpener) Next() (time.Duration, bool) { return o.next(o.plan(), 0) }

// Step lets time pass.
func (o *SessionOpener) Step(now time.Duration) Action { return Action{Call: o.act(now)} }

func (o *SessionOpener) plan() Kind {
	if o.lost {
		return Read
	}
	return Claim
}

func (o *SessionOpener) act(now time.Duration) *Call {
	kind := o.plan()
	if !o.due(now, kind, 0) {
		return nil
	}
	if kind == Read {
		return o.send(now, 0, &Call{Kind: Read, Key: o.rec.Key})
	}
	id := o.env.Fresh()
	version := o.env.beatOf(id)
	if o.remote {
		version = o.env.beatOf(o.env.part())
	}
	o.rec.Key = driver.SessionKey(id)
	o.rec.Version, o.rec.Beat = version, version
	o.try = attempt{kind: Claim, version: version, sent: now, countsFrom: o.env.lease(now)}
	return o.send(now, 0, &Call{Kind: Claim, Key: o.rec.Key, Next: o.rec.Clone()})
}

// Reply takes the result of the call under way.
func (o *SessionOpener) Reply(now time.Duration, r Result) Action {
	_, answered := o.replied(now, r)
	switch {
	case answered:
		if r.Found && r.Record.State == driver.Alive && o.try.wrote(r.Record) && now < o.try.sent+o.t.Usable() {
			o.grant = &Grant{ID: driver.SessionID(r.Record.Key), Record: r.Record, Sent: o.try.countsFrom}
			o.finish(Done, r.Record, nil)
		}
		o.lost = false // without a grant, the next claim has another id
	case o.spent(now):
		o.finish(Unusable, driver.Record{}, r.Err)
	default:
		o.lost = o.lost || r.Outcome == Unknown
	}
	return Action{Call: o.act(now)}
}

// OrphanReleaser is the machine that releases an orphan: a lock that is held in the
// session's name without the session's knowledge, because a claim of unknown outcome,
// or a late duplicate of a claim, was applied. The session's heartbeats would keep that
// lock for ever.
type OrphanReleaser struct {
	retrier
	of    *SessionHolder
	key   string
	token uint64

	rec      driver.Record
	isOrphan bool
}

// NewOrphanReleaser returns the machine for one lock under one token. After each read it
// checks whether a lease of the session holds the lock as the record shows it, or an
// acquire of the session has written that record. An acquire that begins later cannot
// own it: a version grants a lock only to the acquire that wrote it.
func NewOrphanReleaser(t Timing, env Env, of *SessionHolder, key string, token uint64) *OrphanReleaser {
	return &OrphanReleaser{retrier: retrier{t: t, env: env}, of: of, key: key, token: token}
}

// Key returns the name of the lock.
func (d *OrphanReleaser) Key() string { return d.key }

// Over says that nothing is left to release: the session does not hold the lock under
// the token, knows of the lock, or is itself over.
func (d *OrphanReleaser) Over() bool { return d.out == nil && d.ended() }

func (d *OrphanReleaser) ended() bool { return d.answer != NoAnswer || d.of.Holder.Over() }

// GiveUp ends the machine from outside.
func (d *OrphanReleaser) GiveUp(time.Duration) Action {
	d.ends(Abandoned)
	return Action{}
}

func (d *OrphanReleaser) ends(a Answer) {
	d.finish(a, d.rec, nil)
	delete(d.of.orphans, orphanID{d.key, d.token})
}

// Next returns the instant at which Step has something to do.
func (d *OrphanReleaser) Next() (time.Duration, bool) {
	at, due := d.next(d.plan(), 0)
	return at, due && !d.ended()
}

// Step lets time pass.
func (d *OrphanReleaser) Step(now time.Duration) Action { return Action{Call: d.act(now)} }

func (d *OrphanReleaser) plan() Kind {
	if d.isOrphan {
		return Release
	}
	return Read
}

func (d *OrphanReleaser) act(now time.Duration) *Call {
	kind := d.plan()
	if d.ended() || !d.due(now, kind, 0) {
		return nil
	}
	r := &Call{Kind: kind, Key: d.key}
	if kind == Release {
		r.Prev, r.Next = d.rec, freed(d.rec, d.env.Fresh(), driver.EndAbandoned, nil)
	}
	return d.send(now, 0, r)
}

// Reply takes the result of the call under way. However long the store fails, the machine
// goes on: while the session lives, no other process may release the lock.
func (d *OrphanReleaser) Reply(now time.Duration, r Result) Action {
	_, answered := d.replied(now, r)
	d.rec = r.Record
	d.isOrphan = answered && r.Found && d.rec.State == driver.Held && d.rec.Session == d.of.id &&
		d.rec.Token == d.token && !d.of.knows(d.rec)
	if answered && !d.isOrphan { // without an answer, a read finds out whether the release was applied
		d.ends(Done)
	}
	return Action{Call: d.act(now)}
}

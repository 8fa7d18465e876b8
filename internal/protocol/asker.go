// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
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

// Answer says what an asker found.
type Answer int

// The answers.
const (
	NoAnswer  Answer = iota
	Laid             // the request is in the record, or has been honoured already
	Done             // an operator's release: nobody holds the lock any more
	Nobody           // there is no holder to ask
	Changed          // the tenure ended before the request was written
	Pending          // another request came first
	Foreign          // the holder does not understand requests
	Alive            // the holder shows life: only revoking can end its tenure
	Self             // the holder would hand over to itself
	Unusable         // the store failed: see Err
	Abandoned        // given up from outside
	Sessioned        // the lock is under a session that lives, and cannot be cut off alone
)

// Asker is the machine of a process that wants something from a holder: to step
// down or to hand over, to have a dead holder's lock released, or to revoke the lock
// of a living one.
//
// It writes a request into the record, where the holder's next heartbeat finds it. A
// dead holder's lock is released when its beat has been unchanged for its lease, just
// as it would be taken over. To revoke is to reserve the lock for nobody: the holder
// cannot renew from then on, and the lock is released when its lease has certainly
// run out. So no other holder begins while it may still be at work.
//
// A request to the holder of a lock under a session is written into the session's
// record. That holder is dead when its session is, and the session is closed first.
type Asker struct {
	t        Timing
	env      Env
	key      string
	want     driver.Request
	patience time.Duration
	sight    *Sight

	before  *driver.Tenure // the one before a tenure that was revoked
	looked  bool
	first   life   // what was seen at first
	token   uint64 // of the tenure that is asked
	tried   bool   // it has made a write of unknown outcome
	resolve bool   // a look must tell what became of it
	revoked bool   // reserved for nobody, by this asker or another one

	// Of a lock under a session:
	met      bool   // the session was read, and since the last write of unknown outcome
	sign     string // the session's sign of life when it was read first
	full     bool   // there was no room for the request
	beaten   int    // how often its request lost the race to another write
	fullFrom time.Duration

	quest
}

// NewAsker returns the machine of one request. Its ID is filled in. Patience is
// how long the store may fail to give any answer, 0 for ever.
func NewAsker(t Timing, env Env, key string, want driver.Request, patience time.Duration, sight *Sight) *Asker {
	want.ID = env.Fresh()
	return &Asker{t: t, env: env, key: key, want: want, patience: patience, sight: sight}
}

// Asked returns the request.
func (k *Asker) Asked() driver.Request { return k.want }

// Token returns the token of the tenure that was asked.
func (k *Asker) Token() uint64 { return k.token }

// Before returns the tenure before the one that was revoked, nil if there was
// none. The record does not show it any more.
func (k *Asker) Before() *driver.Tenure { return k.before }

// Revoked says that the holder cannot renew any more, and that the asker waits for
// the end of its lease.
func (k *Asker) Revoked() bool { return k.revoked }

// Next returns the instant at which Step has something to do.
func (k *Asker) Next() (time.Duration, bool) {
	if k.out != nil || k.Over() {
		return 0, false
	}
	_, at := k.plan()
	return at, true
}

// Step lets time pass.
func (k *Asker) Step(now time.Duration) Action { return Action{Call: k.act(now)} }

// waits says that the asker acts only when the holder is dead.
func (k *Asker) waits(rec driver.Record) bool {
	return k.want.Kind == driver.ReleaseDead || k.want.Kind == driver.Revoke && (rec.State == driver.Reserved || rec.Session != "")
}

// plan returns the next move and when it is due.
func (k *Asker) plan() (Kind, time.Duration) {
	if !k.looked || k.resolve {
		return Look, k.retry
	}
	if u := k.sight.under(); u != nil {
		return k.planTied(u)
	}
	rec, _ := k.sight.Record()
	if !k.waits(rec) {
		if k.want.Kind == driver.Revoke {
			return Free, k.retry
		}
		return Ask, k.retry
	}
	if k.sight.Dead() {
		return Free, k.retry
	}
	return Look, max(k.sight.NextPoll(k.t.Refresh, k.t.Lease), k.retry)
}

func (k *Asker) act(now time.Duration) *Call {
	if k.out != nil || k.answer != NoAnswer {
		return nil
	}
	if k.judgeSession(now); k.answer != NoAnswer {
		return nil
	}
	kind, at := k.plan()
	if now < at {
		return nil
	}
	rec, found := k.sight.Record()
	if kind != Look && !k.fits(rec, found) {
		kind = Look // other machines share the sight, and have seen more, or an old state
	}
	r := &Call{Kind: kind, Key: k.key, Prev: rec}
	switch asked := k.want; {
	case kind == Look:
		r.Prev = driver.Record{}
	case rec.Session != "" && kind != Free:
		k.askSession(r, k.sight.under(), now)
	case kind == Ask:
		r.Next = asking(rec, k.env.Fresh(), asked)
	case k.waits(rec):
		r.Next = freed(rec, k.env.Fresh(), driver.EndReleasedDead, &asked)
	default:
		r.Next = reserved(rec, k.env.Fresh(), heir{}, rec.Lease, driver.EndRevoked, &asked)
		k.before = rec.Prev
	}
	k.out, k.sent = r, now
	k.sightOf(r).sends(now, r)
	return r
}

// fits says whether the asker may write upon rec. If not, a look tells what has
// become of the tenure.
func (k *Asker) fits(rec driver.Record, found bool) bool {
	switch {
	case !found || rec.Token != k.token || !Readable(rec):
		return false
	case k.want.Kind == driver.ReleaseDead:
		return k.first == lifeOf(rec)
	case k.want.Kind == driver.Revoke && rec.State == driver.Reserved:
		return true
	case rec.Session != "":
		return k.sight.under() != nil && k.first == lifeOf(rec)
	}
	return rec.State == driver.Held && rec.Beat != "" && (k.want.Kind == driver.Revoke || len(rec.Requests) == 0)
}

// Reply takes the result of the call under way.
func (k *Asker) Reply(now time.Duration, r Result) Action {
	out := k.out
	k.out = nil
	switch {
	case out.OfSession():
		k.replySession(now, out, r)
	case r.Outcome == Applied, r.Outcome == Conflicted:
		k.heard(now, out)
		if out.Kind == Look {
			k.resolve = false
		}
		k.looked = true
		k.sight.Saw(k.sent, now, out.fresh(), r.Record, r.Found)
		k.judge(r.Record, r.Found, out.Kind == Free && r.Outcome == Applied)
		k.pause(now)
	default:
		k.sight.missed(out)
		if out.Kind != Look && r.Outcome == Unknown {
			k.unheard++
			k.tried, k.resolve = true, true
		}
		k.fail(now, k.t, k.env, k.patience, r.Err)
	}
	return Action{Call: k.act(now)}
}

// sightOf returns the sight of the record that a call is about.
func (k *Asker) sightOf(r *Call) *Sight {
	if r.OfSession() {
		return k.env.Session(driver.SessionID(r.Key))
	}
	return k.sight
}

// heard notes an answer. A look that tells what became of a write is not the write's
// answer.
func (k *Asker) heard(now time.Duration, out *Call) {
	k.failures, k.retry = 0, now
	if !out.Kind.Reads() {
		k.unheard = 0
	}
	if k.unheard == 0 {
		k.mute = false
	}
}

// pause puts off a write if those before it were not answered: a store that answers
// only reads is no better than a mute one.
func (k *Asker) pause(now time.Duration) {
	if kind, at := k.plan(); at > now {
		k.unheard, k.mute = 0, false
	} else if k.unheard > 1 && !kind.Reads() {
		k.retry = now + k.t.backoff(k.env, k.unheard)
	}
}

// judge settles the answer if the record decides it. Wrote says that this asker's own
// release has just written the record.
func (k *Asker) judge(rec driver.Record, found, wrote bool) {
	if found && !Readable(rec) {
		k.settle(Unusable, rec, driver.ErrUnreadable)
		return
	}
	seen := lifeOf(rec)
	if k.token == 0 {
		k.first, k.token = seen, rec.Token
	}
	switch {
	case rec.Session != "" && k.env.Session == nil:
		k.settle(Foreign, rec, nil)
	case k.laid(rec):
		k.settle(Laid, rec, nil)
	case !found, rec.State == driver.Released:
		if k.revoked || wrote || k.tried && k.freed(rec) {
			k.settle(Done, rec, nil)
		} else {
			k.settle(Nobody, rec, nil)
		}
	case rec.Token != k.token && (k.revoked || k.tried && k.ended(rec.Prev)):
		k.settle(Done, rec, nil) // another holder took the lock when it was free
	case rec.Token != k.token:
		k.settle(Changed, rec, nil)
	case k.want.Kind == driver.ReleaseDead:
		if seen != k.first {
			k.settle(Alive, rec, nil)
		}
	case k.want.Kind == driver.Revoke:
		k.revoked = k.revoked || KeptForNobody(rec) // a reservation for somebody is no revocation
		if rec.State == driver.Held && rec.Beat == "" {
			k.settle(Foreign, rec, nil)
		}
	case rec.State != driver.Held:
		k.settle(Nobody, rec, nil)
	case rec.Beat == "":
		k.settle(Foreign, rec, nil)
	case rec.Session != "" && seen != k.first:
		k.settle(Changed, rec, nil) // the key was deleted, and its tokens began again
	case rec.Session != "": // the session's record will tell
	case len(rec.Requests) > 0:
		k.settle(Pending, rec, nil)
	case k.toItself(rec):
		k.settle(Self, rec, nil)
	}
}

// toItself says that the holder would hand over to itself, or to its own label.
func (k *Asker) toItself(held driver.Record) bool {
	return k.want.Kind == driver.HandOver && heir{k.want.To, k.want.ToLabel}.is(held.Owner, held.Label)
}

// laid says whether the record shows the request, either pending or as the reason for
// the end of the tenure.
func (k *Asker) laid(rec driver.Record) bool {
	for _, q := range rec.Requests {
		if q.ID == k.want.ID {
			return true
		}
	}
	step := k.want.Kind == driver.StepDown || k.want.Kind == driver.HandOver
	return step && (k.freed(rec) || k.ended(rec.Prev))
}

// ended says whether this request ended the tenure.
func (k *Asker) ended(t *driver.Tenure) bool {
	return t != nil && t.Asked != nil && t.Asked.ID == k.want.ID
}

// freed says whether the record shows that this request ended its tenure.
func (k *Asker) freed(rec driver.Record) bool {
	return rec.Asked != nil && rec.Asked.ID == k.want.ID
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

var errFull = errors.New("the session's record has no room for another request")

// planTied returns the next move, and when it is due, if the lock is under a
// session.
func (k *Asker) planTied(u *Sight) (Kind, time.Duration) {
	_, alive := u.DeadAt()
	switch {
	case k.met && u.ended(k.sight.term):
		return Free, k.retry
	case !k.met || !alive:
		return Peek, k.retry
	case honoured(k.want.Kind):
		return Ask, k.retry
	case u.Dead():
		return Close, k.retry
	}
	kind, at := Look, k.sight.NextPoll(k.t.Refresh, k.t.Lease)
	if next := u.NextPoll(k.t.Refresh, k.t.Lease); next <= at {
		kind, at = Peek, next
	}
	return kind, max(at, k.retry)
}

// askSession fills in a call about the session of the lock.
func (k *Asker) askSession(r *Call, u *Sight, now time.Duration) {
	rec, _ := k.sight.Record()
	r.Key, r.Prev = driver.SessionKey(rec.Session), u.rec
	switch r.Kind {
	case Peek:
		r.Prev = driver.Record{}
		if _, alive := u.DeadAt(); alive && k.met {
			r.Consistency = u.How(now)
		}
	case Close:
		r.Next = closed(u.rec, k.env.Fresh(), driver.EndExpired)
	case Ask:
		q := k.want
		q.Lock, q.Token = rec.Key, rec.Token
		r.Next = asking(u.rec, k.env.Fresh(), q)
	}
}

// replySession takes the answer to a call about the session.
func (k *Asker) replySession(now time.Duration, out *Call, r Result) {
	switch r.Outcome {
	case Applied, Conflicted:
		k.heard(now, out)
		u := k.env.Session(driver.SessionID(out.Key))
		u.Saw(k.sent, now, out.fresh(), r.Record, r.Found)
		k.met = true
		if out.Kind == Ask && r.Outcome == Conflicted {
			// The write lost the race to a heartbeat or to another request. Where many
			// processes ask, the heartbeats must get through.
			if k.beaten > 0 {
				k.retry = now + k.t.backoff(k.env, k.beaten)
			}
			k.beaten++
			return
		}
		k.pause(now)
	default:
		k.sightOf(out).missed(out)
		if !out.Kind.Reads() && r.Outcome == Unknown {
			k.unheard++
			k.tried, k.resolve, k.met = true, true, false // the records of both tell
		}
		k.fail(now, k.t, k.env, k.patience, r.Err)
	}
}

// judgeSession settles the answer if the session's record decides it. Other machines
// share both sights, and may have seen more.
func (k *Asker) judgeSession(now time.Duration) {
	u := k.sight.under()
	lock, found := k.sight.Record()
	if u == nil || !k.met || k.resolve || !k.fits(lock, found) {
		return
	}
	if u.found && (!u.rec.State.OfSession() || u.rec.Lease <= 0) {
		k.settle(Unusable, u.rec, driver.ErrUnreadable)
		return
	}
	asked := waitingFor(u.rec, lock)
	dead, alive := u.DeadAt()
	if k.sign == "" && alive {
		k.sign = u.rec.Sign()
	}
	switch step := honoured(k.want.Kind); {
	case u.ended(k.sight.term):
		inOrder := u.found && u.rec.End != driver.EndExpired
		if step || inOrder {
			k.settle(Nobody, lock, nil)
		}
	case !alive:
	case step && asked != nil && asked.ID == k.want.ID:
		k.settle(Laid, lock, nil)
	case step && asked != nil:
		lock = lock.Clone()
		lock.Requests = []driver.Request{*asked}
		k.settle(Pending, lock, nil)
	case k.toItself(lock):
		k.settle(Self, lock, nil)
	case step:
		k.room(now, u.rec)
	case k.want.Kind == driver.ReleaseDead && k.sign != "" && u.rec.Sign() != k.sign:
		k.settle(Alive, lock, nil)
	case k.want.Kind == driver.Revoke && now < dead:
		// Closing a live session would free all of its locks at once.
		k.settle(Sessioned, lock, nil)
	}
}

// room waits until the session's record has room for the request: each of its
// heartbeats makes some.
func (k *Asker) room(now time.Duration, session driver.Record) {
	was := k.full
	if k.full = len(session.Requests) >= driver.MaxRequests; !k.full {
		return
	}
	if !was {
		k.fullFrom = now
	}
	d := min(k.t.Refresh, k.t.Lease/20)
	k.met, k.retry = false, now+k.env.between(d/2, d)
	if k.patience > 0 && now-k.fullFrom >= k.patience {
		k.settle(Unusable, driver.Record{}, errFull)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Observer is the machine of a process that wants to know who holds a lock, without
// waiting for it. While it is wanted, it reads the record, and the record of the
// session under which the lock is. What it finds is in the [Sight].
//
// It looks when the sight says so: cheaply where that will do, strongly after a hint.
// It rests after each look, whatever that has shown. All Observers of a process share
// a look at one session.
type Observer struct {
	t     Timing
	env   Env
	key   string
	sight *Sight

	wanted   bool
	out      *Call
	sent     time.Duration
	joined   bool          // waits for another one's look at the session
	answered time.Duration // when the latest look had ended
	looks    int           // that have ended
	err      error         // of the latest one
}

// NewObserver returns the machine of one lock. It does nothing before it is wanted.
func NewObserver(t Timing, env Env, key string, sight *Sight) *Observer {
	return &Observer{t: t, env: env, key: key, sight: sight}
}

// Want says whether this machine has to look: somebody wants to know, and no other
// machine of the process looks. A look that is under way goes on.
func (o *Observer) Want(yes bool) { o.wanted = yes }

// Hint says that the record may have changed in a way that matters. A look that is
// under way may have been too early: there will be another one.
func (o *Observer) Hint(now time.Duration) Action {
	o.sight.Hint()
	return o.Step(now)
}

// Looks returns how many looks have ended, and the error of the latest one.
func (o *Observer) Looks() (n int, err error) { return o.looks, o.err }

// GiveUp says that nobody wants to know any more.
func (o *Observer) GiveUp(time.Duration) Action {
	o.wanted = false
	return Action{}
}

// Over says that the observer sends nothing more, unless it is wanted again.
func (o *Observer) Over() bool { return !o.wanted && o.out == nil }

// busy says that a look is under way.
func (o *Observer) busy() bool { return o.out != nil || o.joined }

// Next returns the instant at which Step has something to do.
func (o *Observer) Next() (time.Duration, bool) {
	if !o.wanted || o.busy() {
		return 0, false
	}
	return o.next(), true
}

// next returns when the record is to be read again, or that of the session. After a failure it
// rests.
func (o *Observer) next() time.Duration {
	next := o.nextLook()
	if u := o.session(); u != nil {
		next = min(next, u.NextPoll(o.t.Refresh, o.t.Lease))
	}
	if o.err != nil {
		next = max(next, o.answered+o.t.Pause())
	}
	return next
}

func (o *Observer) nextLook() time.Duration {
	refresh := o.t.Refresh
	if _, holds := o.sight.DeadAt(); !holds || o.sight.Dead() {
		// A watch does not report the claim of a free lock. So looks must find it,
		// however long the refresh period is.
		refresh = min(refresh, o.t.Lease/5)
	}
	return o.sight.NextPoll(refresh, o.t.Lease)
}

// session returns the sight of the session of the lock, nil if that says nothing more.
func (o *Observer) session() *Sight {
	if o.sight.Ended() {
		return nil
	}
	return o.sight.under()
}

// Step lets time pass.
func (o *Observer) Step(now time.Duration) Action {
	switch {
	case !o.wanted || o.busy() || now < o.next():
		return Action{}
	case now < o.nextLook():
		return Action{Call: o.peek(now)}
	}
	o.out, o.sent = &Call{Kind: Look, Key: o.key, Consistency: o.sight.How(now)}, now
	o.sight.sends(now, o.out)
	return Action{Call: o.out}
}

// Reply takes the result of the call under way.
func (o *Observer) Reply(now time.Duration, r Result) Action {
	out := o.out
	o.out = nil
	var a Action
	switch {
	case out.OfSession():
		u := o.env.Session(driver.SessionID(out.Key))
		if r.Err == nil {
			u.Saw(o.sent, now, out.Consistency, r.Record, r.Found)
		} else {
			u.missed(out)
		}
		o.end(now, r.Err)
		for _, other := range u.joined {
			other.joined = false
			other.end(now, r.Err)
			a.Wake = append(a.Wake, other)
		}
		u.joined, u.observed = nil, false
	case r.Err != nil:
		o.sight.missed(out)
		o.end(now, r.Err)
	default:
		o.sight.Saw(o.sent, now, out.Consistency, r.Record, r.Found)
		if a.Call = o.peek(now); a.Call == nil && !o.joined {
			o.end(now, nil) // otherwise the session's record says when to look again
		}
	}
	if a.Call == nil {
		a.Call = o.Step(now).Call
	}
	return a
}

// peek returns a look at the session of the lock, if one is due and no other Observer
// makes it.
func (o *Observer) peek(now time.Duration) *Call {
	u := o.session()
	if u == nil || !o.wanted {
		return nil
	}
	_, found := u.Record()
	if found && u.NextPoll(o.t.Refresh, o.t.Lease) > now {
		return nil
	}
	if u.observed {
		o.joined = true
		u.joined = append(u.joined, o)
		return nil
	}
	u.observed = true
	o.out, o.sent = &Call{Kind: Peek, Key: driver.SessionKey(o.sight.rec.Session), Consistency: u.How(now)}, now
	if !found {
		o.out.Consistency = driver.Strong // it has not been seen, or was not there before the lock was held under it
	}
	u.sends(now, o.out)
	return o.out
}

// end notes that a look has ended.
func (o *Observer) end(now time.Duration, err error) {
	o.looks++
	o.answered, o.err = now, err
}

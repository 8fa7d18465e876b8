// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Observer is the machine of a process that wants to know who holds a lock, without
// waiting for it. While it is wanted, it reads the record, and the record of the
// session under which the lock is held. What it finds is in the [View].
//
// It reads when the view says so: cheaply where that is enough, strongly after a hint.
// It pauses after each read, whatever that has shown. All Observers of a process share
// the reads of one session.
type Observer struct {
	t    Timing
	env  Env
	key  string
	view *View

	wanted   bool
	out      *Call
	sent     time.Duration
	answered time.Duration // when the latest read had ended
	reads    int           // reads that have ended
	err      error         // of the latest one
}

// NewObserver returns the machine of one lock. It does nothing before it is wanted.
func NewObserver(t Timing, env Env, key string, view *View) *Observer {
	return &Observer{t: t, env: env, key: key, view: view}
}

// Want says whether this machine has to read: a caller observes the lock, and no other
// machine of the process reads the record. A read that is under way goes on.
func (o *Observer) Want(yes bool) { o.wanted = yes }

// Hint says that the record may have changed. A read that is under way may have been
// too early, so another one follows.
func (o *Observer) Hint(now time.Duration) Action {
	o.view.Hint()
	return o.Step(now)
}

// Looks returns how many reads have ended, and the error of the latest one.
func (o *Observer) Looks() (n int, err error) { return o.reads, o.err }

// GiveUp says that no caller observes the lock any more.
func (o *Observer) GiveUp(time.Duration) Action {
	o.wanted = false
	return Action{}
}

// Over says that the observer sends nothing more, unless it is wanted again.
func (o *Observer) Over() bool { return !o.wanted && o.out == nil }

// Next returns the instant at which Step has something to do.
func (o *Observer) Next() (time.Duration, bool) {
	if !o.wanted || o.out != nil {
		return 0, false
	}
	return o.plan().at, true
}

// plan returns the next read: of the lock's record, or of the session's if that is due first.
// After a failure it pauses.
func (o *Observer) plan() move {
	refresh := o.t.Refresh
	if _, holds := o.view.DeadAt(); !holds || o.view.Dead() {
		// A watch does not report the claim of a free lock. So reads must find it, however
		// long the refresh period is.
		refresh = min(refresh, o.t.Lease/5)
	}
	m := move{kind: Read, at: o.view.NextPoll(refresh, o.t.Lease)}
	if u := o.view.under(); u != nil && !o.view.Ended() {
		if at := u.NextPoll(o.t.Refresh, o.t.Lease); at <= m.at {
			m.session, m.at = true, at
		}
	}
	if o.err != nil {
		m.at = max(m.at, o.answered+o.t.MinPollInterval())
	}
	return m
}

// Step lets time pass.
func (o *Observer) Step(now time.Duration) Action {
	if !o.wanted || o.out != nil {
		return Action{}
	}
	m := o.plan()
	if now < m.at {
		return Action{}
	}
	r, view := &Call{Kind: Read, Key: o.key}, o.view
	if m.session {
		r.Key, view = driver.SessionKey(o.view.rec.Session), o.view.under()
	}
	if !m.session || view.found { // otherwise read strongly: the absence may be older than the lock's grant
		r.Consistency = view.PollConsistency(now)
	}
	view.sends(now, r)
	o.out, o.sent = r, now
	return Action{Call: r}
}

// Reply takes the result of the call under way.
func (o *Observer) Reply(now time.Duration, r Result) Action {
	out := o.out
	o.out = nil
	if view := o.view.of(out, o.key); r.Err != nil {
		view.missed(out)
	} else {
		view.Observe(o.sent, now, out.Consistency, r.Record, r.Found)
	}
	o.reads++
	o.answered, o.err = now, r.Err
	return o.Step(now)
}

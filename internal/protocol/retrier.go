// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// retrier paces the calls of a machine, one at a time, until the machine has its answer.
//
// A call without an answer is retried after a pause that grows with each failure, longer if
// the store throttled the call. A write that loses a race is retried at once; if it loses
// repeatedly, a pause lets the others through. Patience counts from the sending of the first
// call that was not answered. A store that answers no writes counts as silent: after two
// unanswered ones the next write waits, whatever reads show. The silence ends when the
// store answers a write, or when the machine has nothing to send for a while.
//
// Reads have their own capacity: after an overloaded store has refused a write, the machine
// may read at once, and write after the longer pause.
//
// A [Holder] has no retrier: how it retries depends on the time that it has left.
type retrier struct {
	t        Timing
	env      Env
	patience time.Duration // how long the store may give no answer, 0 for ever

	out  *Call         // under way
	sent time.Duration // when it was made

	retry            time.Duration // no call is sent before this,
	writeAt          time.Duration // and no write before this
	failures         int           // calls in a row without an answer
	unansweredWrites int           // writes in a row without an answer
	races            int           // writes in a row that lost to another one
	mute             bool          // the store gives no answer,
	silent           time.Duration // since when
	failed           error         // the store's error

	answer  Answer
	because driver.Record // the record that led to the answer
	err     error
}

// Answer returns the answer (NoAnswer until the machine has one), the record that led to it,
// and the error of the store. A [Reaper] answers Done or NoHolder if the record is gone,
// Alive if the session has shown life, Unusable if the record is unreadable or the store has
// given no answer for a lease, Abandoned if it was given up.
func (q *retrier) Answer() (Answer, driver.Record, error) { return q.answer, q.because, q.err }

// Over says that the machine sends nothing more.
func (q *retrier) Over() bool { return q.answer != NoAnswer && q.out == nil }

// GiveUp ends the machine from outside. A written request stays, and so does a session's
// record: an open session then has no user and expires.
func (q *retrier) GiveUp(time.Duration) Action {
	q.finish(Abandoned, driver.Record{}, nil)
	return Action{}
}

func (q *retrier) finish(a Answer, rec driver.Record, err error) {
	if q.answer == NoAnswer {
		q.answer, q.because, q.err = a, rec, err
	}
}

// idle says that the machine has no call under way, and no answer.
func (q *retrier) idle() bool { return q.out == nil && q.answer == NoAnswer }

// next returns when the machine may make the call that it wants to make at the given
// instant.
func (q *retrier) next(kind Kind, at time.Duration) (time.Duration, bool) {
	if at = max(at, q.retry); !kind.Reads() {
		at = max(at, q.writeAt)
	}
	return at, q.idle()
}

// due says that the machine may make that call now.
func (q *retrier) due(now time.Duration, kind Kind, at time.Duration) bool {
	at, idle := q.next(kind, at)
	return idle && now >= at
}

// send makes a call now; at is when the machine wanted to make it.
func (q *retrier) send(now, at time.Duration, r *Call) *Call {
	if q.failures == 0 && at > q.retry { // it had nothing to send before
		q.clearFailures(now)
	}
	q.out, q.sent = r, now
	return r
}

// clearFailures forgets lost races and unanswered calls, so that they do not count for the next
// write: the store has answered, and the machine has nothing to write for a while.
func (q *retrier) clearFailures(now time.Duration) {
	q.unansweredWrites, q.races, q.writeAt, q.mute, q.failed = 0, 0, now, false, nil
}

// replied takes the result of the call under way. It returns the call, and whether the store
// has answered it.
func (q *retrier) replied(now time.Duration, r Result) (out *Call, answered bool) {
	out, q.out, q.retry = q.out, nil, now
	reads := out.Kind.Reads()
	if r.Outcome != Applied && r.Outcome != Conflicted {
		if !q.mute {
			q.mute, q.silent = true, q.sent
		}
		q.failed = r.Err
		if pause := q.t.retry(q.env, q.failures, r.Err, q.t.Lease); !reads && errors.Is(r.Err, driver.ErrThrottled) {
			q.writeAt = now + pause
		} else {
			q.retry += pause
		}
		if q.failures++; !reads {
			q.unansweredWrites++
		}
		return out, false
	}
	q.failures = 0
	switch {
	case reads && q.unansweredWrites > 1:
		q.writeAt = now + q.t.retry(q.env, q.unansweredWrites, q.failed, q.t.Lease)
	case reads:
	case r.Outcome == Applied:
		q.unansweredWrites, q.races = 0, 0
	default:
		q.unansweredWrites = 0
		if q.races > 0 {
			q.writeAt = now + q.t.backoff(q.env, q.races)
		}
		q.races++
	}
	if q.unansweredWrites == 0 {
		q.mute, q.failed = false, nil
	}
	return out, true
}

// spent says, after a call without an answer, that the machine should not try again.
func (q *retrier) spent(now time.Duration) bool {
	for _, in := range []error{driver.ErrPermanent, driver.ErrUnreadable, driver.ErrClosed} {
		if errors.Is(q.failed, in) {
			return true
		}
	}
	return q.patience > 0 && now-q.silent >= q.patience
}

// move is a call that a machine wants to make: what, and when. A past instant means now.
type move struct {
	kind    Kind
	session bool               // about the session of the lock
	poll    bool               // a read with the consistency that the view asks for; otherwise strong
	ask     driver.RequestKind // of a Request
	at      time.Duration
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// quest is what an [Asker] and a [Reaper] have in common: calls until there is an answer,
// one at a time, with pauses while the store gives none.
type quest struct {
	out      *Call
	sent     time.Duration
	retry    time.Duration
	failures int
	unheard  int           // writes in a row without an answer, while the store answers looks
	begun    time.Duration // of the silence of the store
	mute     bool

	answer Answer
	rec    driver.Record // that led to the answer
	err    error
}

// Answer returns the answer, NoAnswer as long as there is none, the record that led to it,
// and the error of the store. That of a reaper is Done or Nobody if there is no record any
// more, Alive if the session has shown life, Unusable if the store has given no answer for
// a lease, or an unreadable record, or Abandoned if it was given up.
func (q *quest) Answer() (Answer, driver.Record, error) { return q.answer, q.rec, q.err }

// Over says that the machine sends nothing more.
func (q *quest) Over() bool { return q.answer != NoAnswer && q.out == nil }

// GiveUp ends the machine from outside. A request that is written stays, and so does a
// session that is closed.
func (q *quest) GiveUp(time.Duration) Action {
	q.settle(Abandoned, driver.Record{}, nil)
	return Action{}
}

func (q *quest) settle(a Answer, rec driver.Record, err error) {
	if q.answer == NoAnswer {
		q.answer, q.rec, q.err = a, rec, err
	}
}

// fail takes a call that has no answer. Patience is how long the store may give none, 0
// for ever.
func (q *quest) fail(now time.Duration, t Timing, env Env, patience time.Duration, err error) {
	if !q.mute {
		q.mute, q.begun = true, q.sent
	}
	q.retry = now + t.retry(env, q.failures, err, t.Lease)
	q.failures++
	impatient := patience > 0 && now-q.begun >= patience
	if impatient || errors.Is(err, driver.ErrPermanent) || errors.Is(err, driver.ErrUnreadable) {
		q.settle(Unusable, driver.Record{}, err)
	}
}

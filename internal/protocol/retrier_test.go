// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// retrying is a machine with only a retrier. It sends a call of a kind as soon as it may, and
// returns how long it had to wait.
type retrying struct {
	retrier
	now time.Duration
}

func newRetrying(patience time.Duration) *retrying {
	return &retrying{retrier: retrier{t: timing, env: middle(), patience: patience}, now: time.Hour}
}

func (m *retrying) do(kind Kind, r Result) (pause time.Duration) {
	at, _ := m.next(kind, 0)
	pause = max(0, at-m.now)
	m.now += pause
	m.send(m.now, 0, &Call{Kind: kind})
	m.now += time.Millisecond
	m.replied(m.now, r)
	return pause
}

// TestRetrierPauses: after which answers a call waits, and for how long.
func TestRetrierPauses(t *testing.T) {
	answered, lost := Result{Outcome: Applied}, Result{Outcome: Conflicted}
	failed, refused := Result{Outcome: Unknown, Err: errStore}, Result{Outcome: NotApplied, Err: errStore}
	throttled := Result{Outcome: NotApplied, Err: driver.Throttled(errStore)}
	step := func(n int) time.Duration { return timing.backoff(middle(), n) }
	type call struct {
		kind  Kind
		r     Result
		pause time.Duration // before it
	}
	for name, calls := range map[string][]call{
		"failures in a row": {
			{Read, refused, 0},
			{Read, refused, step(0)},
			{Read, refused, step(1)},
			{Read, answered, step(2)},
			{Read, refused, 0},
			{Read, answered, step(0)},
		},
		"throttled": {{Request, throttled, 0}, {Request, answered, timing.retry(middle(), 0, throttled.Err, timing.Lease)}},
		"races": {
			{Request, lost, 0},
			{Request, lost, 0},
			{Request, lost, step(1)},
			{Request, answered, step(2)},
			{Request, lost, 0},
			{Request, lost, 0},
		},
		"a read after races": {
			{Request, lost, 0}, {Request, lost, 0}, {Read, answered, 0}, {Request, lost, step(1) - time.Millisecond},
		},
		"only reads are answered": {
			{Request, failed, 0},
			{Read, answered, step(0)},
			{Request, failed, 0},
			{Read, answered, step(0)},
			{Request, failed, step(2)},
			{Read, answered, step(0)},
			{Request, answered, step(3)},
			{Request, failed, 0},
		},
		"only reads are answered, and writes throttled": {
			{Request, throttled, 0},
			{Read, answered, 0},
			{Request, throttled, timing.retry(middle(), 0, throttled.Err, timing.Lease) - time.Millisecond},
			{Read, answered, 0},
			{Request, answered, timing.retry(middle(), 2, throttled.Err, timing.Lease)},
		},
	} {
		m := newRetrying(0)
		for i, c := range calls {
			if got := m.do(c.kind, c.r); got != c.pause {
				t.Errorf("%s: call %d waits for %v, want %v", name, i, got, c.pause)
			}
		}
	}
}

// TestRetrierPatience: it counts from the sending of the first call without an answer. What
// reads show does not end the silence after a write, but a time with nothing to send does.
func TestRetrierPatience(t *testing.T) {
	const patience = time.Second
	failed, answered := Result{Outcome: Unknown, Err: errStore}, Result{Outcome: Applied}
	late := func(m *retrying, kind Kind, r Result, at, took time.Duration) {
		m.send(at, at, &Call{Kind: kind})
		m.now = at + took
		m.replied(m.now, r)
	}
	for name, tt := range map[string]struct {
		do   func(m *retrying)
		want bool
	}{
		"one long call": {func(m *retrying) { late(m, Read, failed, m.now, patience) }, true},
		"a short one":   {func(m *retrying) { late(m, Read, failed, m.now, patience/2) }, false},
		"two short ones": {func(m *retrying) {
			late(m, Read, failed, m.now, patience/2)
			late(m, Read, failed, m.now, patience/2)
		}, true},
		"an answer in between": {func(m *retrying) {
			late(m, Read, failed, m.now, patience/2)
			m.do(Read, answered)
			late(m, Read, failed, m.now, patience/2)
		}, false},
		"a read between writes": {func(m *retrying) {
			late(m, Request, failed, m.now, patience/2)
			m.do(Read, answered)
			late(m, Request, failed, m.now, patience/2)
		}, true},
		"a write between writes": {func(m *retrying) {
			late(m, Request, failed, m.now, patience/2)
			m.do(Request, answered)
			late(m, Request, failed, m.now, patience/2)
		}, false},
		"a rest between writes": {func(m *retrying) {
			late(m, Request, failed, m.now, patience/2)
			m.do(Read, answered)
			late(m, Request, failed, m.now+1, patience/2)
		}, false},
		"a rest without an answer": {func(m *retrying) {
			late(m, Request, failed, m.now, patience/2)
			late(m, Request, failed, m.retry+1, patience/2)
		}, true},
	} {
		m := newRetrying(patience)
		if tt.do(m); m.spent(m.now) != tt.want {
			t.Errorf("%s: spent %v", name, !tt.want)
		}
	}
	inVain := []error{driver.Permanent(errStore), driver.ErrUnreadable, driver.ErrClosed}
	for _, err := range append(inVain, driver.Throttled(errStore)) {
		m := newRetrying(0)
		m.do(Read, Result{Outcome: NotApplied, Err: err})
		if want := !errors.Is(err, driver.ErrThrottled); m.spent(m.now) != want {
			t.Errorf("%v: spent %v", err, !want)
		}
	}
}

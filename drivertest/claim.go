// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func testClaim(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	t.Run("Absent", func(t *testing.T) {
		next := e.held(e.key())
		next.Token = 77
		next.Prev = &driver.Tenure{Owner: "nobody", Token: 76}
		next.Data = []byte("mine")
		e.wantClaimed(t, a, next, driver.Record{})
	})

	t.Run("Released", func(t *testing.T) {
		first := e.held(e.key())
		first.Data = []byte("first")
		free := e.claim(t, a, first)
		free = e.swap(t, a, free, e.released(free))
		for _, tc := range []struct {
			name string
			data []byte
		}{{"DataKept", nil}, {"DataReplaced", []byte("second")}, {"DataEmptied", []byte{}}} {
			t.Run(tc.name, func(t *testing.T) {
				next := e.held(free.Key)
				next.Data, next.Token = tc.data, free.Token+5
				now := e.wantClaimed(t, b, next, free)
				free = e.swap(t, b, now, e.released(now))
			})
		}
	})

	// The end that the released record states goes into Prev, not a constant.
	t.Run("ReleasedForAnotherReason", func(t *testing.T) {
		held := e.claim(t, a, e.held(e.key()))
		free := e.released(held)
		free.End, free.Until = driver.EndExpired, time.Time{}
		free = e.swap(t, a, held, free)
		next := e.held(free.Key)
		e.claim(t, b, next)
		e.wantStored(t, driver.Claimed(next, free, true))
	})

	t.Run("Held", func(t *testing.T) {
		held := e.claim(t, a, e.held(e.key()))
		for _, c := range []*client{a, b} {
			_, _, err := c.Claim(t.Context(), e.held(held.Key))
			e.wantConflict(t, "Claim of a held key", err, held)
		}
		again := held
		_, _, err := b.Claim(t.Context(), again)
		e.wantConflict(t, "second Claim with the same record", err, held)
	})

	// A released record that was taken over is not free any more.
	t.Run("HeldAfterTakeover", func(t *testing.T) {
		held := e.claim(t, a, e.held(e.key()))
		taken := e.swap(t, b, held, e.taken(held))
		_, _, err := a.Claim(t.Context(), e.held(held.Key))
		e.wantConflict(t, "Claim of a key that was taken over", err, taken)
	})

	// A holder that has stopped its heartbeats and says so may be at work still.
	t.Run("HeldWithEnd", func(t *testing.T) {
		for _, end := range []driver.EndReason{driver.EndStalled, driver.EndStopTimeout} {
			held := e.claim(t, a, e.held(e.key()))
			ending := e.beat(held)
			ending.End = end
			ending = e.swap(t, a, held, ending)
			_, _, err := b.Claim(t.Context(), e.held(held.Key))
			e.wantConflict(t, "Claim of a held key with end "+string(end), err, ending)
			taken := e.swap(t, b, ending, e.taken(ending))
			if taken.Prev.End != end {
				t.Errorf("a takeover from a holder that ended by %q says %q", end, taken.Prev.End)
			}
			e.wantStored(t, taken)
		}
	})

	// What is reserved is taken by a Swap from it: not even the owner for whom
	// it is kept may claim it, since a claim does not say what it has seen.
	t.Run("Reserved", func(t *testing.T) {
		for _, owner := range []string{"successor", ""} {
			held := e.claim(t, a, e.held(e.key()))
			reserved := e.swap(t, a, held, e.reserved(held, owner))
			next := e.held(held.Key)
			next.Owner = "successor"
			_, _, err := b.Claim(t.Context(), next)
			e.wantConflict(t, "Claim of a reserved key", err, reserved)
		}
	})

	t.Run("Past", func(t *testing.T) {
		past := e.claim(t, a, e.past(e.key()))
		_, _, err := b.Claim(t.Context(), e.held(past.Key))
		e.wantConflict(t, "Claim of a past record", err, past)
	})

	// Only Released is free: what a later version of Tenure or a foreign client
	// wrote is somebody's.
	t.Run("UnknownState", func(t *testing.T) {
		held := e.claim(t, a, e.held(e.key()))
		other := e.beat(held)
		other.State = "hibernating"
		other = e.swap(t, a, held, other)
		_, _, err := b.Claim(t.Context(), e.held(held.Key))
		e.wantConflict(t, "Claim of a key in an unknown state", err, other)
	})
}

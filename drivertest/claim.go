// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"reflect"
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
		now, prev, err := a.Claim(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		want := driver.Claimed(next, driver.Record{}, false)
		e.wantEqual(t, "record after Claim", now, want)
		if !reflect.DeepEqual(prev, driver.Record{}) {
			t.Errorf("a claim of an absent key replaced %s, want a zero record", brief(prev))
		}
		e.wantStored(t, want)
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
				now, prev, err := b.Claim(t.Context(), next)
				if err != nil {
					t.Fatal(err)
				}
				want := driver.Claimed(next, free, true)
				e.wantEqual(t, "record after Claim", now, want)
				e.wantEqual(t, "record that Claim replaced", prev, free)
				e.wantStored(t, want)
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// testOwnership scribbles over the memory of records, before and after it was
// the store's: neither side may see what the other does to its copy.
func testOwnership(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	// full returns a claimed and released key, and the record for the claim of
	// its successor, which has data and, once stored, a Prev.
	full := func(t *testing.T) (free, next driver.Record) {
		t.Helper()
		first := e.held(e.key())
		first.Data = []byte("first")
		rec := e.claim(t, a, first)
		free = e.swap(t, a, rec, e.released(rec))
		next = e.held(free.Key)
		next.Data = []byte("second")
		return free, next
	}

	t.Run("Given", func(t *testing.T) {
		free, next := full(t)
		given := next.Clone()
		now := e.claim(t, a, given)
		scribble(given)
		e.wantStored(t, driver.Claimed(next, free, true))
		next = e.beat(now)
		given = next.Clone()
		e.swap(t, b, now, given)
		scribble(given)
		e.wantStored(t, next)
	})

	t.Run("Returned", func(t *testing.T) {
		free, next := full(t)
		want := driver.Claimed(next, free, true)
		now, prev, err := a.Claim(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		held := now.Clone()
		scribble(now)
		scribble(prev)
		scribble(e.get(t, a, next.Key))
		page, err := a.List(t.Context(), next.Key, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range page.Records {
			scribble(rec)
		}
		var conflict *driver.ConflictError
		if _, _, err = a.Claim(t.Context(), e.held(next.Key)); errors.As(err, &conflict) {
			scribble(conflict.Current)
		}
		e.wantStored(t, want)
		next = e.beat(held)
		scribble(e.swap(t, a, held, next.Clone()))
		e.wantStored(t, next)
	})
}

func scribble(r driver.Record) {
	for i := range r.Data {
		r.Data[i] = '#'
	}
	if r.Prev != nil {
		*r.Prev = driver.Tenure{Owner: "scribble", Token: 99}
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
)

func testToken(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	t.Run("RisesByOne", func(t *testing.T) {
		key := e.key()
		rec := e.claim(t, a, e.held(key))
		for want := uint64(1); want < 20; {
			if rec.Token != want {
				t.Fatalf("token %d, want %d", rec.Token, want)
			}
			rec = e.swap(t, a, rec, e.beat(rec))
			if want%3 == 0 {
				rec = e.swap(t, b, rec, e.taken(rec))
			} else {
				e.swap(t, a, rec, e.released(rec))
				rec = e.claim(t, b, e.held(key))
			}
			want++
		}
	})

	t.Run("PerKey", func(t *testing.T) {
		claim, _ := e.freed(t, a)
		e.claim(t, a, e.held(claim.Key))
		if other := e.claim(t, a, e.held(e.key())); other.Token != 1 {
			t.Errorf("first token of another key is %d, want 1", other.Token)
		}
	})

	// 2^53+1 is the first number that a float64 cannot hold.
	t.Run("Large", func(t *testing.T) {
		for _, token := range []uint64{1<<31 - 1, 1<<32 - 1, 1 << 53, driver.MaxToken - 2} {
			rec := e.planted(t, token)
			taken := e.swap(t, a, rec, e.taken(rec))
			free := e.swap(t, a, taken, e.released(taken))
			e.wantStored(t, free)
			next := e.held(rec.Key)
			e.claim(t, b, next)
			e.wantStored(t, driver.Claimed(next, free, true))
			if got := e.get(t, a, rec.Key).Token; got != token+2 {
				t.Errorf("token %d, two terms after %d", got, token)
			}
		}
	})

	// There is no token after the highest: it neither wraps round nor stays.
	t.Run("Highest", func(t *testing.T) {
		rec := e.planted(t, driver.MaxToken)
		rec = e.swap(t, a, rec, e.beat(rec))
		free := e.swap(t, a, rec, e.released(rec))
		// Past the retries: the error may say no more than that nothing was
		// applied.
		now, _, err := b.Store.Claim(t.Context(), e.held(rec.Key))
		if err == nil {
			t.Errorf("Claim after the highest token granted %s", brief(now))
		}
		e.wantStored(t, free)
	})
}

// planted returns a held record with the given token.
func (e *env) planted(t *testing.T, token uint64) driver.Record {
	t.Helper()
	if e.h.Plant == nil {
		t.Skip("the harness cannot plant a record")
	}
	rec := e.held(e.key())
	rec.Token = token
	e.h.Plant(t, rec)
	e.wantStored(t, rec)
	return rec
}

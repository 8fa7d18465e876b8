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

// testPast writes the history of a lock: records that are claimed once and
// never taken.
func testPast(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]
	key := func() string { return driver.OwnPrefix + "history/" + e.key() }

	t.Run("Stored", func(t *testing.T) {
		next := e.past(key())
		e.wantListed(t, e.wantClaimed(t, a, next, driver.Record{}))
	})

	// A second write of it, because the first reply was lost, shows that it is
	// there. A write that says something else comes too late.
	t.Run("Once", func(t *testing.T) {
		next := e.past(key())
		first := e.claim(t, a, next)
		for what, again := range map[string]driver.Record{
			"the same": next, "another past": e.past(next.Key), "a held": e.held(next.Key),
		} {
			for _, c := range []*client{a, b} {
				_, _, err := c.Claim(t.Context(), again)
				e.wantConflict(t, "Claim of a past record with "+what, err, first)
			}
		}
	})

	t.Run("Delete", func(t *testing.T) {
		first := e.claim(t, a, e.past(key()))
		e.remove(t, b, first)
		e.wantAbsent(t, first.Key)
		// Nobody knows any more that it was there.
		e.claim(t, b, e.past(first.Key))
	})
}

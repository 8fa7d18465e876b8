// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// testRequest lays requests into records that are held. Nothing but the version
// and the requests may change by it: above all not the beat, or a request would
// prolong a dead holder's life.
func testRequest(t *testing.T, e *env) {
	holder, asker := e.clients[0], e.clients[1]

	t.Run("KeepsTheRest", func(t *testing.T) {
		claim := e.held(e.key())
		claim.Data = []byte("data")
		rec := e.claim(t, holder, claim)
		rec = e.swap(t, holder, rec, e.beat(rec))
		asked := e.asked(rec)
		now := e.swap(t, asker, rec, asked)
		e.wantEqual(t, "record after Swap", now, asked)
		e.wantStored(t, asked)
		if now.Beat != rec.Beat || now.Token != rec.Token {
			t.Errorf("a request changed beat %q and token %d to %q and %d", rec.Beat, rec.Token, now.Beat, now.Token)
		}
	})

	// The holder knows nothing of the request until its heartbeat conflicts.
	// It goes on from what the conflict shows.
	t.Run("Delivered", func(t *testing.T) {
		rec := e.claim(t, holder, e.held(e.key()))
		asked := e.swap(t, asker, rec, e.asked(rec))
		_, err := holder.Swap(t.Context(), rec, e.beat(rec))
		e.wantConflict(t, "heartbeat after a request", err, asked)
		var conflict *driver.ConflictError
		if !errors.As(err, &conflict) || len(conflict.Current.Requests) != 1 {
			t.Fatalf("the heartbeat's error %v does not carry the request", err)
		}
		beat := e.swap(t, holder, conflict.Current, e.beat(conflict.Current))
		e.wantEqual(t, "record after the next heartbeat", beat, e.get(t, asker, rec.Key))
		if len(beat.Requests) != 1 || beat.Requests[0].ID != asked.Requests[0].ID {
			t.Errorf("after a heartbeat that kept it the request is %+v", beat.Requests)
		}
		free := e.swap(t, holder, beat, e.answered(beat))
		e.wantStored(t, free)
	})

	// A heartbeat under way when the request is laid does not wash it away, and
	// a request does not wash away another.
	t.Run("Second", func(t *testing.T) {
		rec := e.claim(t, holder, e.held(e.key()))
		first := e.swap(t, asker, rec, e.asked(rec))
		_, err := e.clients[2].Swap(t.Context(), rec, e.asked(rec))
		e.wantConflict(t, "a second request from the same record", err, first)
	})

	// The version of a claim can come back, by a late duplicate of it. A request
	// to its first term must not reach the second.
	t.Run("OldTokenSameVersion", func(t *testing.T) {
		claim := e.held(e.key())
		first := e.claim(t, holder, claim)
		e.swap(t, holder, first, e.released(first))
		second := e.claim(t, holder, claim)
		_, err := asker.Swap(t.Context(), first, e.asked(first))
		e.wantConflict(t, "request from the same version under the former token", err, second)
	})

	// A contender that takes over from a holder that did not answer remembers who asked.
	t.Run("Takeover", func(t *testing.T) {
		rec := e.claim(t, holder, e.held(e.key()))
		asked := e.swap(t, asker, rec, e.asked(rec))
		taken := e.taken(asked)
		if taken.Prev.Asked == nil {
			t.Fatal("Record.Tenure does not show who asked")
		}
		e.swap(t, e.clients[2], asked, taken)
		e.wantStored(t, taken)
	})

	// A claim of what was released on request does, too: the store fills it in.
	t.Run("Claim", func(t *testing.T) {
		rec := e.claim(t, holder, e.held(e.key()))
		asked := e.swap(t, asker, rec, e.asked(rec))
		free := e.swap(t, holder, asked, e.answered(asked))
		next := e.held(rec.Key)
		now := e.wantClaimed(t, asker, next, free)
		if p := now.Prev; p == nil || p.End != driver.EndSteppedDown || p.Asked == nil || p.Asked.ID != asked.Requests[0].ID {
			t.Errorf("the tenure before is %+v, want one that stepped down, as it was asked", p)
		}
		if now.Asked != nil || len(now.Requests) != 0 {
			t.Errorf("the new tenure has a request of the former: %+v, %+v", now.Asked, now.Requests)
		}
	})
}

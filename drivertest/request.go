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

	// The claim of what was released on request has who asked: the store fills it in.
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

// testReserve hands locks over: a reserved record is nobody's yet, and its
// token is still the former holder's.
func testReserve(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	// reserve returns a held record and what a hand-over makes of it.
	reserve := func(t *testing.T, owner string) (held, reserved driver.Record) {
		t.Helper()
		claim := e.held(e.key())
		claim.Data = []byte("checkpoint")
		held = e.claim(t, a, claim)
		held = e.swap(t, b, held, e.asked(held))
		next := e.reserved(held, owner)
		reserved = e.swap(t, a, held, next)
		e.wantEqual(t, "record after the hand-over", reserved, next)
		e.wantStored(t, next)
		return held, reserved
	}

	t.Run("KeepsToken", func(t *testing.T) {
		held, reserved := reserve(t, "successor")
		if reserved.Token != held.Token {
			t.Errorf("a reservation led from token %d to %d", held.Token, reserved.Token)
		}
	})

	t.Run("ForNobody", func(t *testing.T) { reserve(t, "") })

	// A lock that is kept for a label has no owner, and the label of those who may take
	// it. What the former holder was asked stays in the tenure before.
	t.Run("ForLabel", func(t *testing.T) {
		held := e.claim(t, a, e.held(e.key()))
		asked := e.asked(held)
		asked.Requests[0].Kind, asked.Requests[0].To, asked.Requests[0].ToLabel = driver.HandOver, "", "v2"
		asked = e.swap(t, b, held, asked)
		e.wantStored(t, asked)
		kept := e.reserved(asked, "")
		kept.Host, kept.Label, kept.Prev.Asked = "", "v2", &asked.Requests[0]
		kept = e.swap(t, a, asked, kept)
		e.wantStored(t, kept)
		e.wantListed(t, kept)
		taken := e.taken(kept)
		taken.Label = "v2"
		e.swap(t, b, kept, taken)
		e.wantStored(t, taken)
		_, err := e.clients[2].Swap(t.Context(), kept, e.taken(kept))
		e.wantConflict(t, "another of that label", err, taken)
	})

	// Its owner swaps it to Held, and so does anybody once it has stood for its
	// lease: that is a change of holder.
	for _, owner := range []string{"successor", ""} {
		t.Run("Taken/For"+owner, func(t *testing.T) {
			held, reserved := reserve(t, owner)
			taken := e.taken(reserved)
			now := e.swap(t, b, reserved, taken)
			if now.Token != held.Token+1 {
				t.Errorf("token %d after a reservation under %d was taken", now.Token, held.Token)
			}
			e.wantStored(t, taken)
			if p := now.Prev; p == nil || p.Token != held.Token || p.Asked == nil {
				t.Errorf("the tenure before is %+v, want that of token %d, and who asked", p, held.Token)
			}
			_, err := e.clients[2].Swap(t.Context(), reserved, e.taken(reserved))
			e.wantConflict(t, "taking it a second time", err, now)
		})
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
)

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

	// The former holder is out.
	t.Run("Stays", func(t *testing.T) {
		held, reserved := reserve(t, "successor")
		for what, next := range map[string]driver.Record{
			"heartbeat": e.beat(held), "data": e.withData(held, []byte("late")),
			"release": e.released(held), "takeover": e.taken(held), "hand-over": e.reserved(held, "another"),
			"request": e.asked(held),
		} {
			_, err := a.Swap(t.Context(), held, next)
			e.wantConflict(t, "late "+what, err, reserved)
		}
	})

	// An operator can free what was reserved for an owner that does not come.
	t.Run("Released", func(t *testing.T) {
		_, reserved := reserve(t, "successor")
		free := e.released(reserved)
		free.End = driver.EndReleasedDead
		free = e.swap(t, b, reserved, free)
		next := e.held(free.Key)
		e.claim(t, b, next)
		e.wantStored(t, driver.Claimed(next, free, true))
	})
}

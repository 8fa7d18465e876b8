// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func testSwap(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	// Next replaces the record; it is not merged into it.
	t.Run("ReplacesAll", func(t *testing.T) {
		first := e.held(e.key())
		first.Data = []byte("data")
		rec := e.claim(t, a, first)
		bare := driver.Record{
			Key: rec.Key, Version: e.fresh("bare"), Owner: "o", Token: rec.Token,
			Lease: time.Second, State: driver.Held,
		}
		e.wantEqual(t, "record after Swap", e.swap(t, a, rec, bare), bare)
		e.wantStored(t, bare)
	})

	t.Run("Takeover", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		next := e.taken(rec)
		now := e.swap(t, b, rec, next)
		if now.Token != rec.Token+1 {
			t.Errorf("token %d after a takeover from %d", now.Token, rec.Token)
		}
		e.wantStored(t, next)
		_, err := a.Swap(t.Context(), rec, e.beat(rec))
		e.wantConflict(t, "heartbeat of the former holder", err, next)
		rec = e.swap(t, b, now, e.beat(now))
		e.wantStored(t, rec)
	})
}

func testRelease(t *testing.T, e *env) {
	// The next holder keeps the beginning of a long reason: it is in the way of each
	// of its heartbeats.
	t.Run("LongReason", func(t *testing.T) {
		for _, reason := range []string{
			strings.Repeat("r", driver.MaxPrevReasonLen), strings.Repeat("ü", driver.MaxReasonLen/2),
			strings.Repeat("世", driver.MaxPrevReasonLen/3+1),
		} {
			rec := e.claim(t, e.clients[0], e.held(e.key()))
			rec = e.swap(t, e.clients[0], rec, e.asked(rec))
			free := e.answered(rec)
			free.Asked.Reason = reason
			e.swap(t, e.clients[0], rec, free)
			e.wantStored(t, free)
			e.wantListed(t, free)
			next := e.held(rec.Key)
			now := e.wantClaimed(t, e.clients[1], next, free)
			if kept := now.Prev.Asked.Reason; len(kept) > driver.MaxPrevReasonLen || len(kept) < driver.MaxPrevReasonLen-3 {
				t.Errorf("a reason of %d bytes is kept as %q", len(reason), kept)
			}
			beat := e.beat(now)
			e.swap(t, e.clients[1], now, beat)
			e.wantStored(t, beat)
		}
	})

	a := e.clients[0]

	t.Run("KeepsRecord", func(t *testing.T) {
		claim := e.held(e.key())
		claim.Data = []byte("checkpoint")
		held := e.claim(t, a, claim)
		next := e.released(held)
		e.wantEqual(t, "record after the release", e.swap(t, a, held, next), next)
		e.wantStored(t, next)
	})
}

func testDelete(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	t.Run("Present", func(t *testing.T) {
		held := e.claim(t, a, e.held(e.key()))
		_, free := e.freed(t, a)
		past := e.claim(t, a, e.past(e.key()))
		for _, rec := range []driver.Record{held, free, named(past)} {
			e.remove(t, b, rec)
			e.wantAbsent(t, rec.Key)
			e.remove(t, b, rec) // of what is absent
		}
	})

	t.Run("StartsAgain", func(t *testing.T) {
		claim := e.held(e.key())
		claim.Data = []byte("gone")
		held := e.claim(t, a, claim)
		taken := e.swap(t, a, held, e.taken(held))
		e.remove(t, a, taken)
		next := e.held(claim.Key)
		m := &model{key: claim.Key}
		if e.h.TokensOutliveDelete {
			m.deleted = taken.Token
		}
		e.send(t, m, b, "Claim after Delete", write{op: opClaim, next: next})
		e.wantModel(t, m)
	})

	t.Run("SaysWhetherTokensStay", func(t *testing.T) {
		keeper, ok := a.Store.(driver.TokenKeeper)
		if keeps := ok && keeper.KeepsTokens(); keeps != e.h.TokensOutliveDelete {
			t.Errorf("as a driver.TokenKeeper the store says %t, and the harness that tokens outlive Delete: %t",
				keeps, e.h.TokensOutliveDelete)
		}
	})

	t.Run("LeavesOthers", func(t *testing.T) {
		key := e.key()
		rec := e.claim(t, a, e.held(key))
		longer := e.claim(t, a, e.held(key+"/x"))
		e.remove(t, a, rec)
		e.wantStored(t, longer)
	})
}

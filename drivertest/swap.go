// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func testSwap(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	t.Run("Heartbeat", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		for i := range 5 {
			next := e.beat(rec)
			rec = e.swap(t, e.clients[i%len(e.clients)], rec, next)
			e.wantEqual(t, "record after Swap", rec, next)
			e.wantStored(t, next)
		}
	})

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

	t.Run("StaleVersion", func(t *testing.T) {
		old := e.claim(t, a, e.held(e.key()))
		rec := e.swap(t, b, old, e.beat(old))
		_, err := a.Swap(t.Context(), old, e.beat(old))
		e.wantConflict(t, "Swap from a stale version", err, rec)
		unknown := rec
		unknown.Version = e.fresh("never")
		_, err = a.Swap(t.Context(), unknown, e.beat(rec))
		e.wantConflict(t, "Swap from a version that never was", err, rec)
	})

	// An engine that tells states apart by a hash of what it keeps must keep the version
	// among it: nothing else need differ.
	t.Run("VersionAlone", func(t *testing.T) {
		old := e.claim(t, a, e.held(e.key()))
		rec := old
		rec.Version = e.fresh("same")
		rec = e.swap(t, b, old, rec)
		for what, next := range map[string]driver.Record{"heartbeat": e.beat(old), "release": e.released(old)} {
			_, err := a.Swap(t.Context(), old, next)
			e.wantConflict(t, what+" from a record that differs in its version alone", err, rec)
		}
		err := a.Delete(t.Context(), old)
		e.wantConflict(t, "Delete of a record that differs in its version alone", err, rec)
	})

	// A late duplicate of a claim brings its version back, under a higher
	// token. The holder of the former term must not get in by it.
	t.Run("OldTokenSameVersion", func(t *testing.T) {
		claim := e.held(e.key())
		first := e.claim(t, a, claim)
		e.swap(t, a, first, e.released(first))
		second := e.claim(t, b, claim)
		if second.Version != first.Version || second.Token != first.Token+1 {
			t.Fatalf("the same claim again stored %s, want version %s under token %d", brief(second), first.Version, first.Token+1)
		}
		for what, next := range map[string]driver.Record{
			"heartbeat": e.beat(first), "release": e.released(first),
			"data": e.withData(first, []byte("x")), "takeover": e.taken(first),
		} {
			_, err := a.Swap(t.Context(), first, next)
			e.wantConflict(t, what+" from the same version under the former token", err, second)
		}
	})

	t.Run("SameTokenOtherVersion", func(t *testing.T) {
		claim, free := e.freed(t, a)
		second := e.claim(t, b, e.held(claim.Key))
		wrong := second
		wrong.Version = free.Version
		_, err := a.Swap(t.Context(), wrong, e.beat(wrong))
		e.wantConflict(t, "Swap with the right token and a former version", err, second)
	})

	t.Run("HigherTokenThanStored", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		ahead := rec
		ahead.Token++
		_, err := a.Swap(t.Context(), ahead, e.beat(ahead))
		e.wantConflict(t, "Swap from a token that is yet to come", err, rec)
	})

	t.Run("Absent", func(t *testing.T) {
		rec := e.held(e.key())
		rec.Token = 1
		_, err := a.Swap(t.Context(), rec, e.beat(rec))
		e.wantAbsentConflict(t, "Swap of an absent key", rec.Key, err)
	})

	t.Run("ComparesVersionAndTokenOnly", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		next := e.beat(rec)
		named := driver.Record{Key: rec.Key, Version: rec.Version, Token: rec.Token}
		e.swap(t, b, named, next)
		e.wantStored(t, next)
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

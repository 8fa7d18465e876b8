// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"
	"reflect"
	"strings"
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

func testRelease(t *testing.T, e *env) {
	// The next holder keeps the beginning of a long reason: it is in the way of each
	// of its heartbeats.
	t.Run("LongReason", func(t *testing.T) {
		for _, reason := range []string{
			strings.Repeat("r", driver.MaxPrevReasonLen), strings.Repeat("ü", driver.MaxReasonLen/2), strings.Repeat("世", driver.MaxPrevReasonLen/3+1),
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

	a, b := e.clients[0], e.clients[1]

	t.Run("KeepsRecord", func(t *testing.T) {
		claim := e.held(e.key())
		claim.Data = []byte("checkpoint")
		held := e.claim(t, a, claim)
		next := e.released(held)
		e.wantEqual(t, "record after the release", e.swap(t, a, held, next), next)
		e.wantStored(t, next)
	})

	// Every late write of the former holder fails, and shows the release.
	t.Run("Stays", func(t *testing.T) {
		held, free := e.freed(t, a)
		for what, next := range map[string]driver.Record{
			"heartbeat": e.beat(held), "data": e.withData(held, []byte("late")),
			"release": e.released(held), "takeover": e.taken(held),
		} {
			for _, c := range []*client{a, b} {
				_, err := c.Swap(t.Context(), held, next)
				e.wantConflict(t, "late "+what, err, free)
			}
		}
	})
}

func testDelete(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	t.Run("Present", func(t *testing.T) {
		held := e.claim(t, a, e.held(e.key()))
		_, free := e.freed(t, a)
		for _, rec := range []driver.Record{held, free} {
			if err := b.Delete(t.Context(), rec); err != nil {
				t.Errorf("Delete(%s): %v", brief(rec), err)
			}
			e.wantAbsent(t, rec.Key)
		}
	})

	// Some records are deleted by a caller that has never read them.
	t.Run("NamedAlone", func(t *testing.T) {
		for _, rec := range []driver.Record{e.claim(t, a, e.held(e.key())), e.claim(t, a, e.past(e.key()))} {
			if err := b.Delete(t.Context(), driver.Record{Key: rec.Key, Version: rec.Version, Token: rec.Token}); err != nil {
				t.Errorf("Delete by key, version and token: %v", err)
			}
			e.wantAbsent(t, rec.Key)
		}
	})

	t.Run("Absent", func(t *testing.T) {
		rec := e.held(e.key())
		for range 2 {
			if err := a.Delete(t.Context(), rec); err != nil {
				t.Errorf("Delete of an absent key: %v", err)
			}
		}
	})

	t.Run("StaleVersion", func(t *testing.T) {
		held := e.claim(t, a, e.held(e.key()))
		rec := e.swap(t, a, held, e.beat(held))
		err := b.Delete(t.Context(), held)
		e.wantConflict(t, "Delete of a stale version", err, rec)
	})

	// As for Swap: a late Delete of a former term must not take the new one.
	t.Run("OldTokenSameVersion", func(t *testing.T) {
		claim := e.held(e.key())
		first := e.claim(t, a, claim)
		e.swap(t, a, first, e.released(first))
		second := e.claim(t, b, claim)
		err := a.Delete(t.Context(), first)
		e.wantConflict(t, "Delete of the same version under the former token", err, second)
		e.wantStored(t, second)
	})

	t.Run("StartsAgain", func(t *testing.T) {
		claim := e.held(e.key())
		claim.Data = []byte("gone")
		held := e.claim(t, a, claim)
		taken := e.swap(t, a, held, e.taken(held))
		e.remove(t, a, taken)
		next := e.held(claim.Key)
		now, prev, err := b.Claim(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		want := driver.Claimed(next, driver.Record{}, false)
		if e.h.TokensOutliveDelete {
			want.Token = taken.Token + 1
		}
		e.wantEqual(t, "record after Claim", now, want)
		e.wantStored(t, want)
		if !reflect.DeepEqual(prev, driver.Record{}) {
			t.Errorf("Claim after Delete replaced %s, want a zero record", brief(prev))
		}
	})

	// Nothing of a key's former life reaches the next one, though both have come as
	// far: what an engine counts for a key may begin again with it.
	t.Run("NextLife", func(t *testing.T) {
		for beats := range 4 {
			t.Run(fmt.Sprintf("%dBeats", beats), func(t *testing.T) {
				for what, send := range map[string]func(former driver.Record) error{
					"Swap":    func(r driver.Record) error { _, err := a.Swap(t.Context(), r, e.beat(r)); return err },
					"release": func(r driver.Record) error { _, err := a.Swap(t.Context(), r, e.released(r)); return err },
					"Delete":  func(r driver.Record) error { return a.Delete(t.Context(), r) },
				} {
					live := func(c *client, key string) driver.Record {
						rec := e.claim(t, c, e.held(key))
						for range beats {
							rec = e.swap(t, c, rec, e.beat(rec))
						}
						return rec
					}
					former := live(a, e.key())
					if err := b.Delete(t.Context(), driver.Record{Key: former.Key, Version: former.Version, Token: former.Token}); err != nil {
						t.Fatal(err)
					}
					now := live(b, former.Key)
					e.wantConflict(t, "late "+what+" of the key's former life", send(former), now)
				}
			})
		}
	})

	t.Run("SaysWhetherTokensStay", func(t *testing.T) {
		keeper, ok := a.Store.(driver.TokenKeeper)
		if keeps := ok && keeper.KeepsTokens(); keeps != e.h.TokensOutliveDelete {
			t.Errorf("as a driver.TokenKeeper the store says %t, and the harness that tokens outlive Delete: %t", keeps, e.h.TokensOutliveDelete)
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

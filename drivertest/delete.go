// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

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

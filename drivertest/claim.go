// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

func testClaim(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	t.Run("Absent", func(t *testing.T) {
		next := e.held(e.key())
		next.Token = 77
		next.Prev = &driver.Term{Owner: "nobody", Token: 76}
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

	// The next holder keeps only the beginning of a long reason, which each of its
	// heartbeats carries.
	t.Run("LongReason", func(t *testing.T) {
		for _, reason := range []string{
			strings.Repeat("r", driver.MaxPrevReasonLen), strings.Repeat("ü", driver.MaxReasonLen/2),
			strings.Repeat("世", driver.MaxPrevReasonLen/3+1),
		} {
			rec := e.claim(t, a, e.held(e.key()))
			rec = e.swap(t, a, rec, e.asked(rec))
			free := e.answered(rec)
			free.Asked.Reason = reason
			e.swap(t, a, rec, free)
			e.wantStored(t, free)
			e.wantListed(t, free)
			now := e.wantClaimed(t, b, e.held(rec.Key), free)
			if kept := now.Prev.Asked.Reason; len(kept) > driver.MaxPrevReasonLen || len(kept) < driver.MaxPrevReasonLen-3 {
				t.Errorf("a reason of %d bytes is kept as %q", len(reason), kept)
			}
			beat := e.beat(now)
			e.swap(t, b, now, beat)
			e.wantStored(t, beat)
		}
	})

	for name, occupy := range e.occupied() {
		t.Run("Occupied/"+name, func(t *testing.T) {
			rec := occupy(t)
			e.wantStored(t, rec)
			e.wantListed(t, rec)
			same, held, past := e.held(rec.Key), e.held(rec.Key), e.past(rec.Key)
			same.Version, held.Owner = rec.Version, cmp.Or(rec.Owner, held.Owner)
			claims := []driver.Record{same, held, past}
			if rec.State.OfSession() {
				claims = append(claims, e.openedAt(rec.Key))
			}
			for _, next := range claims {
				for _, c := range []*client{a, b} {
					_, _, err := c.Claim(t.Context(), next)
					e.wantConflict(t, "Claim of a key that is not free, as "+string(next.State), err, rec)
				}
			}
		})
	}
}

// occupied make records that no claim replaces, whose ever it is: only Released is free. A
// reserved lock is taken by a Swap, also by the owner that it is reserved for, since a
// claim does not say what it has seen. A holder that has recorded its end may still be at
// work. A record of a later version or a foreign client has an owner. History and a
// session are claimed once, until they are deleted.
func (e *env) occupied() map[string]func(t *testing.T) driver.Record {
	claimed := func(next func() driver.Record) func(t *testing.T) driver.Record {
		return func(t *testing.T) driver.Record {
			t.Helper()
			return e.claim(t, e.clients[0], next())
		}
	}
	swapped := func(next func(held driver.Record) driver.Record) func(t *testing.T) driver.Record {
		return func(t *testing.T) driver.Record {
			t.Helper()
			held := e.claim(t, e.clients[0], e.held(e.key()))
			return e.swap(t, e.clients[0], held, next(held))
		}
	}
	beating := func(change func(*driver.Record)) func(t *testing.T) driver.Record {
		return swapped(func(held driver.Record) driver.Record {
			next := e.beat(held)
			change(&next)
			return next
		})
	}
	all := map[string]func(t *testing.T) driver.Record{
		"Held":              claimed(func() driver.Record { return e.held(e.key()) }),
		"Stalled":           beating(func(next *driver.Record) { next.End = driver.EndStalled }),
		"StopTimeout":       beating(func(next *driver.Record) { next.End = driver.EndStopTimeout }),
		"UnknownState":      beating(func(next *driver.Record) { next.State = "hibernating" }),
		"Reserved":          swapped(func(held driver.Record) driver.Record { return e.reserved(held, "successor") }),
		"ReservedForNobody": swapped(func(held driver.Record) driver.Record { return e.reserved(held, "") }),
		"ReservedForLabel": swapped(func(held driver.Record) driver.Record {
			next, request := e.reserved(held, ""), e.request(driver.HandOver)
			request.To, request.ToLabel = "", "v2"
			next.Host, next.Label, next.Prev.Asked = "", "v2", &request
			return next
		}),
		"Past": claimed(func() driver.Record { return e.past(driver.OwnPrefix + "history/" + e.key()) }),
	}
	if e.h.NoSessions {
		return all
	}
	all["UnderASession"] = claimed(func() driver.Record { return e.under(e.key(), e.sessionID()) })
	all["Alive"] = claimed(e.opened)
	all["Closed"] = func(t *testing.T) driver.Record {
		t.Helper()
		alive := e.claim(t, e.clients[0], e.opened())
		return e.swap(t, e.clients[1], alive, e.closed(alive))
	}
	return all
}

func testToken(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

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

	t.Run("SaysWhetherTokensStay", func(t *testing.T) {
		retainer, ok := a.Store.(driver.TokenRetainer)
		if keeps := ok && retainer.KeepsTokens(); keeps != e.h.TokensOutliveDelete {
			t.Errorf("driver.TokenRetainer of the store says %t, but TokensOutliveDelete of the harness is %t",
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func testRaise(t *testing.T, e *env) {
	_, raises := e.clients[0].Store.(driver.Raiser)
	if raises != e.h.Raises {
		t.Fatalf("the harness declares Raises %t, but whether the store is a driver.Raiser is %t", e.h.Raises, raises)
	}
	if !raises {
		t.Skip("the store does not raise tokens")
	}
	a, b := e.clients[0], e.clients[1]

	t.Run("Raises", func(t *testing.T) {
		for name, from := range map[string]func(held driver.Record) driver.Record{
			"Held":              e.beat,
			"Asked":             e.asked,
			"Released":          e.released,
			"Reserved":          func(rec driver.Record) driver.Record { return e.reserved(rec, "next") },
			"ReservedForNobody": func(rec driver.Record) driver.Record { return e.reserved(rec, "") },
			"UnderASession": func(rec driver.Record) driver.Record {
				next := e.taken(rec)
				if !e.h.NoSessions {
					next.Session = e.sessionID()
				}
				return next
			},
		} {
			t.Run(name, func(t *testing.T) {
				rec := e.claim(t, a, e.held(e.key()))
				rec = e.swap(t, a, rec, from(rec))
				for _, by := range []uint64{1, 2, 1000, 1 << 53} { // from the second on what was raised
					next := e.raised(rec, by)
					rec = e.raise(t, b, rec, next)
					e.wantEqual(t, "record after Raise", rec, next)
					e.wantStored(t, next)
					e.wantListed(t, next)
				}
				e.wantClaimed(t, b, e.held(rec.Key), rec) // under the next token, and with the raise before it
			})
		}
	})

	t.Run("ToHighest", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		raised := e.raise(t, a, rec, e.raised(rec, driver.MaxToken-rec.Token))
		e.wantStored(t, raised)
		if now, _, err := b.Store.Claim(t.Context(), e.held(rec.Key)); err == nil {
			t.Errorf("Claim after the highest token granted %s", brief(now))
		}
		e.wantStored(t, raised)
	})

	// No record matches a prev without a version, which names a lock without a record, whose
	// token is kept.
	t.Run("NoVersion", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		_, err := a.Raise(t.Context(), driver.Record{Key: rec.Key, Token: rec.Token}, e.raised(rec, 1000))
		e.wantConflict(t, "Raise from no version, of a lock with a record", err, rec)
		none := e.held(e.key())
		_, err = a.Raise(t.Context(), driver.Record{Key: none.Key, Token: 1}, e.raised(none, 1000))
		e.wantAbsentConflict(t, "Raise from no version, of a lock that never was", none.Key, err)
	})

	t.Run("Refused", e.raiseRefused)
	t.Run("Kept", e.raiseKept)
}

// raiseRefused writes what CheckRaise refuses: the store must not.
func (e *env) raiseRefused(t *testing.T) {
	store := e.clients[0].Store.(driver.Raiser) // past the retries
	raise := func(t *testing.T, prev, next driver.Record) (driver.Record, error) {
		t.Helper()
		return store.Raise(t.Context(), prev, next)
	}
	e.refuses(t, raise, func(prev driver.Record) driver.Record { return e.raised(prev, 1000) }, map[string]change{
		"SameToken":    func(next *driver.Record, prev driver.Record) { next.Token = prev.Token },
		"LowerToken":   func(next *driver.Record, prev driver.Record) { next.Token = prev.Token - 1 },
		"TokenTooHigh": func(next *driver.Record, _ driver.Record) { next.Token = driver.MaxToken + 1 },
		"Held":         func(next *driver.Record, _ driver.Record) { next.State = driver.Held },
		"Reserved":     func(next *driver.Record, _ driver.Record) { next.State = driver.Reserved },
		"Past":         func(next *driver.Record, _ driver.Record) { next.State = driver.Past },
		"Closed":       func(next *driver.Record, _ driver.Record) { next.State = driver.Closed },
		"UnknownState": func(next *driver.Record, _ driver.Record) { next.State = "hibernating" },
		"NoVersion":    func(next *driver.Record, _ driver.Record) { next.Version = "" },
		"SameVersion":  func(next *driver.Record, prev driver.Record) { next.Version = prev.Version },
		"OtherKey":     func(next *driver.Record, _ driver.Record) { next.Key += "-other" },
		"NoLease":      func(next *driver.Record, _ driver.Record) { next.Lease = 0 },
		"Text":         func(next *driver.Record, _ driver.Record) { next.Host = "\x00" },
	})
	t.Run("Session", func(t *testing.T) {
		if e.h.NoSessions {
			t.Skip("the harness declares no sessions")
		}
		rec := e.claim(t, e.clients[0], e.opened())
		now, err := raise(t, rec, e.raised(rec, 1000))
		wantRefused(t, "Raise", now, err)
		e.wantStored(t, rec)
	})
}

// raiseKept raises the tokens of locks whose records were deleted.
func (e *env) raiseKept(t *testing.T) {
	a, b := e.clients[0], e.clients[1]
	lister, lists := a.Store.(driver.TokenRetainer)
	if !e.h.TokensOutliveDelete {
		if lists && lister.KeepsTokens() {
			t.Error("the store says that it keeps tokens of deleted locks, but the harness does not declare it")
		}
		t.Skip("the harness declares no tokens that outlive a deletion")
	}
	if !lists || !lister.KeepsTokens() {
		t.Fatal("the harness sets TokensOutliveDelete: a driver.Raiser must then be a driver.TokenRetainer and list the tokens")
	}
	const prefix = "kept/"
	want := map[string]uint64{}
	for i := range 9 {
		rec := e.claim(t, a, e.held(prefix+e.key()))
		for range i % 3 {
			rec = e.swap(t, b, rec, e.taken(rec))
		}
		rec = e.swap(t, b, rec, e.released(rec))
		e.remove(t, a, rec)
		want[rec.Key] = rec.Token
	}
	stays := e.claim(t, a, e.held(prefix+e.key()))

	e.eventually(t, func() string { return e.listsTokens(t, prefix, want) })
	for key, token := range want {
		prev := driver.Record{Key: key, Token: token}
		next := e.raised(e.held(key), 1000)
		next.Token, next.Prev = token+1000, nil
		wrong := prev
		wrong.Token++
		_, err := b.Raise(t.Context(), wrong, next)
		e.wantAbsentConflict(t, "Raise from another token than the stored one", key, err)
		e.wantEqual(t, "record after Raise", e.raise(t, b, prev, next), next)
		e.wantStored(t, next)
		_, err = a.Raise(t.Context(), prev, next)
		e.wantConflict(t, "the same raise again", err, next)
		if now := e.claim(t, a, e.held(key)); now.Token != token+1001 {
			t.Errorf("token %d after %d was raised by 1000", now.Token, token)
		}
	}
	e.wantStored(t, stays)
	e.eventually(t, func() string { return e.listsTokens(t, prefix, nil) })
}

// listsTokens says what is wrong with the listed tokens, "" if nothing is.
func (e *env) listsTokens(t *testing.T, prefix string, want map[string]uint64) string {
	t.Helper()
	lister := e.clients[0].Store.(driver.TokenRetainer)
	got := map[string]uint64{}
	for cursor, last := "", ""; ; {
		page, err := lister.ListTokens(t.Context(), prefix, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range page.Records {
			if rec.Key <= last {
				t.Fatalf("ListTokens shows %q after %q", rec.Key, last)
			}
			last = rec.Key
			got[rec.Key] = rec.Token
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	for key, token := range want {
		if got[key] != token {
			return "ListTokens does not show the token of " + key
		}
	}
	if len(got) != len(want) {
		return "ListTokens shows more than the tokens of deleted locks"
	}
	return ""
}

// raised returns the record for a raise of r.
func (e *env) raised(r driver.Record, by uint64) driver.Record {
	next := r.Clone()
	next.Version = e.fresh("raise")
	next.Beat, next.State, next.Owner, next.Host, next.Label = next.Version, driver.Released, "ops", "console", ""
	next.Token = r.Token + by
	next.Session, next.Notify, next.Requests, next.Priority = "", "", nil, 0
	next.Since, next.Until, next.End = time.Now(), time.Now(), driver.EndRaised
	request := e.request(driver.Raise)
	request.Token = r.Token
	next.Asked, next.Prev = &request, r.Term(driver.EndExpired).Shorten()
	return next
}

func (e *env) raise(t *testing.T, c *client, prev, next driver.Record) driver.Record {
	t.Helper()
	now, err := c.Raise(t.Context(), prev, next)
	if err != nil {
		t.Fatalf("Raise(%s, %s): %v", brief(prev), brief(next), err)
	}
	return now
}

func (c *client) Raise(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	err = c.retry(ctx, func() error {
		now, err = c.Store.(driver.Raiser).Raise(ctx, prev, next)
		return err
	})
	return now, err
}

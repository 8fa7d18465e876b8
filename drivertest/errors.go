// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// change turns a record into a record that must not replace another.
type change func(next *driver.Record, prev driver.Record)

// testErrors writes what CheckClaim and CheckSwap refuse: the store must not.
func testErrors(t *testing.T, e *env) {
	// Without the retries: an error that is only marked as not applied would
	// be retried for ever.
	store := e.clients[0].Store

	always := map[string]change{
		"NoVersion":     func(next *driver.Record, _ driver.Record) { next.Version = "" },
		"NoOwner":       func(next *driver.Record, _ driver.Record) { next.Owner = "" },
		"NoLease":       func(next *driver.Record, _ driver.Record) { next.Lease = 0 },
		"NegativeLease": func(next *driver.Record, _ driver.Record) { next.Lease = -time.Second },
		"NoState":       func(next *driver.Record, _ driver.Record) { next.State = "" },
		"StateNoWord":   func(next *driver.Record, _ driver.Record) { next.State = "fast asleep" },
		"NoSessionID":   func(next *driver.Record, _ driver.Record) { next.Session = "no/id" },
		"TokenTooHigh":  func(next *driver.Record, _ driver.Record) { next.Token = driver.MaxToken + 1 },
		"TooManyRequests": func(next *driver.Record, _ driver.Record) {
			next.Requests = make([]driver.Request, driver.MaxRequests+1)
		},
		"SessionIDTooLong": func(next *driver.Record, _ driver.Record) {
			next.Session = strings.Repeat("a", driver.MaxSessionLen+1)
		},
		"TokenOfRequestTooHigh": func(next *driver.Record, _ driver.Record) {
			next.Requests = []driver.Request{{ID: "q", Token: driver.MaxToken + 1}}
		},
	}

	t.Run("Claim", func(t *testing.T) {
		changes := maps.Clone(always)
		changes["Released"] = func(next *driver.Record, _ driver.Record) { next.State = driver.Released }
		changes["Reserved"] = func(next *driver.Record, _ driver.Record) { next.State = driver.Reserved }
		for name, change := range changes {
			t.Run(name, func(t *testing.T) {
				next := e.held(e.key())
				change(&next, driver.Record{})
				now, _, err := store.Claim(t.Context(), next)
				wantRefused(t, "Claim", now, err)
				e.wantAbsent(t, next.Key)
			})
		}
	})

	t.Run("Swap", func(t *testing.T) {
		changes := maps.Clone(always)
		changes["SameVersion"] = func(next *driver.Record, prev driver.Record) { next.Version = prev.Version }
		changes["OtherKey"] = func(next *driver.Record, _ driver.Record) { next.Key += "-other" }
		changes["TokenFalls"] = func(next *driver.Record, _ driver.Record) { next.Token-- }
		changes["TokenLeaps"] = func(next *driver.Record, _ driver.Record) { next.Token += 2 }
		swap := func(t *testing.T, prev, next driver.Record) (driver.Record, error) {
			t.Helper()
			return store.Swap(t.Context(), prev, next)
		}
		e.refuses(t, swap, e.beat, changes)
	})
}

// refuses makes writes in the place of a record under token 2, each with one change.
func (e *env) refuses(t *testing.T, send func(t *testing.T, prev, next driver.Record) (driver.Record, error),
	next func(prev driver.Record) driver.Record, changes map[string]change,
) {
	t.Helper()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			prev := e.claim(t, e.clients[0], e.held(e.key()))
			prev = e.swap(t, e.clients[0], prev, e.taken(prev))
			next := next(prev)
			change(&next, prev)
			now, err := send(t, prev, next)
			wantRefused(t, "write", now, err)
			e.wantStored(t, prev)
		})
	}
}

func wantRefused(t *testing.T, what string, now driver.Record, err error) {
	t.Helper()
	var conflict *driver.ConflictError
	switch {
	case err == nil:
		t.Errorf("%s stored %s, which the contract forbids", what, brief(now))
	case errors.As(err, &conflict):
		t.Errorf("%s of a forbidden record is a conflict: %v", what, err)
	}
}

// testUnreadable checks that no write takes a lock whose record cannot be
// decoded.
func testUnreadable(t *testing.T, e *env) {
	if e.h.PlantUnreadable == nil {
		t.Skip("the harness cannot plant an unreadable record")
	}
	ctx := t.Context()
	before, after := e.claim(t, e.clients[0], e.held("list/a")), e.claim(t, e.clients[0], e.held("list/c"))
	key := "list/b"
	e.h.PlantUnreadable(t, key)
	wantUnreadable := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrUnreadable) {
			t.Errorf("%s: error %v, want ErrUnreadable", what, err)
		}
	}
	for _, c := range e.clients {
		_, err := c.Get(ctx, key, driver.Strong)
		wantUnreadable("Get", err)
		e.eventually(t, func() string {
			if _, err := c.Get(ctx, key, driver.Eventual); !errors.Is(err, driver.ErrUnreadable) {
				return fmt.Sprintf("eventual Get: error %v, want ErrUnreadable", err)
			}
			return ""
		})
		_, _, err = c.Claim(ctx, e.held(key))
		wantUnreadable("Claim", err)
		guess := e.held(key)
		guess.Token = 1
		if now, err := c.Swap(ctx, guess, e.beat(guess)); err == nil {
			t.Errorf("Swap replaced an unreadable record by %s", brief(now))
		}
		if e.h.Raises {
			if now, err := c.Raise(ctx, guess, e.raised(guess, 1000)); err == nil {
				t.Errorf("Raise replaced an unreadable record by %s", brief(now))
			}
		}
		_, err = c.Get(ctx, key, driver.Strong)
		wantUnreadable("Get after the writes", err)

		e.eventually(t, func() string {
			records, unreadable := e.listAll(t, c, "list/", "")
			if len(records) != 2 || e.diff(records[0], before) != "" || e.diff(records[1], after) != "" {
				return "List does not show the readable records around an unreadable one"
			}
			if len(unreadable) != 1 || !errors.Is(unreadable[key], driver.ErrUnreadable) {
				return "List does not name the unreadable record"
			}
			return ""
		})
	}
}

// testVersions checks that programs of different versions can use one database.
func testVersions(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	// An older program renews, and releases, a record of a newer one, and drops
	// nothing of it. A new term has nothing of the former one.
	t.Run("LaterKept", func(t *testing.T) {
		if e.h.PlantLater == nil || e.h.HasLater == nil {
			t.Skip("the harness cannot plant what a later version writes")
		}
		rec := e.claim(t, a, e.held(e.key()))
		want := func(after string) {
			t.Helper()
			if !e.h.HasLater(t, rec.Key) {
				t.Fatalf("what a later version has written is gone after %s", after)
			}
		}
		e.h.PlantLater(t, rec.Key)
		want("PlantLater")
		for _, step := range []struct {
			name string
			next func(driver.Record) driver.Record
		}{
			{"a heartbeat", e.beat},
			{"data", func(rec driver.Record) driver.Record { return e.withData(rec, []byte("data")) }},
			{"a request", e.asked},
			{"a heartbeat over the request", e.beat},
			{"the release", e.answered},
		} {
			read := e.get(t, b, rec.Key) // another program, or the same one later
			next := step.next(read)
			e.wantEqual(t, "record after "+step.name, e.swap(t, b, read, next), next)
			want(step.name)
			e.wantStored(t, next)
		}
		// Whether the next terms have it is up to the store; they lack nothing by it.
		free := e.get(t, b, rec.Key)
		claim := e.held(rec.Key)
		now := e.claim(t, b, claim)
		e.wantEqual(t, "record after the next claim", now, driver.Claimed(claim, free, true))
		e.wantStored(t, driver.Claimed(claim, free, true))
		e.h.PlantLater(t, rec.Key)
		now = e.get(t, a, rec.Key)
		taken := e.taken(now)
		e.wantEqual(t, "record after a takeover", e.swap(t, a, now, taken), taken)
		e.wantStored(t, taken)
		if e.h.Raises {
			e.h.PlantLater(t, rec.Key)
			now = e.get(t, b, rec.Key)
			e.raise(t, b, now, e.raised(now, 1000))
			want("a raise")
		}
	})

	// The beat of a lock under a session does not change. A program that does not
	// know why would take the lock.
	t.Run("Resting", func(t *testing.T) {
		if e.h.OlderState == nil {
			t.Skip("the harness does not say what an older program reads")
		}
		if e.h.NoSessions {
			t.Skip("the harness declares no sessions")
		}
		want := func(what, key string, takes bool) {
			t.Helper()
			switch state := e.h.OlderState(t, key); state {
			case driver.Held, driver.Reserved, driver.Released:
				if !takes {
					t.Errorf("an older program reads %s as %q", what, state)
				}
			default:
				if takes {
					t.Errorf("an older program reads %s as %q", what, state)
				}
			}
		}
		session := e.claim(t, a, e.opened())
		want("a session", session.Key, false)
		rec := e.claim(t, a, e.held(e.key()))
		want("a lock with a lease of its own", rec.Key, true)
		next := e.taken(rec)
		next.Session = driver.SessionID(session.Key)
		rec = e.swap(t, b, rec, next)
		want("a lock that was taken over under a session", rec.Key, false)
		rec = e.swap(t, b, rec, e.released(rec))
		want("it when it is released", rec.Key, true)
		next = e.held(rec.Key)
		next.Session = driver.SessionID(session.Key)
		rec = e.claim(t, b, next)
		want("a lock that was claimed under a session", rec.Key, false)
		next = e.asked(rec)
		rec = e.swap(t, b, rec, next)
		want("it with a request", rec.Key, false)
		e.swap(t, a, session, e.closed(session))
		want("a closed session", session.Key, false)
	})
}

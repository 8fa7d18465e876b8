// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// testVersions checks that programs of different versions can use one database.
func testVersions(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	// An older program renews, and releases, what a newer one has written, and drops
	// nothing of it. A new tenure has nothing of the former one.
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
		// Whether the next tenures have it is up to the store; they lack nothing by it.
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
	})

	// The beat of what is held under a session stands still. A program that does not
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func testRaise(t *testing.T, e *env) {
	_, raises := e.clients[0].Store.(driver.Raiser)
	if raises != e.h.Raises {
		t.Fatalf("the harness declares Raises %t, but that the store is a driver.Raiser is %t", e.h.Raises, raises)
	}
	if !raises {
		t.Skip("the store does not raise tokens")
	}
	a, b := e.clients[0], e.clients[1]

	t.Run("Raises", func(t *testing.T) {
		for name, from := range e.raisable() {
			t.Run(name, func(t *testing.T) {
				for _, by := range []uint64{1, 2, 1000, 1 << 53} {
					rec := from(t, e.key())
					next := e.raised(rec, by)
					e.wantEqual(t, "record after Raise", e.raise(t, b, rec, next), next)
					e.wantStored(t, next)
					e.wantListed(t, next)
				}
			})
		}
	})

	// Tokens go on behind the one that was raised, and the tenures stay in order.
	t.Run("GoesOn", func(t *testing.T) {
		claim := e.held(e.key())
		claim.Data = []byte("checkpoint")
		rec := e.claim(t, a, claim)
		raised := e.raise(t, a, rec, e.raised(rec, 1000))
		next := e.held(rec.Key)
		now := e.wantClaimed(t, b, next, raised)
		if raised.Prev == nil || raised.Prev.Token != rec.Token || now.Prev.Token != rec.Token+1000 || now.Token != rec.Token+1001 {
			t.Errorf("tenures %+v, %+v, token %d after token %d was raised by 1000", raised.Prev, now.Prev, now.Token, rec.Token)
		}
		e.swap(t, b, now, e.beat(now))
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

	t.Run("EveryField", func(t *testing.T) {
		rec := e.claim(t, a, e.filled(t, e.key(), 1, driver.Held))
		next := e.filled(t, rec.Key, 2, driver.Released)
		next.Token = rec.Token + 1<<40
		e.wantEqual(t, "record after Raise", e.raise(t, b, rec, next), next)
		e.wantStored(t, next)
		e.wantListed(t, next)
	})

	t.Run("Data", e.raiseData)

	t.Run("LaterKept", func(t *testing.T) {
		if e.h.PlantLater == nil || e.h.HasLater == nil {
			t.Skip("the harness cannot plant what a later version writes")
		}
		rec := e.claim(t, a, e.held(e.key()))
		e.h.PlantLater(t, rec.Key)
		rec = e.get(t, b, rec.Key)
		e.raise(t, b, rec, e.raised(rec, 1000))
		if !e.h.HasLater(t, rec.Key) {
			t.Error("what a later version has written is gone after a raise")
		}
	})

	t.Run("Stale", e.raiseStale)

	t.Run("ComparesVersionAndTokenOnly", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		next := e.raised(rec, 1000)
		e.raise(t, b, driver.Record{Key: rec.Key, Version: rec.Version, Token: rec.Token}, next)
		e.wantStored(t, next)
	})

	// Nothing that comes late from the time before reaches it.
	t.Run("Late", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		step := e.raised(rec, 1000)
		raised := e.raise(t, b, rec, step)
		for what, next := range map[string]driver.Record{
			"heartbeat": e.beat(rec), "data": e.withData(rec, []byte("late")), "release": e.released(rec),
			"request": e.asked(rec), "takeover": e.taken(rec),
		} {
			_, err := a.Swap(t.Context(), rec, next)
			e.wantConflict(t, "late "+what, err, raised)
		}
		_, err := b.Raise(t.Context(), rec, step)
		e.wantConflict(t, "the same raise again", err, raised)
	})

	t.Run("Refused", e.raiseRefused)
	t.Run("Unreadable", e.raiseUnreadable)
	t.Run("Once", e.raiseOnce)
	t.Run("Kept", e.raiseKept)

	t.Run("Hints", func(t *testing.T) {
		if !e.h.Watches {
			t.Skip("the store does not watch")
		}
		e.byEach(t, func(t *testing.T, by *client) {
			rec := e.claim(t, a, e.held(e.key()))
			w := e.watch(t, a, rec.Key)
			e.raise(t, by, rec, e.raised(rec, 1000))
			w.want(t, e)
		})
	})

	t.Run("ContextDoneBefore", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		rec := e.claim(t, a, e.held(e.key()))
		if _, err := a.Store.(driver.Raiser).Raise(ctx, rec, e.raised(rec, 1000)); !errors.Is(err, context.Canceled) {
			t.Errorf("Raise: error %v does not match %v", err, ctx.Err())
		} else if errors.Is(err, driver.ErrNotApplied) {
			e.wantStored(t, rec)
		}
	})

	t.Run("AfterClose", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		store := e.open(t).Store
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := store.(driver.Raiser).Raise(t.Context(), rec, e.raised(rec, 1000)); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Raise after Close: error %v, want ErrClosed", err)
		}
		e.wantStored(t, rec)
	})
}

// raisable are the states from which a lock is raised.
func (e *env) raisable() map[string]func(t *testing.T, key string) driver.Record {
	a := e.clients[0]
	held := func(t *testing.T, key string) driver.Record {
		t.Helper()
		return e.claim(t, a, e.held(key))
	}
	all := map[string]func(t *testing.T, key string) driver.Record{
		"Held": held,
		"Asked": func(t *testing.T, key string) driver.Record {
			rec := held(t, key)
			return e.swap(t, a, rec, e.asked(rec))
		},
		"Released": func(t *testing.T, key string) driver.Record {
			rec := held(t, key)
			return e.swap(t, a, rec, e.released(rec))
		},
		"Reserved": func(t *testing.T, key string) driver.Record {
			rec := held(t, key)
			return e.swap(t, a, rec, e.reserved(rec, "heir"))
		},
		"ReservedForNobody": func(t *testing.T, key string) driver.Record {
			rec := held(t, key)
			return e.swap(t, a, rec, e.reserved(rec, ""))
		},
		"Raised": func(t *testing.T, key string) driver.Record {
			rec := held(t, key)
			return e.raise(t, a, rec, e.raised(rec, 7))
		},
	}
	if !e.h.NoSessions {
		all["UnderASession"] = func(t *testing.T, key string) driver.Record {
			next := e.held(key)
			next.Session = e.sessionID()
			return e.claim(t, a, next)
		}
	}
	return all
}

// raiseData checks that a raise writes the data that it is given, also where the store
// keeps long ones apart.
func (e *env) raiseData(t *testing.T) {
	a, b := e.clients[0], e.clients[1]
	for name, data := range map[string][]byte{"None": nil, "Short": []byte("checkpoint"), "Longest": bytes.Repeat([]byte{0, 1, 2, 255}, driver.MaxDataLen/4)} {
		t.Run(name, func(t *testing.T) {
			claim := e.held(e.key())
			claim.Data = data
			rec := e.claim(t, a, claim)
			next := e.raised(rec, 1000)
			rec = e.raise(t, b, rec, next)
			e.wantStored(t, next)

			other := e.raised(rec, 1000)
			other.Data = []byte("other")
			rec = e.raise(t, a, rec, other)
			e.wantStored(t, other)

			none := e.raised(rec, 1000)
			none.Data = nil
			e.raise(t, b, rec, none)
			e.wantStored(t, none)
		})
	}
}

// raiseStale raises from what does not stand there.
func (e *env) raiseStale(t *testing.T) {
	a, b := e.clients[0], e.clients[1]

	t.Run("Version", func(t *testing.T) {
		old := e.claim(t, a, e.held(e.key()))
		rec := e.swap(t, b, old, e.beat(old))
		_, err := a.Raise(t.Context(), old, e.raised(old, 1000))
		e.wantConflict(t, "Raise from a stale version", err, rec)
	})

	t.Run("OldTokenSameVersion", func(t *testing.T) {
		claim := e.held(e.key())
		first := e.claim(t, a, claim)
		e.swap(t, a, first, e.released(first))
		second := e.claim(t, b, claim)
		_, err := a.Raise(t.Context(), first, e.raised(first, 1000))
		e.wantConflict(t, "Raise from the same version under the former token", err, second)
	})

	t.Run("HigherTokenThanStored", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		ahead := rec
		ahead.Token++
		_, err := a.Raise(t.Context(), ahead, e.raised(ahead, 1000))
		e.wantConflict(t, "Raise from a token that is yet to come", err, rec)
	})

	t.Run("Absent", func(t *testing.T) {
		rec := e.held(e.key())
		rec.Token = 1
		_, err := a.Raise(t.Context(), rec, e.raised(rec, 1000))
		e.wantAbsentConflict(t, "Raise of an absent key", rec.Key, err)
	})

	// A prev without a version is a lock without a record, and no record matches it.
	t.Run("NoVersion", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		_, err := a.Raise(t.Context(), driver.Record{Key: rec.Key, Token: rec.Token}, e.raised(rec, 1000))
		e.wantConflict(t, "Raise from no version, of a lock with a record", err, rec)
		none := e.held(e.key())
		_, err = a.Raise(t.Context(), driver.Record{Key: none.Key, Token: 1}, e.raised(none, 1000))
		e.wantAbsentConflict(t, "Raise from no version, of a lock that never was", none.Key, err)
	})
}

// raiseRefused writes what CheckRaise refuses: the store must not.
func (e *env) raiseRefused(t *testing.T) {
	store := e.clients[0].Store.(driver.Raiser) // past the retries
	for name, change := range map[string]func(next *driver.Record){
		"SameToken":    func(r *driver.Record) { r.Token -= 1000 },
		"LowerToken":   func(r *driver.Record) { r.Token -= 1001 },
		"TokenTooHigh": func(r *driver.Record) { r.Token = driver.MaxToken + 1 },
		"Held":         func(r *driver.Record) { r.State = driver.Held },
		"Reserved":     func(r *driver.Record) { r.State = driver.Reserved },
		"Past":         func(r *driver.Record) { r.State = driver.Past },
		"Closed":       func(r *driver.Record) { r.State = driver.Closed },
		"UnknownState": func(r *driver.Record) { r.State = "hibernating" },
		"NoVersion":    func(r *driver.Record) { r.Version = "" },
		"OtherKey":     func(r *driver.Record) { r.Key += "-other" },
		"NoLease":      func(r *driver.Record) { r.Lease = 0 },
		"Text":         func(r *driver.Record) { r.Host = "\x00" },
	} {
		t.Run(name, func(t *testing.T) {
			rec := e.claim(t, e.clients[0], e.held(e.key()))
			rec = e.swap(t, e.clients[0], rec, e.taken(rec))
			next := e.raised(rec, 1000)
			change(&next)
			now, err := store.Raise(t.Context(), rec, next)
			wantRefused(t, "Raise", now, err)
			e.wantStored(t, rec)
		})
	}
	t.Run("SameVersion", func(t *testing.T) {
		rec := e.claim(t, e.clients[0], e.held(e.key()))
		next := e.raised(rec, 1000)
		next.Version = rec.Version
		now, err := store.Raise(t.Context(), rec, next)
		wantRefused(t, "Raise", now, err)
		e.wantStored(t, rec)
	})
	t.Run("Session", func(t *testing.T) {
		if e.h.NoSessions {
			t.Skip("the harness declares no sessions")
		}
		rec := e.claim(t, e.clients[0], e.opened())
		now, err := store.Raise(t.Context(), rec, e.raised(rec, 1000))
		wantRefused(t, "Raise", now, err)
		e.wantStored(t, rec)
	})
}

// raiseUnreadable checks that nobody raises what they cannot understand.
func (e *env) raiseUnreadable(t *testing.T) {
	if e.h.PlantUnreadable == nil {
		t.Skip("the harness cannot plant an unreadable record")
	}
	guess := e.held(e.key())
	guess.Token = 1
	e.h.PlantUnreadable(t, guess.Key)
	if now, err := e.clients[0].Raise(t.Context(), guess, e.raised(guess, 1000)); err == nil {
		t.Errorf("Raise replaced an unreadable record by %s", brief(now))
	}
	if _, err := e.clients[1].Get(t.Context(), guess.Key, driver.Strong); !errors.Is(err, driver.ErrUnreadable) {
		t.Errorf("Get after a Raise of an unreadable record: %v, want ErrUnreadable", err)
	}
}

// raiseOnce has several raise from one record: one of them does.
func (e *env) raiseOnce(t *testing.T) {
	for range max(e.h.Ops/100, 5) {
		rec := e.claim(t, e.clients[0], e.held(e.key()))
		e.oneWins(t, func(c *client) (driver.Record, error) { return c.Raise(t.Context(), rec, e.raised(rec, 1000)) })
	}
}

// raiseKept raises the tokens of locks whose records were deleted.
func (e *env) raiseKept(t *testing.T) {
	a, b := e.clients[0], e.clients[1]
	lister, lists := a.Store.(driver.TokenLister)
	if !e.h.TokensOutliveDelete {
		if lists && lister.KeepsTokens() {
			t.Error("the store says that it keeps tokens of deleted locks, and the harness does not declare it")
		}
		t.Skip("the harness declares no tokens that outlive a deletion")
	}
	if !lists || !lister.KeepsTokens() {
		t.Fatal("the harness declares TokensOutliveDelete: a store that raises must list them, as a driver.TokenLister")
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
		e.wantAbsentConflict(t, "Raise from another token than the one that is kept", key, err)
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

// listsTokens says what is wrong with the tokens that are listed, "" if nothing is.
func (e *env) listsTokens(t *testing.T, prefix string, want map[string]uint64) string {
	t.Helper()
	lister := e.clients[0].Store.(driver.TokenLister)
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
	next.Session, next.Bell, next.Requests, next.Priority = "", "", nil, 0
	next.Since, next.Until, next.End = time.Now(), time.Now(), driver.EndRaised
	request := e.request(driver.Raise)
	request.Token = r.Token
	next.Asked, next.Prev = &request, r.Tenure(driver.EndExpired).Brief()
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// testGuarded has the engine go back to an earlier state.
func testGuarded(t *testing.T, e *env) {
	guarded, is := e.clients[0].Store.(driver.Guarded)
	is = is && guarded.Waits() > 0
	if is != (e.h.Lose != nil) {
		t.Fatalf("the harness has Lose: %t, but whether the store is a driver.Guarded that waits is %t", e.h.Lose != nil, is)
	}
	if !is {
		if rec := e.claim(t, e.clients[0], e.held(e.key())); rec.Life != "" || e.get(t, e.clients[1], rec.Key).Life != "" {
			t.Errorf("the engine loses nothing, and its records name its life %q: sessions would end with it", rec.Life)
		}
		t.Skip("the engine loses nothing")
	}
	waits := guarded.Waits()
	for _, c := range e.clients {
		if got := c.Store.(driver.Guarded).Waits(); got != waits {
			t.Errorf("one client waits %v, another %v", waits, got)
		}
	}
	t.Run("Life", e.guardedLife)
	t.Run("Closed", func(t *testing.T) { e.guardedClosed(t, waits) })
	t.Run("Survivor", e.guardedSurvivor)
	t.Run("Bound", e.guardedBound)
	t.Run("Session", e.guardedSession)
	t.Run("Opens", func(t *testing.T) { e.guardedOpens(t, waits) })
	t.Run("Tokens", e.guardedTokens)
	t.Run("Lease", func(t *testing.T) {
		next := e.held(e.key())
		next.Lease = waits + time.Second
		_, _, err := e.clients[0].Store.Claim(t.Context(), next)
		if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("Claim with a lease of %v, where a contender waits %v: %v, want ErrUnsupported and ErrNotApplied", next.Lease, waits, err)
		}
	})
}

// raisingWrites are the writes that raise the token of a lock, from the record that was read.
func (e *env) raisingWrites(rec driver.Record) map[string]func(*testing.T, *client, driver.Opening) error {
	return map[string]func(*testing.T, *client, driver.Opening) error{
		"Claim": func(t *testing.T, c *client, o driver.Opening) error {
			next := e.held(rec.Key)
			next.Opens = o
			_, _, err := c.Claim(t.Context(), next)
			return err
		},
		"Swap": func(t *testing.T, c *client, o driver.Opening) error {
			next := e.taken(rec)
			next.Opens = o
			_, err := c.Swap(t.Context(), rec, next)
			return err
		},
		"Raise": func(t *testing.T, c *client, o driver.Opening) error {
			raiser, is := c.Store.(driver.Raiser)
			if !is {
				t.Skip("the store does not raise tokens")
			}
			next := e.raised(rec, 1000)
			next.Opens = o
			_, err := raiser.Raise(t.Context(), rec, next)
			return err
		},
	}
}

// guardedLife: each record that the store returns names the life, which is not stored.
func (e *env) guardedLife(t *testing.T) {
	a, b := e.clients[0], e.clients[1]
	next := e.held(e.key())
	next.Life = "forged"
	rec := e.claim(t, a, next)
	life := rec.Life
	is := func(what string, rec driver.Record) {
		t.Helper()
		if rec.Life != life || life == "" || life == "forged" || len(life) > 57 {
			t.Errorf("%s: the life is %q, want %q, of at most 57 bytes", what, rec.Life, life)
		}
		if rec.Opens != (driver.Opening{}) {
			t.Errorf("%s: the record still opens %v", what, rec.Opens)
		}
	}
	is("Claim", rec)
	is("Get", e.get(t, b, rec.Key))
	_, _, err := b.Claim(t.Context(), e.held(rec.Key))
	if c := asConflict(t, "Claim of a held record", rec.Key, err); c != nil {
		is("the conflict of Claim", c.Current)
	}
	_, err = b.Swap(t.Context(), driver.Record{Key: rec.Key, Version: "other", Token: rec.Token}, e.beat(rec))
	if c := asConflict(t, "Swap from another version", rec.Key, err); c != nil {
		is("the conflict of Swap", c.Current)
	}
	next = e.beat(rec)
	next.Opens = driver.OpeningOf(life, time.Now())
	rec = e.swap(t, b, rec, next)
	is("Swap", rec)
	page, err := a.List(t.Context(), rec.Key, "")
	if err != nil || len(page.Records) != 1 {
		t.Fatalf("List: %d records, %v", len(page.Records), err)
	}
	is("List", page.Records[0])

	lose := e.h.Lose(t)
	for range 3 {
		lose()
		if now := e.get(t, b, rec.Key); now.Life == life || now.Life == "" {
			t.Errorf("after a loss the life is %q still", now.Life)
		} else {
			life = now.Life
		}
	}
}

// grant claims next, and opens the life of the engine if that is closed, as a process may that has
// seen it for long enough.
func (e *env) grant(t *testing.T, c *client, next driver.Record) driver.Record {
	t.Helper()
	for range 4 {
		now, _, err := c.Claim(t.Context(), next)
		if err == nil {
			return now
		}
		conflict := asConflict(t, "Claim", next.Key, err)
		if conflict == nil {
			break
		}
		next.Opens = driver.OpeningOf(conflict.Current.Life, time.Now())
	}
	t.Fatalf("Claim(%s) was not granted in a life that it may open", brief(next))
	return next
}

// guardedClosed: in a closed life no write raises a token, and Get and conflicts agree.
func (e *env) guardedClosed(t *testing.T, waits time.Duration) {
	a, b := e.clients[0], e.clients[1]
	absent := e.key()
	free := e.grant(t, a, e.held(e.key()))
	free = e.swap(t, a, free, e.released(free))
	kept := e.grant(t, a, e.held(e.key()))
	kept = e.swap(t, a, kept, e.reserved(kept, "next"))
	held := e.grant(t, a, e.held(e.key()))
	e.h.Lose(t)()

	for name, stored := range map[string]driver.Record{
		"Absent": {Key: absent}, "Released": free, "Reserved": kept, "Held": held,
	} {
		t.Run(name, func(t *testing.T) {
			shown, want := e.get(t, b, stored.Key), stored
			if name == "Absent" {
				stored = driver.Record{}
			}
			if name != "Held" {
				want = driver.InClosedLife(stored, want.Key, shown.Life, waits)
				if shown.Version != shown.Life || shown.State != driver.Reserved || shown.Owner != "" || shown.Label != "" {
					t.Errorf("Get shows %s, want it reserved for nobody, under the life %q as its version", brief(shown), shown.Life)
				}
			}
			e.wantStored(t, want)
			if name != "Absent" {
				e.wantListed(t, want)
			}
			forged := driver.OpeningOf("another", time.Now())
			for write, do := range e.raisingWrites(shown) {
				for what, opens := range map[string]driver.Opening{"nothing": {}, "another life": forged} {
					t.Run(write, func(t *testing.T) { // "next" is refused like all others
						e.wantConflict(t, write+" that opens "+what, do(t, a, opens), want)
					})
				}
			}
		})
	}
	t.Run("NoLock", func(t *testing.T) { // history is written as usual, and its keys show what is there
		past := e.past(driver.OwnPrefix + e.key())
		e.wantAbsent(t, past.Key)
		e.wantStored(t, e.claim(t, a, past))
	})
}

// guardedSurvivor: a holder whose record survived goes on in a closed life, and releases its lock.
func (e *env) guardedSurvivor(t *testing.T) {
	a, b := e.clients[0], e.clients[1]
	rec := e.grant(t, a, e.held(e.key()))
	rec.Life = "" // the holder's writes are bound to no life
	older := rec
	rec = e.swap(t, a, rec, e.beat(rec))
	lose := e.h.Lose(t)
	lost := e.swap(t, a, rec, e.beat(rec))
	lost.Life, rec.Life = "", ""
	lose()
	_, err := a.Swap(t.Context(), lost, e.beat(lost))
	e.wantConflict(t, "Swap from a version that was lost", err, rec)
	rec = e.swap(t, b, rec, e.asked(rec))
	rec = e.swap(t, a, rec, e.beat(rec))
	e.wantStored(t, rec)

	// A process that opens the life ends no holder, and neither does a takeover that comes too late.
	next := e.beat(rec)
	next.Opens = driver.OpeningOf(rec.Life, time.Now())
	rec = e.swap(t, a, rec, next)
	_, err = b.Swap(t.Context(), older, e.taken(older))
	e.wantConflict(t, "takeover from an older version", err, rec)
	e.wantStored(t, e.swap(t, a, rec, e.released(rec)))
}

// guardedBound: a write that is bound to the life in which its caller read the record is not carried
// out in another one.
func (e *env) guardedBound(t *testing.T) {
	a, b := e.clients[0], e.clients[1]
	rec := e.grant(t, a, e.held(e.key()))
	e.h.Lose(t)()
	_, err := a.Swap(t.Context(), rec, e.beat(rec))
	e.wantConflict(t, "Swap of a record of another life", err, rec)
	_, err = b.Swap(t.Context(), rec, e.released(rec))
	e.wantConflict(t, "release of a record of another life", err, rec)
	e.wantConflict(t, "Delete of a record of another life", b.Delete(t.Context(), rec), rec)
	next := e.taken(rec)
	next.Opens = driver.OpeningOf(e.get(t, b, rec.Key).Life, time.Now())
	_, err = b.Swap(t.Context(), rec, next)
	e.wantConflict(t, "takeover of a record of another life", err, rec)
	if raiser, is := b.Store.(driver.Raiser); is {
		_, err = raiser.Raise(t.Context(), rec, e.raised(rec, 1000))
		e.wantConflict(t, "Raise of a record of another life", err, rec)
	}
	rec = e.get(t, b, rec.Key)
	e.wantStored(t, e.swap(t, b, rec, e.released(rec)))
}

// guardedSession: a session ends with the life in which it was opened.
func (e *env) guardedSession(t *testing.T) {
	if e.h.NoSessions {
		t.Skip("the store has no sessions")
	}
	a := e.clients[0]
	rec := e.claim(t, a, e.opened())
	rec = e.swap(t, a, rec, e.beat(rec))
	rec.Life = "" // as in the process that opened it
	e.h.Lose(t)()
	next := e.beat(rec)
	next.Opens = driver.OpeningOf(e.get(t, a, rec.Key).Life, time.Now())
	_, err := a.Swap(t.Context(), rec, next)
	if c := asConflict(t, "heartbeat of a session in another life", rec.Key, err); c != nil {
		if c.Current.State != driver.Closed || c.Current.End != driver.EndExpired || c.Current.Token != rec.Token {
			t.Errorf("the heartbeat of a session in another life shows %s, want it closed", brief(c.Current))
		}
	}
	e.wantStored(t, rec)
	e.wantStored(t, e.swap(t, a, rec, e.closed(rec)))

	rec = e.claim(t, a, e.opened()) // one of this life
	e.wantStored(t, e.swap(t, a, rec, e.beat(rec)))
}

// guardedOpens: each write that names the life opens it, whatever becomes of the write.
func (e *env) guardedOpens(t *testing.T, waits time.Duration) {
	a, b := e.clients[0], e.clients[1]
	for name, open := range map[string]func(t *testing.T, held driver.Record, o driver.Opening){
		"Heartbeat": func(t *testing.T, held driver.Record, o driver.Opening) {
			next := e.beat(held)
			next.Opens = o
			e.swap(t, a, held, next)
		},
		"Conflict": func(t *testing.T, held driver.Record, o driver.Opening) {
			next := e.held(held.Key)
			next.Opens = o
			if _, _, err := a.Claim(t.Context(), next); err == nil {
				t.Errorf("Claim of %s was granted", brief(held))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			held := e.grant(t, a, e.held(e.key()))
			held.Life = ""
			absent := e.key()
			released := map[*client]driver.Record{} // by a, which may remember that
			for _, c := range []*client{a, b} {
				rec := e.grant(t, a, e.held(e.key()))
				released[c] = e.swap(t, a, rec, e.released(rec))
			}
			e.h.Lose(t)()
			open(t, held, driver.OpeningOf(e.get(t, a, held.Key).Life, time.Now()))
			e.wantAbsent(t, absent) // as each handle sees
			now, _, err := b.Claim(t.Context(), e.held(absent))
			conflict := asConflict(t, "first Claim in a life", absent, err)
			if conflict == nil {
				t.Fatalf("granted %s", brief(now))
			}
			raised := conflict.Current
			if raised.State != driver.Released || raised.End != driver.EndRaised || raised.Token < 1<<40 {
				t.Errorf("the first Claim in a life shows %s, want a token raised by the clock", brief(raised))
			}
			e.wantStored(t, raised)
			e.wantClaimed(t, b, e.held(absent), raised)
			for c, free := range released {
				now, _, err := c.Claim(t.Context(), e.held(free.Key))
				conflict := asConflict(t, "first Claim of a released lock in a life", free.Key, err)
				if conflict == nil {
					t.Fatalf("granted %s", brief(now))
				}
				if r := conflict.Current; r.End != driver.EndRaised || r.Token < 1<<40 || r.Prev == nil || r.Prev.Token != free.Token {
					t.Errorf("the first Claim of %s in a life shows %s, want its token raised", brief(free), brief(r))
				}
				e.wantClaimed(t, c, e.held(free.Key), conflict.Current)
			}

			// From what a closed life has shown, no lock is taken over.
			free := driver.InClosedLife(driver.Record{}, e.key(), raised.Life, waits)
			_, err = a.Swap(t.Context(), free, e.taken(free))
			if c := asConflict(t, "takeover of a lock that was shown as reserved for nobody", free.Key, err); c != nil {
				if c.Current.End != driver.EndRaised {
					t.Errorf("it shows %s, want its token raised", brief(c.Current))
				}
				e.wantClaimed(t, a, e.held(free.Key), c.Current)
			}
		})
	}
}

// guardedTokens: no token is given twice, although its grant was lost, and a dead holder's lock gets
// a token of the life that is open.
func (e *env) guardedTokens(t *testing.T) {
	a, b := e.clients[0], e.clients[1]
	rec := e.grant(t, a, e.held(e.key()))
	rec.Life = ""
	first := rec
	seen := map[uint64]bool{rec.Token: true}
	lose := e.h.Lose(t)
	for i := range 3 {
		lose()
		life := e.get(t, b, rec.Key).Life
		next := e.taken(first)
		// Later by the clock of the process that opens: a life is opened a lease after it began.
		next.Opens = driver.OpeningOf(life, time.Now().Add(time.Duration(i+1)*time.Minute))
		_, err := b.Swap(t.Context(), first, next)
		conflict := asConflict(t, "takeover that opens the life", rec.Key, err)
		if conflict == nil {
			return
		}
		raised := conflict.Current
		if raised.State != driver.Released || raised.End != driver.EndRaised || raised.Asked == nil || raised.Asked.Token != first.Token ||
			raised.Prev == nil || raised.Prev.Token != first.Token || raised.Prev.Owner != first.Owner {
			t.Errorf("the takeover of %s shows %s after %v, want its token raised", brief(first), brief(raised), raised.Prev)
		}
		rec = e.wantClaimed(t, b, e.held(rec.Key), raised)
		if seen[rec.Token] {
			t.Errorf("token %d was granted twice", rec.Token)
		}
		seen[rec.Token] = true
		rec = e.swap(t, b, rec, e.released(rec))
		rec = e.claim(t, a, e.held(rec.Key)) // one higher, as ever
		rec.Life = ""
		if seen[rec.Token] {
			t.Errorf("token %d was granted twice", rec.Token)
		}
		seen[rec.Token] = true
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"cmp"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

// manyDead is more locks, and more sessions, than a client remembers whole.
const manyDead = 10_100

// bury lays down the record of a lock, or of a session, whose holder is dead.
func (w *world) bury(rec driver.Record) {
	w.t.Helper()
	rec.Version = rand.Text() + "-" + rand.Text()
	rec.Beat, rec.Token = rec.Version, 1
	rec.Owner, rec.Lease, rec.Heartbeat, rec.Since = "dead", cmp.Or(rec.Lease, lease), heartbeat, time.Now()
	if _, _, err := w.records.Claim(w.t.Context(), rec); err != nil {
		w.t.Fatal(err)
	}
}

// What is remembered of locks that nobody waits for is bounded: one that is too
// many costs a lease of waiting, no more.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	for _, of := range []struct{ lease, later time.Duration }{
		{lease, time.Second},
		{time.Hour, 30 * time.Minute}, // long after what the client's own lease would have kept
	} {
		if testing.Short() && of.lease > lease {
			continue
		}
		inWorldRun(t, of.lease.String(), func(t *testing.T, w *world) { rememberedIsBounded(t, w, of.lease, of.later) })
	}
}

func rememberedIsBounded(t *testing.T, w *world, lease, later time.Duration) {
	const whole, marked, tooMany = 10_000, 50_000, 700
	locks := names(whole + marked + tooMany)
	for _, name := range locks {
		w.bury(driver.Record{Key: name, State: driver.Held, Lease: lease})
	}
	b := w.machine("b")
	counted := func() (n int) {
		for _, name := range locks {
			s, err := b.Status(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if s.Unchanged > 0 {
				n++
			}
		}
		return n
	}
	counted()
	time.Sleep(later)
	if n := counted(); n < whole+marked-1 || n > whole+marked+1 {
		t.Errorf("of %d locks it was known since when they had not changed, want %d", n, whole+marked)
	}
}

// tries has b try all locks in turn, and returns how many it has taken. It releases
// those.
func tries(t *testing.T, b *machine, locks []string) (taken int) {
	t.Helper()
	for _, name := range locks {
		l, err := b.TryAcquire(t.Context(), name, nil)
		switch {
		case err == nil:
			taken++
			b.mustRelease(l)
		case !errors.Is(err, tenure.ErrHeld):
			t.Fatal(err)
		}
	}
	return taken
}

// Each of more dead holders' locks than a client remembers is taken by who tries
// them in turn.
func TestTryAcquireManyDeadLocks(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	for name, session := range map[string]bool{"their own leases": false, "a session each": true} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			locks := names(manyDead)
			for _, name := range locks {
				rec := driver.Record{Key: name, State: driver.Held}
				if session {
					rec.Session = rand.Text()
					w.bury(driver.Record{Key: driver.SessionKey(rec.Session), State: driver.Alive})
				}
				w.bury(rec)
			}
			b := w.machine("b")
			if n := tries(t, b, locks); n > 0 {
				t.Fatalf("took %d locks of holders that may live", n)
			}
			time.Sleep(lease - time.Second)
			if n := tries(t, b, locks); n > 0 {
				t.Fatalf("took %d locks of holders that may live, when it has tried twice", n)
			}
			// One is not dead after all.
			sign := locks[7]
			if session {
				sign = driver.SessionKey(w.record(sign).Session)
			}
			rec := w.record(sign)
			next := rec
			next.Version = rec.Version + "-2"
			next.Beat = next.Version
			if _, err := w.records.Swap(t.Context(), rec, next); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if n := tries(t, b, locks); n != manyDead-1 {
				t.Errorf("took %d of %d, in the first round after a lease", n, manyDead-1)
			}
			if owner := w.record(locks[7]).Owner; owner != "dead" {
				t.Errorf("%s has taken the lock of one that lives", owner)
			}
			time.Sleep(lease + time.Second)
			if n := tries(t, b, locks); n != manyDead {
				t.Errorf("took %d of %d in the end", n, manyDead)
			}
		})
	}
}

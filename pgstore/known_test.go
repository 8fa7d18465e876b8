// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestKnownRelease claims locks that the store has released itself: with what others have
// done with them since.
func TestKnownRelease(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, enginetest.PostgreSQL(t))
	relay := enginetest.NewRelay(t, hostOf(t, database))
	s, other := mustOpen(t, with(t, through(t, database, relay.Addr), "pool_max_conns", "1")), mustOpen(t, database)
	ctx := t.Context()
	// free returns a lock that s has released, with all that a release may say.
	free := func(t *testing.T, key string) driver.Record {
		t.Helper()
		rec := held(key)
		rec.Data = []byte("data of " + key)
		rec = enginetest.Claim(t, s, rec)
		next := released(rec)
		next.Asked = &driver.Request{ID: "r", By: "somebody", Reason: strings.Repeat("long ", 200), At: time.Now()}
		next.Since, next.Until = time.Now().Add(-time.Hour), time.Now()
		rec = enginetest.Swap(t, s, rec, next)
		s.tell.await()
		relay.Trips()
		return rec
	}
	claim := func(t *testing.T, s *Store, next driver.Record, trips int) (now, prev driver.Record) {
		t.Helper()
		now, prev, err := s.Claim(ctx, next)
		if err != nil {
			t.Fatal(err)
		}
		if n := relay.Trips(); n != trips {
			t.Errorf("%d round trips, want %d", n, trips)
		}
		return now, prev
	}
	stands := func(t *testing.T, want driver.Record) {
		t.Helper()
		if is, err := other.Get(ctx, want.Key, driver.Strong); err != nil || !reflect.DeepEqual(is, want) {
			t.Errorf("%v\nthere is  %+v\nthe claim %+v", err, is, want)
		}
	}
	t.Run("as any other claim", func(t *testing.T) {
		for name, data := range map[string][]byte{"keeps": nil, "empties": {}, "replaces": []byte("new")} {
			known, unknown := free(t, "known-"+name), free(t, "unknown-"+name)
			s.free.Forget(unknown.Key)
			next := held(known.Key)
			next.Data = data
			now, prev := claim(t, s, next, 1)
			stands(t, now)
			if !reflect.DeepEqual(prev, known) {
				t.Errorf("%s: the former record\n%+v, want\n%+v", name, prev, known)
			}
			next.Key = unknown.Key
			same, _ := claim(t, s, next, 1)
			same.Key = now.Key
			if data == nil {
				same.Data = now.Data
			}
			same.Prev, now.Prev = timeless(same.Prev), timeless(now.Prev)
			if !reflect.DeepEqual(now, same) {
				t.Errorf("%s: a claim of what is known\n%+v, and of another\n%+v", name, now, same)
			}
		}
	})
	t.Run("another holds it", func(t *testing.T) {
		rec := free(t, "held")
		theirs := enginetest.Claim(t, other, held(rec.Key))
		_, _, err := s.Claim(ctx, held(rec.Key))
		if is, ok := isConflict(err); !ok || is.Version != theirs.Version {
			t.Errorf("%v, want a conflict with %q", err, theirs.Version)
		}
		if n := relay.Trips(); n != 2 {
			t.Errorf("%d round trips, want 2", n)
		}
	})
	t.Run("another has held it", func(t *testing.T) {
		rec := free(t, "again")
		theirs := enginetest.Claim(t, other, held(rec.Key))
		theirs = enginetest.Swap(t, other, theirs, released(theirs))
		now, prev := claim(t, s, held(rec.Key), 2)
		if now.Token != rec.Token+2 || prev.Version != theirs.Version {
			t.Errorf("token %d after %d, former version %q, want %q", now.Token, rec.Token, prev.Version, theirs.Version)
		}
		stands(t, now)
	})
	t.Run("it was deleted", func(t *testing.T) {
		rec := free(t, "gone")
		if err := other.Delete(ctx, rec); err != nil {
			t.Fatal(err)
		}
		if now, _ := claim(t, s, held(rec.Key), 2); now.Token != 1 || now.Prev != nil {
			t.Errorf("token %d after %+v, want those of a new key", now.Token, now.Prev)
		}
	})
	t.Run("somebody has reserved it by hand", func(t *testing.T) {
		rec := free(t, "hand")
		mustExec(t, database, "UPDATE "+DefaultTable+" SET state = 'reserved' WHERE name = $1", rec.Key)
		_, _, err := s.Claim(ctx, held(rec.Key))
		if is, ok := isConflict(err); !ok || is.State != driver.Reserved {
			t.Errorf("%v, want a conflict with what is reserved", err)
		}
	})
	t.Run("what is not remembered", func(t *testing.T) {
		for _, odd := range []func(*driver.Record){
			func(r *driver.Record) { r.Data = make([]byte, longestReleased+1) },
			func(r *driver.Record) { r.Token = driver.MaxToken },
			func(r *driver.Record) { r.State = driver.Held },
		} {
			r := released(held("k"))
			odd(&r)
			if _, kept := freed(r).Kept(); kept {
				t.Errorf("%+v is remembered", r)
			}
		}
	})
}

// timeless returns a term without the instants of its life.
func timeless(t *driver.Term) *driver.Term {
	c := *t
	c.Since, c.Until = time.Time{}, time.Time{}
	if c.Asked != nil {
		asked := *c.Asked
		asked.At = time.Time{}
		c.Asked = &asked
	}
	return &c
}

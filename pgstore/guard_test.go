// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// takeover returns the record for a takeover of rec.
func takeover(rec driver.Record) driver.Record {
	next := beat(rec)
	next.Owner, next.Token, next.State, next.End, next.Prev = "b", rec.Token+1, driver.Held, "", rec.Term(driver.EndExpired)
	return next
}

// guardsOf are both ways to call the guard, each in a transaction of its own that is
// rolled back.
func guardsOf(t *testing.T, database string, s *Store) map[string]func(lock string, token uint64) error {
	t.Helper()
	pool := connect(t, database)
	db, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		_ = db.Close()
	})
	return map[string]func(lock string, token uint64) error{
		"pgx": func(lock string, token uint64) error {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context()) //nolint:errcheck // it may have failed
			return s.Guard(t.Context(), tx, lock, token)
		},
		"sql": func(lock string, token uint64) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			return s.GuardSQL(t.Context(), tx, lock, token)
		},
	}
}

func TestGuard(t *testing.T) {
	database := newDatabase(t, enginetest.PostgreSQL(t))
	s := mustOpen(t, database)
	guards := guardsOf(t, database, s)
	check := func(what string, token uint64, want error, text string) {
		t.Helper()
		for name, guard := range guards {
			err := guard("reports", token)
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s, %s: %v, want %v", what, name, err, want)
			}
			if err != nil && (!strings.Contains(err.Error(), text) || strings.Count(err.Error(), "reports") != 1) {
				t.Errorf("%s, %s: %q, want it with %q, and the lock named once", what, name, err, text)
			}
			if stale := (*StaleError)(nil); errors.As(err, &stale) && (stale.Lock != "reports" || stale.Token != token || stale.Highest < token) {
				t.Errorf("%s, %s: %+v", what, name, stale)
			}
		}
	}
	check("no record", 1, ErrUnknownToken, "no record in table public.tenure_records")
	rec := enginetest.Claim(t, s, held("reports"))
	enginetest.Swap(t, s, rec, released(rec))
	rec = enginetest.Claim(t, s, held("reports"))
	check("the holder's", 2, nil, "")
	check("a former one", 1, ErrStale, "token 1 is stale, token 2 was granted")
	check("one to come", 3, ErrUnknownToken, "token 3, of a lock whose record in table public.tenure_records has token 2")
	check("none", 0, ErrStale, "token 0 is stale")
	rec = enginetest.Swap(t, s, rec, beat(rec))
	check("after a heartbeat", 2, nil, "")
	under := takeover(rec)
	under.Session = "session-1"
	rec = enginetest.Swap(t, s, rec, under)
	check("after a takeover", 2, ErrStale, "token 2 is stale, token 3 was granted: another holder has begun, stop")
	check("held under a session", 3, nil, "")
	enginetest.Swap(t, s, rec, released(rec))
	check("released", 3, ErrStale, "its term has ended, the lock is released under token 3; stop")
	mustExec(t, database, "UPDATE tenure_records SET token = 0")
	check("a token of nobody", 3, driver.ErrUnreadable, "token 0 is not positive")
	mustExec(t, database, "DROP TABLE tenure_records CASCADE")
	check("no table", 3, ErrUnknownToken, "without table public.tenure_records")
}

// TestGuardHoldsTheLock: no other takes the lock over between the guard and the commit.
func TestGuardHoldsTheLock(t *testing.T) {
	database := newDatabase(t, enginetest.PostgreSQL(t))
	s := mustOpen(t, database)
	rec := enginetest.Claim(t, s, held("lock"))
	pool := connect(t, database)
	defer pool.Close()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // after a commit
	if err := s.Guard(t.Context(), tx, "lock", 1); err != nil {
		t.Fatal(err)
	}
	for name, guard := range guardsOf(t, database, s) { // another guard of the same token
		if err := guard("lock", 1); err != nil {
			t.Errorf("%s beside it: %v", name, err)
		}
	}
	taken := make(chan error, 1)
	go func() {
		_, err := s.Swap(t.Context(), rec, takeover(rec))
		taken <- err
	}()
	select {
	case err := <-taken:
		t.Fatalf("a takeover before the end of the transaction: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
}

// TestGuardOldSnapshot has a transaction read before the takeover, and so see the record of
// that time: Guard must not believe it.
func TestGuardOldSnapshot(t *testing.T) {
	database := newDatabase(t, enginetest.PostgreSQL(t))
	s := mustOpen(t, database)
	rec := enginetest.Claim(t, s, held("lock"))
	pool := connect(t, database)
	defer pool.Close()
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: isolation})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM tenure_records"); err != nil {
			t.Fatal(err)
		}
		former := rec.Token
		rec = enginetest.Swap(t, s, rec, takeover(rec))
		err = s.Guard(t.Context(), tx, "lock", former)
		if again := (*pgconn.PgError)(nil); !errors.Is(err, ErrStale) && !(errors.As(err, &again) && again.Code == "40001") {
			t.Errorf("%s: %v, want ErrStale, or that the transaction must begin again", isolation, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

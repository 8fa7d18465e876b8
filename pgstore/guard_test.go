// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
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
	next.Owner, next.Token, next.State, next.End, next.Prev = "b", rec.Token+1, driver.Held, "", rec.Tenure(driver.EndExpired)
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
	check("released", 3, ErrStale, "its tenure has ended, the lock is released under token 3; stop")
	mustExec(t, database, "UPDATE tenure_records SET format = 2")
	check("a later format", 3, driver.ErrUnreadable, "format 2")
	mustExec(t, database, "DROP TABLE tenure_records")
	check("no table", 3, ErrUnknownToken, "without table public.tenure_records")
}

// TestGuardHoldsTheLock: nobody takes the lock over between the guard and the commit.
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

// TestGuardInterleavings has two holders write under guards while the lock changes hands,
// at random, at each isolation level: the writes stand in the order of their tokens.
func TestGuardInterleavings(t *testing.T) {
	server := enginetest.PostgreSQL(t)
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(strings.ReplaceAll(string(isolation), " ", "-"), func(t *testing.T) {
			database := newDatabase(t, server)
			mustExec(t, database, "CREATE TABLE written (n bigserial PRIMARY KEY, token bigint NOT NULL)")
			s := mustOpen(t, database)
			pool := connect(t, database)
			defer pool.Close()
			rec := enginetest.Claim(t, s, held("lock"))
			ctx, stop := context.WithCancel(t.Context())
			var highest sync.Map // of what was granted
			highest.Store("token", rec.Token)
			var writers sync.WaitGroup
			var mu sync.Mutex
			passed, refused := 0, 0
			for range 4 {
				writers.Go(func() {
					for ctx.Err() == nil {
						token, _ := highest.Load("token")
						<-time.After(time.Duration(rand.IntN(3)) * time.Millisecond) // the schedule is made by it
						err := guardedWrite(t.Context(), s, pool, isolation, token.(uint64))
						mu.Lock()
						switch {
						case err == nil:
							passed++
						case errors.Is(err, ErrStale):
							refused++
						case !busy(err):
							t.Error(err)
						}
						mu.Unlock()
					}
				})
			}
			for range 150 {
				now, err := s.Swap(t.Context(), rec, takeover(rec))
				if busy(err) {
					continue
				}
				if err != nil {
					t.Error(err)
					break
				}
				rec = now
				highest.Store("token", rec.Token)
				<-time.After(time.Duration(rand.IntN(5)) * time.Millisecond) // as above
			}
			stop()
			writers.Wait()
			t.Logf("%d writes, %d refused", passed, refused)
			if passed < 20 || refused < 5 {
				t.Errorf("too little has happened: %d writes, %d refused", passed, refused)
			}
			if n := ask[int64](t, database, "SELECT count(*) FROM (SELECT token, max(token) OVER (ORDER BY n) AS m FROM written) AS w WHERE token < m"); n > 0 {
				t.Errorf("%d writes stand behind one of a higher token", n)
			}
		})
	}
}

func guardedWrite(ctx context.Context, s *Store, pool interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}, isolation pgx.TxIsoLevel, token uint64,
) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: isolation})
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after a commit
	if err := s.Guard(ctx, tx, "lock", token); err != nil {
		return err
	}
	<-time.After(time.Duration(rand.IntN(3)) * time.Millisecond) // the holder is paused
	if _, err := tx.Exec(ctx, "INSERT INTO written (token) VALUES ($1)", int64(token)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return tx.Commit(ctx)
}

// busy says that the engine wants the transaction anew.
func busy(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01")
}

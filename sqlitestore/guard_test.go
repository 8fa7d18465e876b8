// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// guarded returns a store in a program's database, in which a lock is held
// under token 2.
func guarded(t *testing.T) (db *sql.DB, s *Store, rec driver.Record) {
	t.Helper()
	db = handle(t, filepath.Join(t.TempDir(), "app.db"), "synchronous(normal)")
	mustRun(t, db, "CREATE TABLE ledger (entry INTEGER PRIMARY KEY, writer INTEGER, holder INTEGER)")
	s = mustNew(t, db)
	rec = enginetest.Claim(t, s, held("reports", "a"))
	enginetest.Swap(t, s, rec, released(rec))
	return db, s, enginetest.Claim(t, s, held("reports", "a"))
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// takeover returns the record for a takeover of rec.
func takeover(rec driver.Record) driver.Record {
	taken := next(rec)
	taken.Owner, taken.Token, taken.State = "b", rec.Token+1, driver.Held
	taken.End, taken.Prev = "", rec.Term(driver.EndExpired)
	return taken
}

func TestGuard(t *testing.T) {
	db, s, rec := guarded(t)
	check := func(what string, token uint64, want error, text string) {
		t.Helper()
		tx := begin(t, db)
		defer func() { _ = tx.Rollback() }()
		err := Guard(t.Context(), tx, "reports", token)
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		if err != nil && (!strings.Contains(err.Error(), text) || strings.Count(err.Error(), "reports") != 1) {
			t.Errorf("%s: %q, want it with %q, and the lock named once", what, err, text)
		}
		if want := (*StaleError)(nil); errors.As(err, &want) && (want.Lock != "reports" || want.Token != token || want.Highest < token) {
			t.Errorf("%s: %+v", what, want)
		}
	}
	check("the holder's", 2, nil, "")
	check("a former one", 1, ErrStale, "token 1 is stale, token 2 was granted")
	check("one to come", 3, ErrUnknownToken, "token 3, of a lock whose record in this database has token 2")
	check("none", 0, ErrStale, "token 0 is stale")
	rec = enginetest.Swap(t, s, rec, next(rec))
	check("after a heartbeat", 2, nil, "")
	ending := next(rec)
	ending.End, ending.Requests = driver.EndStalled, []driver.Request{{ID: "q", Kind: driver.StepDown}}
	rec = enginetest.Swap(t, s, rec, ending)
	check("held still", 2, nil, "")
	rec = enginetest.Swap(t, s, rec, takeover(rec))
	check("after a takeover", 2, ErrStale, "token 2 is stale, token 3 was granted: another holder has begun, stop")
	check("the successor's", 3, nil, "")

	// A term that has ended is stale before another begins: an operator who
	// revoked it does not wait for that.
	reserved := next(rec)
	reserved.State, reserved.Owner, reserved.Prev = driver.Reserved, "", rec.Term(driver.EndRevoked)
	rec = enginetest.Swap(t, s, rec, reserved)
	check("revoked", 3, ErrStale, "token 3 is stale: its term has ended, the lock is reserved under token 3")
	rec = enginetest.Swap(t, s, rec, takeover(rec))
	rec = enginetest.Swap(t, s, rec, released(rec))
	check("released", 4, ErrStale, "the lock is released under token 4")
	if err := s.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	check("deleted", 4, ErrUnknownToken, "no record in this database")

	enginetest.Claim(t, s, held("reports", "a"))
	mustRun(t, db, "UPDATE tenure_records SET token = -1")
	check("nonsense", 1, driver.ErrUnreadable, "column token holds -1")
	mustRun(t, db, "DROP TABLE tenure_records")
	check("another database", 1, ErrUnknownToken, "without tenure's table")
}

// TestGuardNeedsTransaction passes a Tx that is not a transaction, in every possible way.
func TestGuardNeedsTransaction(t *testing.T) {
	db, _, rec := guarded(t)
	ctx := t.Context()
	wrapped := struct{ Tx }{db} // a handle that does not look like one
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for what, tx := range map[string]Tx{"handle": db, "wrapped handle": wrapped, "connection": conn} {
		for range 2 {
			if err := Guard(ctx, tx, rec.Key, rec.Token); err == nil || !strings.Contains(err.Error(), "transaction") {
				t.Errorf("%s: %v, want that a transaction is needed", what, err)
			}
		}
	}
	for _, begin := range []string{"BEGIN", "BEGIN IMMEDIATE"} {
		for range 2 {
			if _, err := conn.ExecContext(ctx, begin); err != nil {
				t.Fatal(err)
			}
			if err := Guard(ctx, conn, rec.Key, rec.Token); err != nil {
				t.Errorf("connection after %s: %v", begin, err)
			}
			if err := Guard(ctx, conn, rec.Key, rec.Token); err != nil { // it is open still
				t.Errorf("connection after %s, again: %v", begin, err)
			}
			if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
				t.Fatal(err)
			}
		}
	}
	tx := begin(t, db)
	_ = tx.Rollback()
	if err := Guard(ctx, tx, rec.Key, rec.Token); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("a transaction that is over: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := Guard(cancelled, begin(t, db), rec.Key, rec.Token); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is done: %v", err)
	}
}

// TestGuardHoldsTheLock checks that no process takes the lock between Guard and
// the end of the transaction, whether that writes or not: its effects may be
// outside of this database.
func TestGuardHoldsTheLock(t *testing.T) {
	db, s, rec := guarded(t)
	tx := begin(t, db)
	if err := Guard(t.Context(), tx, rec.Key, rec.Token); err != nil {
		t.Fatal(err)
	}
	taken := takeover(rec)
	_, err := s.Swap(t.Context(), rec, taken)
	wantError(t, err, passes, "locked by another writer")
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	enginetest.Swap(t, s, rec, taken)
}

// TestGuardOldSnapshot has a transaction read before the takeover, and so see
// the record of that time: Guard must not believe it.
func TestGuardOldSnapshot(t *testing.T) {
	db, s, rec := guarded(t)
	tx := begin(t, db)
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM ledger").Scan(&n); err != nil {
		t.Fatal(err)
	}
	enginetest.Swap(t, s, rec, takeover(rec))
	err := Guard(t.Context(), tx, rec.Key, rec.Token)
	wantError(t, err, passes, "locked by another writer") // SQLITE_BUSY_SNAPSHOT
	_ = tx.Rollback()
	if err := Guard(t.Context(), begin(t, db), rec.Key, rec.Token); !errors.Is(err, ErrStale) {
		t.Errorf("in a new transaction: %v, want that it is stale", err)
	}
}

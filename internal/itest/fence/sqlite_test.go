// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tenurelock/tenure/fence"
)

// open returns a database in its own file with the guard's table and a table that
// notes each write in the order of commits: SQLite has one writer at a time.
// Nothing is flushed: no power fails here.
func open(t *testing.T, busyTimeout string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "data.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout("+busyTimeout+")")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	_, err = db.ExecContext(t.Context(), "CREATE TABLE write (seq INTEGER PRIMARY KEY, resource TEXT NOT NULL, token BIGINT NOT NULL)")
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func newSQL(t *testing.T, db *sql.DB, options *fence.SQLOptions) *fence.SQL {
	t.Helper()
	guard, err := fence.NewSQL(options)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be there
		if err := guard.CreateTable(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	return guard
}

// note is a write of the work.
func note(ctx context.Context, tx fence.Conn, resource string, token uint64) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO write (resource, token) VALUES ($1, $2)", resource, int64(token))
	return err
}

// tokensEach is how many tokens one world may use.
const tokensEach = 10

// tally counts the writes that were committed, and the worlds in which one was
// committed after one under a higher token.
func tally(t *testing.T, db *sql.DB) (writes, stale int) {
	t.Helper()
	err := db.QueryRowContext(t.Context(), `
		SELECT count(*), count(DISTINCT CASE WHEN token < highest THEN token / $1 END) FROM (
			SELECT resource, token, max(token) OVER (PARTITION BY resource ORDER BY seq) AS highest FROM write) AS writes`, tokensEach).Scan(&writes, &stale)
	if err != nil {
		t.Fatal(err)
	}
	return writes, stale
}

// busy reports whether another transaction has the write lock, or a row's, or has
// written since this one began to read. The whole transaction is begun again then.
func busy(err error) bool {
	if e := (*sqlite.Error)(nil); errors.As(err, &e) {
		return e.Code()&0xff == sqlite3.SQLITE_BUSY
	}
	e := (*pgconn.PgError)(nil)
	return errors.As(err, &e) && (e.Code == lockNotAvailable || e.Code == serializationFailure)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// PostgreSQL's errors for a transaction that would wait for another one's row, and for
// a transaction whose row another one has changed since it began to read.
const (
	lockNotAvailable     = "55P03"
	serializationFailure = "40001"
)

// openPostgres returns a database of its own, whose transactions have the isolation
// level, and do not wait: see busy.
func openPostgres(t *testing.T, server, isolation string) *sql.DB {
	t.Helper()
	u, err := url.Parse(enginetest.Database(t, server))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("default_transaction_isolation", isolation)
	query.Set("lock_timeout", "1")
	query.Set("synchronous_commit", "off")
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // pgx takes no plus for a blank
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var got string
	if err := db.QueryRowContext(t.Context(), "SHOW transaction_isolation").Scan(&got); err != nil || got != isolation {
		t.Fatalf("the isolation is %q, %v", got, err)
	}
	_, err = db.ExecContext(t.Context(), "CREATE TABLE write (seq BIGSERIAL PRIMARY KEY, resource TEXT NOT NULL, token BIGINT NOT NULL)")
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// The guard locks the row of its resource, so the writes have the order of their
// commits on PostgreSQL, too. Each holder writes twice: its second token is no higher than
// the stored token, and the guard must lock its row all the same. On SQLite, which locks
// the database, that would not show.
func TestInterleavingsPostgreSQL(t *testing.T) {
	server := enginetest.PostgreSQL(t)
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			interleave(t, interleavings{
				unsound: 100, sound: 500, writes: 2,
				options: &fence.SQLOptions{Placeholder: fence.Dollar},
				open:    func(t *testing.T) *sql.DB { return openPostgres(t, server, isolation) },
			})
		})
	}
}

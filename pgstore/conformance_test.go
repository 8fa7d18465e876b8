// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestMain(m *testing.M) {
	enginetest.DefaultSignals() // of the servers that tests start
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	server := enginetest.PostgreSQL(t)
	for _, tc := range []struct {
		name, isolation string
		ops             int
		simple          bool // as with an engine that refuses the claim in one statement
	}{
		{"read-committed", "read committed", 0, false},
		{"serializable", "serializable", 400, false},
		{"look-first", "read committed", 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) drivertest.Harness {
				database := newDatabase(t, server)
				mustExec(t, database, "ALTER DATABASE "+nameOf(t, database)+" SET default_transaction_isolation = '"+tc.isolation+"'")
				if tc.simple {
					renameEngine(t, database)
				}
				relay := enginetest.NewRelay(t, hostOf(t, database))
				h := harness(t, database)
				h.Ops, h.Watches = tc.ops, !tc.simple
				h.Open = func(t *testing.T) driver.Store {
					s := mustOpenWith(t, through(t, database, relay.Addr), &Options{Untested: tc.simple})
					if tc.simple {
						return struct { // which has no Watch
							driver.Store
							driver.BatchGetter
							driver.Raiser
						}{s, s, s}
					}
					return s
				}
				h.Hang = func(*testing.T) func() { return relay.Hold() }
				return h
			})
		})
	}
}

// harness is what all tests of conformance have in common.
func harness(t *testing.T, database string) drivertest.Harness {
	return drivertest.Harness{
		Open:           func(t *testing.T) driver.Store { return mustOpen(t, database) },
		Watches:        true,
		Raises:         true,
		TimePrecision:  time.Nanosecond,
		LeasePrecision: time.Nanosecond,
		Plant: func(t *testing.T, rec driver.Record) {
			plant(t, database, rec)
		},
		PlantUnreadable: func(t *testing.T, key string) {
			plant(t, database, held(key))
			mustExec(t, database, "UPDATE tenure_records SET record = '{' WHERE name = $1", key)
		},
		PlantLater: func(t *testing.T, key string) {
			mustExec(t, database, `UPDATE tenure_records SET record = left(record, -1) || ',"later":"kept"}' WHERE name = $1`, key)
		},
		HasLater: func(t *testing.T, key string) bool {
			return ask[bool](t, database, "SELECT record::jsonb ->> 'later' IS NOT DISTINCT FROM 'kept' FROM tenure_records WHERE name = $1", key)
		},
		OlderState: func(t *testing.T, key string) driver.State {
			return driver.State(ask[string](t, database, "SELECT state FROM tenure_records WHERE name = $1", key))
		},
	}
}

// newDatabase makes a database with the table, which goes with the test.
func newDatabase(t testing.TB, server string) string {
	t.Helper()
	database := enginetest.Database(t, server)
	text, err := Schema("")
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, database, text)
	return database
}

// mustOpen opens a store that ends with the test.
func mustOpen(t testing.TB, database string) *Store {
	t.Helper()
	return mustOpenWith(t, database, nil)
}

// another is what the engine of renameEngine calls itself.
const another = "CockroachDB CCL v25.2.1"

// renameEngine has the server call itself by another name in a database.
func renameEngine(t testing.TB, database string) {
	t.Helper()
	mustExec(t, database, "CREATE FUNCTION public.version() RETURNS text LANGUAGE sql AS $$SELECT '"+another+" (x86_64)'$$")
	mustExec(t, database, "ALTER DATABASE "+nameOf(t, database)+" SET search_path = public, pg_catalog")
}

func mustOpenWith(t testing.TB, database string, o *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), database, o)
	if err != nil {
		t.Fatal(err)
	}
	s.page = 7
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// plant writes a record as it is.
func plant(t testing.TB, database string, rec driver.Record) {
	t.Helper()
	mustExec(t, database, "INSERT INTO tenure_records VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name) DO UPDATE SET (version, token, "+
		"state, owner, record, data) = ROW (excluded.version, excluded.token, excluded.state, excluded.owner, excluded.record, excluded.data)",
		valuesOf(rec)...)
}

func connect(t testing.TB, database string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func mustExec(t testing.TB, database, sql string, args ...any) {
	t.Helper()
	pool := connect(t, database)
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// ask returns the one value of a query.
func ask[T any](t testing.TB, database, sql string, args ...any) T {
	t.Helper()
	pool := connect(t, database)
	defer pool.Close()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err == nil {
		var value T
		if value, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[T]); err == nil {
			return value
		}
	}
	t.Fatalf("%s: %v", sql, err)
	panic("unreachable")
}

func parse(t testing.TB, database string) *url.URL {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func nameOf(t testing.TB, database string) string {
	return strings.TrimPrefix(parse(t, database).Path, "/")
}

func hostOf(t testing.TB, database string) string { return parse(t, database).Host }

// through is the database at another address.
func through(t testing.TB, database, address string) string {
	u := parse(t, database)
	u.Host = address
	return u.String()
}

// with is the database with one more parameter.
func with(t testing.TB, database, name, value string) string {
	u := parse(t, database)
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// held is a record that may be claimed.
func held(key string) driver.Record {
	at := time.Now().Format("150405.000000000")
	at = strings.ReplaceAll(at, ".", "-")
	return driver.Record{Key: key, Version: "v-" + at, Beat: "b-" + at, Owner: "o", Token: 1, Lease: 10 * time.Second, State: driver.Held}
}

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
	for isolation, ops := range map[string]int{"read committed": 0, "serializable": 400} {
		t.Run(strings.ReplaceAll(isolation, " ", "-"), func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) drivertest.Harness {
				database := newDatabase(t, server)
				mustExec(t, database, "ALTER DATABASE "+nameOf(t, database)+" SET default_transaction_isolation = '"+isolation+"'")
				relay := enginetest.NewRelay(t, hostOf(t, database))
				h := harness(t, database)
				h.Ops = ops
				h.Open = func(t *testing.T) driver.Store { return mustOpen(t, through(t, database, relay.Addr)) }
				h.Hang = func(*testing.T) func() { return relay.Hold() }
				return h
			})
		})
	}
}

// harness is what all tests of conformance have in common.
func harness(t *testing.T, database string) drivertest.Harness {
	later := false
	return drivertest.Harness{
		Open:           func(t *testing.T) driver.Store { return mustOpen(t, database) },
		Watches:        true,
		Raises:         true,
		TimePrecision:  precision,
		LeasePrecision: time.Nanosecond,
		Plant: func(t *testing.T, rec driver.Record) {
			plant(t, database, rec)
		},
		PlantUnreadable: func(t *testing.T, key string) {
			plant(t, database, held(key))
			mustExec(t, database, "UPDATE tenure_records SET format = 2 WHERE key = $1", key)
		},
		PlantLater: func(t *testing.T, key string) {
			if !later {
				mustExec(t, database, "ALTER TABLE tenure_records ADD COLUMN later text")
				later = true
			}
			mustExec(t, database, "UPDATE tenure_records SET later = 'kept' WHERE key = $1", key)
		},
		HasLater: func(t *testing.T, key string) bool {
			return ask[bool](t, database, "SELECT later IS NOT DISTINCT FROM 'kept' FROM tenure_records WHERE key = $1", key)
		},
		OlderState: func(t *testing.T, key string) driver.State {
			return driver.State(ask[string](t, database, "SELECT state FROM tenure_records WHERE key = $1", key))
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
	values, err := encode(rec)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	mustExec(t, database, "INSERT INTO tenure_records ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(parameters(len(names)), ", ")+
		") ON CONFLICT (key) DO UPDATE SET ("+strings.Join(names, ", ")+") = ROW (excluded."+strings.Join(names, ", excluded.")+")", values...)
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

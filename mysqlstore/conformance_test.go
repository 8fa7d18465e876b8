// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestMain(m *testing.M) {
	enginetest.DefaultSignals() // of the servers that tests start
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	server := shared(t)
	drivertest.Run(t, func(t *testing.T) drivertest.Harness { return harness(t, newDatabase(t, server)) })
}

// harness is what all tests of conformance have in common.
func harness(t *testing.T, config *mysql.Config) drivertest.Harness {
	relay := enginetest.NewRelay(t, config.Addr)
	table := newTable(t, config)
	rest := func(t *testing.T, key string) (text string) {
		t.Helper()
		if err := table.QueryRow("SELECT record FROM tenure_records WHERE name = ?", []byte(key)).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	plant := func(t *testing.T, rec driver.Record, version string) {
		t.Helper()
		rec.Version = version
		mustExec(t, table, "REPLACE INTO tenure_records (name, version, token, state, owner, record, data) "+
			"VALUES (?, ?, ?, ?, ?, ?, ?)", append(append([]any{[]byte(rec.Key)}, values(rec)...), rec.Data)...)
	}
	return drivertest.Harness{
		Open:            func(t *testing.T) driver.Store { return mustOpen(t, at(config, relay.Addr), nil) },
		Hang:            func(*testing.T) func() { return relay.Hold() },
		Raises:          true,
		TimePrecision:   time.Nanosecond,
		LeasePrecision:  time.Nanosecond,
		PlantUnreadable: func(t *testing.T, key string) { plant(t, held(key), "") },
		Plant:           func(t *testing.T, rec driver.Record) { plant(t, rec, rec.Version) },
		PlantLater: func(t *testing.T, key string) {
			later := strings.TrimSuffix(rest(t, key), "}") + `,"later":"kept"}`
			mustExec(t, table, "UPDATE tenure_records SET record = ? WHERE name = ?", later, []byte(key))
		},
		HasLater: func(t *testing.T, key string) bool { return strings.Contains(rest(t, key), `"later":"kept"`) },
		OlderState: func(t *testing.T, key string) driver.State {
			t.Helper()
			var state string
			if err := table.QueryRow("SELECT state FROM tenure_records WHERE name = ?", []byte(key)).Scan(&state); err != nil {
				t.Fatal(err)
			}
			return driver.State(state)
		},
	}
}

// shared is the server that scripts/engines has started, or one of the test's own.
func shared(t testing.TB) *mysql.Config {
	t.Helper()
	if os.Getenv(enginetest.MySQL) == "" && !testing.Short() { // for mutants
		return parse(t, enginetest.StartMariaDB(t).URL)
	}
	return parse(t, enginetest.Shared(t, enginetest.MySQL, "mariadb"))
}

// parse is the config of the URL of a server.
func parse(t testing.TB, text string) *mysql.Config {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User = "tcp", u.Host, u.User.Username()
	return c
}

// started is a server that the test has for itself, with a database that has the table.
func started(t testing.TB, settings ...string) (*enginetest.Engine, *mysql.Config) {
	t.Helper()
	server := enginetest.StartMariaDB(t, settings...)
	c := parse(t, server.URL)
	c.DBName = "locks"
	create(t, c)
	return server, c
}

var databases atomic.Uint64

// newDatabase makes a database with the table, which goes with the test.
func newDatabase(t testing.TB, server *mysql.Config) *mysql.Config {
	t.Helper()
	c := server.Clone()
	c.DBName = fmt.Sprintf("test_%d_%d", os.Getpid(), databases.Add(1))
	create(t, c)
	t.Cleanup(func() { mustExec(t, newTable(t, server), "DROP DATABASE "+c.DBName) })
	return c
}

// create makes the database of a config, with the table.
func create(t testing.TB, c *mysql.Config) {
	t.Helper()
	none := c.Clone()
	none.DBName = ""
	db := newTable(t, none)
	defer db.Close()
	mustExec(t, db, "CREATE DATABASE "+c.DBName)
	statements, err := Schema("", c.DBName)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		mustExec(t, db, statement)
	}
}

// at is the database at another address.
func at(c *mysql.Config, addr string) *mysql.Config {
	c = c.Clone()
	c.Addr = addr
	return c
}

// as is the database for another user, without a password.
func as(c *mysql.Config, user string) *mysql.Config {
	c = c.Clone()
	c.User = user
	return c
}

// mustOpen opens a store that ends with the test.
func mustOpen(t testing.TB, c *mysql.Config, options *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), c, options)
	if err != nil {
		t.Fatal(err)
	}
	return ends(t, s)
}

// connect returns a store that ends with the test, and sends nothing.
func connect(t testing.TB, c *mysql.Config, options *Options) *Store {
	t.Helper()
	s, err := Connect(c, options)
	if err != nil {
		t.Fatal(err)
	}
	return ends(t, s)
}

func ends(t testing.TB, s *Store) *Store {
	t.Helper()
	s.page = 7
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// newTable is a pool for statements of the test's own.
func newTable(t testing.TB, c *mysql.Config) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func mustExec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

var versions atomic.Uint64

// held is a record that may be claimed.
func held(key string) driver.Record {
	v := fmt.Sprint("v-", versions.Add(1))
	return driver.Record{Key: key, Version: v, Beat: v, Owner: "o", Token: 1, Lease: 10 * time.Second, State: driver.Held}
}

// next is a record's successor, with its token.
func next(rec driver.Record, state driver.State) driver.Record {
	rec.Version, rec.State = fmt.Sprint("v-", versions.Add(1)), state
	if state == driver.Released {
		rec.End, rec.Session, rec.Notify = driver.EndReleased, "", ""
	}
	return rec
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// handle opens a database like a program that has tables of its own in it.
// The pragmas are those of its connections.
func handle(tb testing.TB, file string, pragmas ...string) *sql.DB {
	tb.Helper()
	dsn := "file:" + (&url.URL{Path: file}).EscapedPath() + "?_pragma=journal_mode(wal)"
	for _, pragma := range pragmas {
		dsn += "&_pragma=" + url.QueryEscape(pragma)
	}
	return openHandle(tb, dsn)
}

func openHandle(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func mustRun(tb testing.TB, db *sql.DB, queries ...string) {
	tb.Helper()
	for _, query := range queries {
		if _, err := db.ExecContext(tb.Context(), query); err != nil {
			tb.Fatalf("%s: %v", query, err)
		}
	}
}

func mustNew(tb testing.TB, db *sql.DB) *Store {
	tb.Helper()
	s, err := New(db, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformanceNew(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	for _, how := range []string{"OneHandle", "HandleEach"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, func(t *testing.T) drivertest.Harness {
				file := filepath.Join(t.TempDir(), "app.db")
				db := handle(t, file, "busy_timeout(5000)")
				mustRun(t, db, "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
				return drivertest.Harness{
					Open: func(t *testing.T) driver.Store {
						if how == "HandleEach" {
							db = handle(t, file)
						}
						s := mustNew(t, db)
						s.pageSize = 7
						return s
					},
					Watches: true,
					Raises:  true,
					Ops:     400,
					PlantUnreadable: func(t *testing.T, key string) {
						plant(t, file, held(key, "planted"))
						shell(t, file, "UPDATE tenure_records SET record = '{' WHERE name = ?", key)
					},
					Plant: func(t *testing.T, rec driver.Record) { plant(t, file, rec) },
				}
			})
		})
	}
}

// TestNewLeavesAlone checks what New does to a program's database: it makes a
// table.
func TestNewLeavesAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	db := handle(t, file, "busy_timeout(1234)", "synchronous(normal)")
	db.SetMaxIdleConns(20) // so that whatever goes back to the pool stays there
	mustRun(t, db, "PRAGMA application_id = 77", "PRAGMA user_version = 5", "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
	settings := func() (all string) {
		t.Helper()
		// Each connection that the pool has, and more.
		var conns []*sql.Conn
		for range 5 {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			for _, pragma := range []string{
				"application_id", "user_version", "busy_timeout", "synchronous", "journal_mode", "query_only", "fullfsync", "locking_mode", "journal_size_limit",
			} {
				var value any
				if err := conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&value); err != nil {
					t.Fatal(err)
				}
				all += fmt.Sprint(pragma, "=", value, " ")
			}
			all += "\n"
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
		return all
	}
	before := settings()
	s := mustNew(t, db)
	if during := settings(); during != before {
		t.Errorf("with a store:\n%swithout:\n%s", during, before)
	}
	rec := enginetest.Claim(t, s, held("k", "a"))
	enginetest.Swap(t, s, rec, next(rec))
	if _, err := s.Watch(t.Context(), "k", func() {}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections are in use after Close", n)
	}
	if after := settings(); after != before {
		t.Errorf("after Close:\n%sbefore New:\n%s", after, before)
	}
	var names string
	if err := db.QueryRowContext(t.Context(), "SELECT group_concat(name) FROM sqlite_schema WHERE type = 'table'").Scan(&names); err != nil || names != "orders,tenure_records" {
		t.Errorf("tables %s, %v", names, err)
	}
	again := mustNew(t, db) // finds its table
	if got := enginetest.Get(t, again, "k"); got.Owner != "a" {
		t.Errorf("owner %q", got.Owner)
	}
	// A program without the handle, such as the command, can open the file by its path.
	if got := enginetest.Get(t, mustOpen(t, file), "k"); got.Owner != "a" {
		t.Errorf("owner %q through Open", got.Owner)
	}
}

// TestNewHandleClosed closes the handle first: that is a mistake, but causes
// neither a deadlock nor a lost lock.
func TestNewHandleClosed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	db := handle(t, file)
	s := mustNew(t, db)
	rec := enginetest.Claim(t, s, held("k", "a"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	enginetest.Swap(t, s, rec, released(rec))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestNewOnOwnFile has a handle onto a file that Open made.
func TestNewOnOwnFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	mustOpen(t, file)
	enginetest.Claim(t, mustNew(t, handle(t, file)), held("k", "a"))
	if got := enginetest.Get(t, mustOpen(t, file), "k"); got.Owner != "a" {
		t.Errorf("owner %q", got.Owner)
	}
}

type otherDriver struct{}

func (otherDriver) Open(string) (sqldriver.Conn, error)               { return nil, errors.New("none") }
func (d otherDriver) Connect(context.Context) (sqldriver.Conn, error) { return d.Open("") }
func (d otherDriver) Driver() sqldriver.Driver                        { return d }

func TestNewRefuses(t *testing.T) {
	enginetest.MakeVerify(t)
	for _, c := range []struct {
		name, want string
		make       func(t *testing.T, file string) *sql.DB
	}{
		{"nil", "it is nil", func(*testing.T, string) *sql.DB { return nil }},
		{"other driver", "must be that of modernc.org/sqlite", func(*testing.T, string) *sql.DB { return sql.OpenDB(otherDriver{}) }},
		{"small pool", "limited to 2 connections", func(t *testing.T, file string) *sql.DB {
			db := handle(t, file)
			db.SetMaxOpenConns(2)
			return db
		}},
		{"memory", "in memory", func(t *testing.T, _ string) *sql.DB { return openHandle(t, ":memory:") }},
		{"shared memory", "in memory", func(t *testing.T, _ string) *sql.DB { return openHandle(t, "file:x?mode=memory&cache=shared") }},
		{"memory of a vfs", "in memory", func(t *testing.T, _ string) *sql.DB { return openHandle(t, "file:/x?vfs=memdb") }},
		{"journal", "journal_mode is delete; it must be wal", func(t *testing.T, file string) *sql.DB {
			db := openHandle(t, file)
			mustRun(t, db, "CREATE TABLE orders (id INTEGER)")
			return db
		}},
		{"no syncs", "synchronous is 0; it must not be off", func(t *testing.T, file string) *sql.DB { return handle(t, file, "synchronous(off)") }},
		{"exclusive", "locking_mode is exclusive", func(t *testing.T, file string) *sql.DB { return handle(t, file, "locking_mode(exclusive)") }},
		{"encoding", "encoding is UTF-16le", func(t *testing.T, file string) *sql.DB {
			return openHandle(t, file+"?_pragma=encoding('UTF-16le')&_pragma=journal_mode(wal)")
		}},
		{"shared cache", "share a cache", func(t *testing.T, file string) *sql.DB {
			return openHandle(t, "file:"+file+"?cache=shared&_pragma=journal_mode(wal)")
		}},
		{"other table", "the table is not as this program creates it", func(t *testing.T, file string) *sql.DB {
			db := handle(t, file)
			mustRun(t, db, "CREATE TABLE tenure_records (id INTEGER)")
			return db
		}},
		{"read-only", "read-only", func(t *testing.T, file string) *sql.DB { return handle(t, file, "query_only(1)") }},
		{"newer", "newer Tenure", func(t *testing.T, file string) *sql.DB {
			database(t, file)
			shell(t, file, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion+1))
			return handle(t, file)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := c.make(t, filepath.Join(t.TempDir(), "app.db"))
			s, err := New(db, nil)
			if err == nil {
				_ = s.Close()
				t.Fatal("opened")
			}
			t.Log(err)
			if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: want a permanent error in one line, with %q", err, c.want)
			}
			if db != nil && db.Stats().InUse != 0 {
				t.Errorf("%d connections are left in use", db.Stats().InUse)
			}
		})
	}
	if _, err := New(nil, &Options{PollPeriod: 1}); err == nil || !strings.Contains(err.Error(), "poll period") {
		t.Errorf("%v: want a refusal of the poll period", err)
	}
}

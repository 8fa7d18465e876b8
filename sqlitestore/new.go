// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tenurelock/tenure/driver"
)

// leastConns is the smallest limit of a pool that New accepts: two for the
// store, which writes on one and reads on the other, and one for the program.
const leastConns = 3

// New returns a store whose table, tenure_records, is in the caller's own
// database, beside the caller's tables, so that the caller's transactions can be
// fenced by [Guard]. It creates the table if it is missing, and changes nothing
// else: no setting of the file or the pool.
//
// db must be a handle of modernc.org/sqlite onto a file. The store reserves two
// of its connections, with settings of their own, until Close; then they are
// closed, and db stays open. Close the store before db.
//
// New needs these settings, and returns an error that names the wrong one:
//
//   - journal_mode is wal: without it readers keep out writers, and a heartbeat
//     would wait for every reader. It stays in the file once it is set.
//   - synchronous is not off, on the connections of db: their checkpoints would
//     write the file before the log, and after a power loss a token might go back.
//   - locking_mode is normal, the encoding UTF-8, the cache not shared.
//   - SetMaxOpenConns allows 3 or more, or any number.
//
// busy_timeout may be anything: it counts for the caller's transactions alone. A
// write of the store that meets one of them fails at once, and is tried again
// by package tenure. So a long transaction keeps heartbeats out: if it is open
// for longer than the lease, its program loses the lock, though no other can
// take it meanwhile. Keep them short, and use a file of its own, by [Open], for
// locks that must not depend on that.
//
// Databases in memory are refused: they exclude no other process. Use package
// memstore, or in a test a file in its t.TempDir().
func New(db *sql.DB, o *Options) (*Store, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, driver.Permanent(errors.New("sqlite handle: it is nil"))
	}
	if _, ok := db.Driver().(*sqlite.Driver); !ok {
		return nil, driver.Permanent(errors.New(`sqlite handle: its driver must be that of modernc.org/sqlite, which sql.Open("sqlite", ...) uses`))
	}
	if n := db.Stats().MaxOpenConnections; n > 0 && n < leastConns {
		return nil, driver.Permanent(fmt.Errorf(
			"sqlite handle: its pool is limited to %d connections, and the store needs 2 for itself; SetMaxOpenConns must allow %d or more", n, leastConns))
	}
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	file, err := mainFile(ctx, db)
	if err != nil {
		return nil, err
	}
	if !opts.AllowNetworkFS {
		if err := refuseNetworkFS(file, fileSystem(filepath.Dir(file))); err != nil {
			return nil, driver.Permanent(err)
		}
	}
	return origin{
		file:    file,
		readers: 1,
		connect: func(string) (*conn, error) { return borrow(ctx, db) },
		prepare: func(c *conn) error { return prepareTable(c, file) },
		verify:  func(writer, reader *conn) error { return refuseSharedCache(file, writer, reader) },
	}.open(opts, openPatience)
}

// mainFile returns the file of the handle's database.
func mainFile(ctx context.Context, db *sql.DB) (file string, err error) {
	err = db.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file)
	if err != nil {
		return "", fmt.Errorf("sqlite handle: the file of its database cannot be found out: %w", err)
	}
	if file == "" {
		return "", driver.Permanent(errors.New(
			"sqlite handle: its database is in memory, and excludes no other process; use memstore, or a file"))
	}
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is not a regular file (%v)", info.Mode().Type())
	}
	if err == nil {
		file, err = filepath.EvalSymlinks(file)
	}
	if err != nil {
		return "", driver.Permanent(fmt.Errorf("sqlite file %q: not a file of the operating system: %w", file, unnamed(file, err)))
	}
	return file, nil
}

// borrow takes a connection out of the pool. It never goes back: its settings
// differ from the pool's, so it is closed in the end.
func borrow(ctx context.Context, db *sql.DB) (*conn, error) {
	borrowed, err := db.Conn(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("no connection was free in the pool for %v: %w", openPatience, err)
	}
	if err != nil {
		return nil, err
	}
	return newConn(
		func(fn func(engine) error) error {
			return borrowed.Raw(func(raw any) error { return fn(raw.(engine)) })
		},
		func() error {
			// The pool closes a connection that is said to be bad.
			_ = borrowed.Raw(func(any) error { return sqldriver.ErrBadConn })
			if err := borrowed.Close(); !errors.Is(err, sql.ErrConnDone) {
				return err
			}
			return nil
		},
	)
}

// prepareTable creates the table in a database of another application, unless
// it exists. Any number of processes may do this at once.
func prepareTable(c *conn, file string) error {
	if err := checkSettings(c, file); err != nil {
		return err
	}
	if err := probe(c); err != nil && !locked(err) {
		return fault(file, err)
	}
	return create(c, file, true)
}

// checkSettings refuses a database, or a connection, on which locks would not
// be safe. It changes nothing.
func checkSettings(c *conn, file string) error {
	for _, setting := range []struct {
		pragma string
		good   func(sqldriver.Value) bool
		want   string
	}{
		{
			"journal_mode", func(v sqldriver.Value) bool { return v == "wal" },
			"it must be wal, or readers would keep out heartbeats; run PRAGMA journal_mode = WAL once, the file remembers it",
		},
		{
			"synchronous", func(v sqldriver.Value) bool { return v != int64(0) },
			"it must not be off, or a token may go back after a power loss; open the handle with another one, such as 1 (normal)",
		},
		{
			"locking_mode", func(v sqldriver.Value) bool { return v == "normal" },
			"it must be normal, or no other process can use the file",
		},
		{
			"encoding", func(v sqldriver.Value) bool { return v == "UTF-8" },
			"it must be UTF-8, or locks are listed in a wrong order; give the locks a file of their own, with Open",
		},
	} {
		var value sqldriver.Value
		if err := c.query("PRAGMA "+setting.pragma, func(row []sqldriver.Value) bool {
			value = row[0]
			return false
		}); err != nil {
			return fault(file, err)
		}
		if !setting.good(value) {
			return driver.Permanent(fmt.Errorf("sqlite file %q: %s is %v; %s", file, setting.pragma, value, setting.want))
		}
	}
	return nil
}

// sharedCachePatience is how long a connection may take to report that another
// one is writing. It reports this at once, unless the two share a cache: then
// the engine's driver waits for the other.
const sharedCachePatience = 2 * time.Second

// refuseSharedCache has two connections begin to write at once.
func refuseSharedCache(file string, one, two *conn) error {
	if err := two.run("PRAGMA query_only = OFF"); err != nil { // or it could not even try
		return fault(file, err)
	}
	if err := one.run(sqlBegin); err != nil {
		return fault(file, err)
	}
	began := make(chan error, 1)
	go func() { began <- two.run(sqlBegin) }()
	var err error
	shared := false
	select {
	case err = <-began:
		shared = is(err, sqlite3.SQLITE_LOCKED)
	case <-time.After(sharedCachePatience):
		shared = true
	}
	ended := one.run(sqlRollback) // and the other waits no more
	if shared && err == nil {
		err = <-began
	}
	if err == nil {
		_ = two.run(sqlRollback)
	}
	switch {
	case shared:
		return driver.Permanent(fmt.Errorf(
			"sqlite file %q: the connections of the handle share a cache, where readers keep out writers; open it without cache=shared", file))
	case err == nil:
		return driver.Permanent(fmt.Errorf("sqlite file %q: two connections of the handle can write at once: they lead to different databases", file))
	}
	return fault(file, errors.Join(ended, two.run("PRAGMA query_only = ON")))
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
)

// SQL is a guard inside of the user's own transactions: the tokens are rows of
// a table in the database that is written to, so that a write and its token
// are committed together, and last as long as each other. All methods may be
// called concurrently.
//
// # Engines
//
// Its statements are INSERT ... ON CONFLICT ... DO UPDATE ... RETURNING, which
// SQLite has since 3.35 and PostgreSQL since 9.5. MySQL does not have them.
//
// SQLite has one writer at a time: the guard takes the write lock of the whole
// database, and keeps it to the end of the transaction. Another writer waits
// for its busy timeout, or gets SQLITE_BUSY, and begins again.
//
// PostgreSQL locks the row, also when its token stays as it is, and keeps the
// lock to the end of the transaction. Another guard of the same resource waits
// for that, and compares with what was committed. Above READ COMMITTED it gets
// a serialization failure (SQLSTATE 40001) instead, and begins again.
type SQL struct {
	table string
	refuser

	create, raise, read, forget string // statements
}

// Placeholder is how an engine's statements name their arguments.
type Placeholder int

const (
	// Question is "?", as in SQLite.
	Question Placeholder = iota
	// Dollar is "$1", as in PostgreSQL; SQLite understands it, too.
	Dollar
)

// SQLOptions are for one guard in a database. Nil means the defaults.
type SQLOptions struct {
	// Table is the name of the table, letters, digits and underscores, with
	// its schema and a dot before it if needed. If empty, it is
	// "tenure_fences".
	Table string

	// Placeholder is Question or Dollar. If zero, it is Question.
	Placeholder Placeholder

	// OnRefusal is called with each refusal of a stale token, in the goroutine
	// of the call that is refused, which waits for it, and so does its
	// transaction.
	OnRefusal func(*StaleError)
}

const defaultTable = "tenure_fences"

var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// Conn is a [*sql.Tx], or a [*sql.Conn] with a transaction that the user began
// on it.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

var (
	_ Conn = (*sql.Tx)(nil)
	_ Conn = (*sql.Conn)(nil)
)

// NewSQL returns a guard on a table, which [SQL.CreateTable] makes. Options
// may be nil.
func NewSQL(options *SQLOptions) (*SQL, error) {
	var o SQLOptions
	if options != nil {
		o = *options
	}
	if o.Table == "" {
		o.Table = defaultTable
	}
	if !tableName.MatchString(o.Table) {
		return nil, fmt.Errorf("fence: table %.80q must be letters, digits and underscores, at most 63, with a schema and a dot before it if need be", o.Table)
	}
	first, second := "?", "?"
	switch o.Placeholder {
	case Question:
	case Dollar:
		first, second = "$1", "$2"
	default:
		return nil, fmt.Errorf("fence: placeholder %d must be Question or Dollar", o.Placeholder)
	}
	return &SQL{
		table: o.Table, refuser: refuser{notify: o.OnRefusal},
		create: "CREATE TABLE IF NOT EXISTS " + o.Table + " (resource TEXT NOT NULL PRIMARY KEY, token BIGINT NOT NULL)",
		// The row is always written, since that locks it: a guard that only
		// read a higher token, or an equal one, would let another transaction
		// change it meanwhile. The statement returns the higher token.
		raise: "INSERT INTO " + o.Table + " AS f (resource, token) VALUES (" + first + ", " + second + ")" +
			" ON CONFLICT (resource) DO UPDATE SET token =" +
			" CASE WHEN excluded.token > f.token THEN excluded.token ELSE f.token END RETURNING token",
		read:   "SELECT token FROM " + o.Table + " WHERE resource = " + first,
		forget: "DELETE FROM " + o.Table + " WHERE resource = " + first,
	}, nil
}

// CreateTable creates the table if it does not exist. A schema of your own
// needs this:
//
//	CREATE TABLE tenure_fences (resource TEXT NOT NULL PRIMARY KEY, token BIGINT NOT NULL)
func (s *SQL) CreateTable(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, s.create); err != nil {
		return fmt.Errorf("fence: create table %s: %w", s.table, err)
	}
	return nil
}

// Guard returns nil if no higher token has passed at the resource, and then
// keeps the row of the resource locked until the transaction ends: the
// transaction commits before another is admitted, or not at all. Call it first
// in the transaction, before it reads anything that the work depends on, and
// roll back if it returns an error:
//
//   - a [*StaleError] if a higher token has passed;
//   - an error that matches [ErrNoToken] if token is 0;
//   - the database's own, such as for a lock that another transaction has. If
//     the engine requires it, begin the whole transaction again.
//
// A transaction that is rolled back leaves no token behind either.
func (s *SQL) Guard(ctx context.Context, tx Conn, resource string, token uint64) error {
	if err := check(resource, token); err != nil {
		return err
	}
	if token > math.MaxInt64 {
		return fmt.Errorf("fence %q: token %d is above %d, the highest that a BIGINT holds", shown(resource), token, math.MaxInt64)
	}
	if _, ok := any(tx).(*sql.DB); ok {
		return fmt.Errorf("fence %q: guard on a *sql.DB: each of its statements is a transaction of its own, so nothing would be guarded: pass a *sql.Tx", shown(resource))
	}
	var highest int64
	if err := tx.QueryRowContext(ctx, s.raise, resource, int64(token)).Scan(&highest); err != nil {
		return fmt.Errorf("fence %q: guard in table %s: %w", shown(resource), s.table, err)
	}
	if uint64(highest) > token {
		return s.refuse(resource, token, uint64(highest))
	}
	return nil
}

// Tx runs write in a transaction of db that is guarded by the token of the
// grant, and commits it if write returns nil. A lease is a grant; see [Fixed]
// for a token alone. The grant is checked before the transaction begins and
// again right before the commit, so that nothing is committed under a lease
// that has ended, whether or not another process has the lock.
//
// It returns the error of [SQL.Guard], of write, of the grant, or of the
// commit; after an error of the commit it is not known whether the write was
// applied.
func (s *SQL) Tx(ctx context.Context, db *sql.DB, resource string, grant Grant, write func(*sql.Tx) error) error {
	if err := grant.Check(); err != nil {
		return err
	}
	return s.tx(ctx, db, resource, grant.Token(), func(tx *sql.Tx) error {
		if err := write(tx); err != nil {
			return err
		}
		return grant.Check()
	})
}

func (s *SQL) tx(ctx context.Context, db *sql.DB, resource string, token uint64, write func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("fence %q: begin: %w", shown(resource), err)
	}
	defer tx.Rollback() // does nothing after the commit
	if err := s.Guard(ctx, tx, resource, token); err != nil {
		return err
	}
	if err := write(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("fence %q: commit: %w", shown(resource), err)
	}
	return nil
}

// Admit has the table remember the token without a write: when it has returned
// nil, no write under a lower one is committed any more. A new holder that
// reads outside of a guarded transaction calls it first.
func (s *SQL) Admit(ctx context.Context, db *sql.DB, resource string, token uint64) error {
	return s.tx(ctx, db, resource, token, func(*sql.Tx) error { return nil })
}

// Highest returns the highest token that was committed for the resource, and
// whether any was.
func (s *SQL) Highest(ctx context.Context, db *sql.DB, resource string) (token uint64, ok bool, err error) {
	var highest int64
	switch err := db.QueryRowContext(ctx, s.read, resource).Scan(&highest); {
	case errors.Is(err, sql.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("fence %q: read table %s: %w", shown(resource), s.table, err)
	}
	return uint64(highest), true, nil
}

// Forget removes the token of the resource: the next one passes, whatever it
// is. See [Gate.Forget] for when to call it, and what it costs.
func (s *SQL) Forget(ctx context.Context, db *sql.DB, resource string) error {
	if _, err := db.ExecContext(ctx, s.forget, resource); err != nil {
		return fmt.Errorf("fence %q: forget in table %s: %w", shown(resource), s.table, err)
	}
	return nil
}

// Refusals returns how many calls were refused for a stale token.
func (s *SQL) Refusals() uint64 { return s.count.Load() }

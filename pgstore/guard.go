// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurelock/tenure/driver/recordcodec"
)

var (
	// ErrStale is matched by the error of [Store.Guard] when the term of the token has
	// ended. Roll back, and stop the work: the token never passes again. See [StaleError].
	ErrStale = recordcodec.ErrStale

	// ErrUnknownToken is matched by the error of [Store.Guard] when the table does not know
	// the lock, or does not know the token yet: the lock is in another table or database,
	// or its record was deleted, or restored to an older state. Roll back, and check
	// whether the transaction is in the database of the lock.
	ErrUnknownToken = recordcodec.ErrUnknownToken
)

// StaleError is the refusal of [Store.Guard]. It matches [ErrStale].
type StaleError = recordcodec.StaleError

// Guard returns nil if, and only if, the lock is held under token, and stays so until tx
// ends: no process can take the lock over before. So tx's writes are the writes of the
// lock's holder, however long the holder was paused between its last heartbeat and this
// call, or is paused between this call and the commit.
//
//	tx, err := pool.Begin(ctx)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback(ctx)
//	if err := store.Guard(ctx, tx, "reports", lease.Token()); err != nil {
//		return err
//	}
//	// the writes of the holder
//	return tx.Commit(ctx)
//
// tx must be a transaction of the database that has the store's table. Call Guard first in
// it, and roll back if it returns an error.
//
// Guard shares the lock of the record's row: guards of one token run concurrently, and a
// takeover waits for their transactions. So do the heartbeats of the holder, which time
// out and are tried again: keep tx much shorter than the lease. A lock under a session
// has no heartbeats of its own, and is not affected. The role needs the right to update
// the table.
//
// A transaction above READ COMMITTED that began before the last heartbeat gets a
// serialization failure (SQLSTATE 40001): begin again.
//
// Errors match ErrStale, as a [*StaleError] with both tokens; or ErrUnknownToken; or
// [driver.ErrUnreadable]; or they are the engine's.
func (s *Store) Guard(ctx context.Context, tx pgx.Tx, lock string, token uint64) error {
	return s.guarded(lock, token, pgx.ErrNoRows, func(sql string, args ...any) oneRow { return tx.QueryRow(ctx, sql, args...) })
}

// GuardSQL is [Store.Guard] for a transaction of database/sql, with any driver of
// PostgreSQL.
func (s *Store) GuardSQL(ctx context.Context, tx *sql.Tx, lock string, token uint64) error {
	return s.guarded(lock, token, sql.ErrNoRows, func(sql string, args ...any) oneRow { return tx.QueryRowContext(ctx, sql, args...) })
}

func (s *Store) guarded(lock string, token uint64, none error, query func(sql string, args ...any) oneRow) error {
	at, err := s.guards(func(sql string) oneRow { return query(sql) })
	var highest int64
	var state string
	if err == nil {
		err = query(at.sql.guard, lock).Scan(&highest, &state)
	}
	switch {
	case errors.Is(err, none):
		return fmt.Errorf("guard %q: %w: token %d, of a lock that has no record in table %s", lock, ErrUnknownToken, token, at)
	case noTable(err):
		return fmt.Errorf("guard %q: %w: token %d, in a database without table %s: %w", lock, ErrUnknownToken, token, s.Table(), err)
	case err != nil:
		return fmt.Errorf("guard %q: %w", lock, err)
	}
	return recordcodec.CheckToken(lock, token, highest, state, "table "+at.String())
}

func noTable(err error) bool {
	var e *pgconn.PgError
	var none *noTableError
	return errors.As(err, &e) && e.Code == "42P01" || errors.As(err, &none)
}

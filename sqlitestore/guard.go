// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

var (
	// ErrStale is matched by the error of [Guard] when the term of the token
	// has ended. Roll back, and stop the work: the token never passes again. See
	// [StaleError].
	ErrStale = recordcodec.ErrStale

	// ErrUnknownToken is matched by the error of [Guard] when the database does
	// not know the lock, or does not know the token yet: the lock is in another
	// database, or its record was deleted, or restored to an older state. Roll
	// back, and check whether [New] created the store of the lock on this
	// database.
	ErrUnknownToken = recordcodec.ErrUnknownToken
)

// StaleError is the refusal of [Guard]. It matches [ErrStale].
type StaleError = recordcodec.StaleError

// Tx is a transaction: a [*sql.Tx], or a [*sql.Conn] on which BEGIN was run.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Guard returns nil if, and only if, the lock is held under token, and stays so
// until tx ends: no process can take the lock over before. So tx's writes are
// the writes of the lock's holder, however long the holder was paused between
// its last heartbeat and this call, or is paused between this call and the
// commit.
//
//	tx, err := db.BeginTx(ctx, nil)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback()
//	if err := sqlitestore.Guard(ctx, tx, "reports", lease.Token()); err != nil {
//		return err
//	}
//	// the writes of the holder
//	return tx.Commit()
//
// tx must be a transaction of the database that was passed to [New]. Call Guard first in it.
//
// Guard makes tx a write transaction before it reads. A transaction that only
// reads sees the database as it was at its first read: the record may be older
// than the takeover, and effects of tx elsewhere, in an attached database, in a
// file, in a message, would happen while another process is the holder. There is
// only one writer, so that as a writer tx is either wholly before a takeover, or
// after it, and then sees it. For the same reason the holder's own heartbeats
// fail while tx is open, and are tried again: keep it much shorter than the
// lease.
//
// Errors match ErrStale, as a [*StaleError] with both tokens; or
// ErrUnknownToken; or [driver.ErrUnreadable]; or [driver.ErrNotApplied] if
// another process is writing, for longer than the handle's busy_timeout, or has
// written since tx read for the first time. After the last, roll back and begin
// again; after all, roll back.
func Guard(ctx context.Context, tx Tx, lock string, token uint64) error {
	highest, state, err := columnsOf(ctx, tx, lock, token)
	if err != nil {
		return fmt.Errorf("guard %q: %w", lock, err)
	}
	return recordcodec.CheckToken(lock, token, highest, state, "this database")
}

// columnsOf makes tx the one writer, and returns the columns of the lock's row.
func columnsOf(ctx context.Context, tx Tx, lock string, token uint64) (highest int64, state string, err error) {
	if err := needTransaction(ctx, tx); err != nil {
		return 0, "", err
	}
	// It changes no row, and takes the place of the one writer all the same.
	_, err = tx.ExecContext(ctx, "UPDATE tenure_records SET name = name WHERE name IS NULL")
	if is(err, sqlite3.SQLITE_ERROR) {
		return 0, "", fmt.Errorf("%w: token %d, in a database without tenure's table: %w", ErrUnknownToken, token, err)
	}
	if err != nil {
		return 0, "", explained(err)
	}
	var number, word any // of any type, since SQLite keeps what was put there by hand
	err = tx.QueryRowContext(ctx, "SELECT token, state FROM tenure_records WHERE name = ?", lock).Scan(&number, &word)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, "", fmt.Errorf("%w: token %d, of a lock that has no record in this database", ErrUnknownToken, token)
	}
	if err != nil {
		return 0, "", explained(err)
	}
	highest, ok := number.(int64)
	if !ok || highest < 1 {
		return 0, "", fmt.Errorf("%w: column token holds %v, not a whole number of 1 or more", driver.ErrUnreadable, number)
	}
	state, ok = word.(string)
	if !ok {
		return 0, "", fmt.Errorf("%w: column state holds %v, not a text", driver.ErrUnreadable, word)
	}
	return highest, state, nil
}

// needTransaction returns an error if tx is not a transaction. Outside of a
// transaction each statement is a transaction of its own, and the guard ends
// before the first write.
func needTransaction(ctx context.Context, tx Tx) error {
	if _, ok := tx.(*sql.Tx); ok {
		return nil
	}
	// Inside of a transaction BEGIN fails and changes nothing, and ROLLBACK,
	// which comes after it, is not run.
	if _, err := tx.ExecContext(ctx, "BEGIN; ROLLBACK"); err == nil {
		return errors.New("it was not called in a transaction; begin one first, with BeginTx or BEGIN IMMEDIATE")
	}
	return ctx.Err()
}

// explained says what an error of the engine means, and marks it.
func explained(err error) error {
	return driver.NotApplied(fault("", err))
}

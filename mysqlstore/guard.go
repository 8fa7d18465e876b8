// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure/driver/recordcodec"
)

var (
	// ErrStale is matched by the error of [Store.Guard] when the term of the token has
	// ended. Roll back, and stop the work: the token never passes again. See [StaleError].
	ErrStale = recordcodec.ErrStale

	// ErrUnknownToken is matched by the error of [Store.Guard] when the table does not know
	// the lock, or does not know the token yet: the lock is on another server or in another table,
	// or its record was deleted, or restored to an older state. Roll back, and check
	// whether the transaction is on the server of the lock.
	ErrUnknownToken = recordcodec.ErrUnknownToken
)

// StaleError is the refusal of [Store.Guard]. It matches [ErrStale].
type StaleError = recordcodec.StaleError

// Guard returns nil if, and only if, the lock is held under token, and stays so until tx ends: no process can take the
// lock over before. So tx's writes are the writes of the lock's holder, however long the holder was paused between its
// last heartbeat and this call, or is paused between this call and the commit.
//
//	tx, err := db.BeginTx(ctx, nil)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback()
//	if err := store.Guard(ctx, tx, "reports", lease.Token()); err != nil {
//		return err
//	}
//	// the writes of the holder
//	return tx.Commit()
//
// tx must be a transaction on the server of the store; the tables may be in any database, and must be of InnoDB: writes
// to others are not rolled back. Call Guard first in it, and roll back if it returns an error. Statements that commit by
// themselves, such as ALTER TABLE, end the protection.
//
// Guard shares the lock of the record's row: guards of one token run concurrently, and a takeover waits for their
// transactions. So do the heartbeats of the holder, for 5 s each, which are tried again then: keep tx much shorter than
// the lease. A lock under a session has no heartbeats of its own, and is not affected.
//
// Galera locks a row on one node alone, so Guard refuses a store there, with [errors.ErrUnsupported].
//
// Errors match ErrStale, as a [*StaleError] with both tokens; or ErrUnknownToken; or [driver.ErrUnreadable]; or they are
// the engine's, such as 1213 and 1020: roll back, and begin again.
func (s *Store) Guard(ctx context.Context, tx *sql.Tx, lock string, token uint64) error {
	if s.galera.Load() {
		return fmt.Errorf("guard %q: a node of Galera locks no row on the others: fence at the resource: %w", lock, errors.ErrUnsupported)
	}
	var highest int64
	var state string
	err := tx.QueryRowContext(ctx, s.sql.guard, []byte(lock)).Scan(&highest, &state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("guard %q: %w: token %d, of a lock that has no record in table %s", lock, ErrUnknownToken, token, s.place)
	case number(err) == 1146 || number(err) == 1049:
		return fmt.Errorf("guard %q: %w: token %d, on a server without table %s: %w", lock, ErrUnknownToken, token, s.place, err)
	case err != nil:
		return fmt.Errorf("guard %q: %w", lock, err)
	}
	return recordcodec.CheckToken(lock, token, highest, state, "table "+s.place.String())
}

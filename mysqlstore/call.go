// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

// exec runs a write, and returns how many rows matched. Its error is marked with what is certain.
func (s *Store) exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	err = s.run(ctx, func(ctx context.Context, conn *sql.Conn) error {
		result, err := conn.ExecContext(ctx, query, args...)
		if err == nil {
			changed, err = result.RowsAffected()
		}
		return err
	})
	return changed, err
}

// query runs a read, whose first column says whether the server is read-only, and returns the rows that there are.
func (s *Store) query(ctx context.Context, query string, args ...any) (out []row, err error) {
	err = s.run(ctx, func(ctx context.Context, conn *sql.Conn) error {
		rows, err := conn.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r row
			var readOnly string
			if err := rows.Scan(append([]any{&readOnly}, r.targets()...)...); err != nil {
				return err
			}
			if !isOff(readOnly) {
				return errReadOnly
			}
			if r.found() {
				out = append(out, r)
			}
		}
		return rows.Err()
	})
	return out, err
}

// run does something with a connection of the pool. The driver closes the connection when the context ends, and never
// asks the server to stop: a write that waits for a replica would become visible.
func (s *Store) run(ctx context.Context, do func(context.Context, *sql.Conn) error) error {
	if err := s.life.Ready(ctx); err != nil {
		return driver.NotApplied(err)
	}
	bound, done := s.life.Bound(ctx)
	defer done()
	conn, err := s.db.Conn(bound)
	switch {
	case err != nil && s.life.Ended():
		return driver.NotApplied(driver.ErrClosed)
	case err != nil && ctx.Err() != nil && s.db.Stats().InUse >= s.options.MaxConns:
		return driver.NotApplied(fmt.Errorf("mysql: all %d connections are in use: %w", s.options.MaxConns, ctx.Err()))
	case err != nil && ctx.Err() != nil:
		return driver.NotApplied(fmt.Errorf("mysql: no connection to the server: %w", ctx.Err()))
	case err != nil:
		return driver.NotApplied(s.failed(ctx, err))
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	return s.failed(ctx, do(bound, conn))
}

// duplicateKey is the error of an INSERT whose key is there.
const duplicateKey = 1062

// refusals are the errors with which a server says that it has not carried out a statement, or has rolled it back, and
// what to do. After any other error the statement may have been carried out: a server that is shut down, or a
// statement that is killed, may be in its commit, and a member of a group that leaves it may have sent the write to the
// others.
var refusals = map[uint16]struct {
	mark func(error) error
	do   string
}{
	1044: {driver.Permanent, "grant the user what tenure table policy prints"},
	1045: {driver.Permanent, "check the user, its host and its password"},
	1698: {driver.Permanent, "check the user, its host and its password"},
	1130: {driver.Permanent, "the server allows no user from this host"},
	1129: {driver.Permanent, "the server has blocked this host: run mysqladmin flush-hosts"},
	1142: {driver.Permanent, "grant the user what tenure table policy prints"},
	1143: {driver.Permanent, "grant the user what tenure table policy prints"},
	1820: {driver.Permanent, "the password has expired: set another one"},
	1862: {driver.Permanent, "the password has expired: set another one"},
	1049: {driver.Permanent, "the database does not exist: name another one, or create it"},
	1146: {driver.Permanent, "create the table with tenure table create, or by the statements of mysqlstore.Schema"},
	1054: {driver.Permanent, "the table was made by another program, or another version of Tenure"},
	1064: {driver.Permanent, "the server does not understand a statement: it is no MySQL 8.0 or MariaDB 10.6"},
	1040: {driver.Throttled, "the server has no connection left: raise max_connections, or lower MaxConns"},
	1203: {driver.Throttled, "the user has no connection left: raise max_user_connections, or lower MaxConns"},
	1226: {driver.Throttled, "the user has reached a limit of its account"},
	1114: {driver.Throttled, "the table, or the server's disk, is full"},
	1021: {driver.Throttled, "the server's disk is full"},
	1205: {nil, "another transaction keeps the row, with a guard perhaps: keep it much shorter than the lease"},
	1213: {nil, "the server has rolled back one of two transactions"},
	1020: {nil, "the row has changed"},
	1047: {nil, "the node of Galera has lost the majority, or is not ready"},
	1290: {nil, "the server is read-only: name the primary"},
	1836: {nil, "the server is read-only: name the primary"},
	1062: {nil, "the record is there"},
}

// errReadOnly refuses what a replica answers: it may be of some time ago.
var errReadOnly = errors.New("the server is read-only: a replica, whose answers may be old, or a primary that is being replaced; " +
	"name the primary")

// failed marks an error with what is certain.
func (s *Store) failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case s.life.Ended():
		return fmt.Errorf("%w (%w)", driver.ErrClosed, err)
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return fmt.Errorf("mysql: no answer: %w", ctx.Err())
	case strings.HasPrefix(err.Error(), "mysql: "):
		return err // of a connection, and marked
	case errors.Is(err, sqldriver.ErrBadConn): // nothing was sent
		return driver.NotApplied(fmt.Errorf("mysql: the connection is broken: %w", err))
	}
	r, known := refusals[number(err)]
	if !known {
		return fmt.Errorf("mysql: %w", err)
	}
	err = driver.NotApplied(fmt.Errorf("mysql: %s: %w", r.do, err))
	if r.mark != nil {
		err = r.mark(err)
	}
	return err
}

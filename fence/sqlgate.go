// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"context"
	"database/sql"
)

// SQLGate is a guard whose tokens are rows in a database: it outlives its
// process, and serves all processes on that database. It guards effects of any
// kind, those outside of the database too. All methods may be called
// concurrently.
type SQLGate struct {
	s  *SQL
	db *sql.DB
}

var _ Guard = (*SQLGate)(nil)

// Gate returns a guard on the table in db.
func (s *SQL) Gate(db *sql.DB) *SQLGate { return &SQLGate{s: s, db: db} }

// Do runs write while a transaction holds the resource's row, and returns its
// error: see [Guard]. [TxFromContext] gives that transaction to write, for
// effects in the same database; if write returns an error, they are rolled
// back, and if the commit fails, Do returns its error and it is not known
// whether they were applied. On SQLite effects in the database must use it,
// because the transaction holds the only write lock of the file.
//
// A token that is higher than the last is committed by itself before write
// begins. Effects outside of the database cannot be rolled back, so their token
// must not be either. It is as durable as the commits of the database: it may
// be lost in a power failure if the database does not flush, or in a failover
// to a lagging replica.
func (g *SQLGate) Do(ctx context.Context, resource string, token uint64, write func(context.Context) error) error {
	if err := check(resource, token); err != nil {
		return err
	}
	highest, _, err := g.s.Highest(ctx, g.db, resource)
	if err != nil {
		return err
	}
	if token < highest {
		return g.s.refuse(resource, token, highest) // without a write to the table
	}
	if token > highest {
		if err := g.Admit(ctx, resource, token); err != nil {
			return err
		}
	}
	return g.s.tx(ctx, g.db, resource, token, func(tx *sql.Tx) error {
		return write(context.WithValue(ctx, txKey{}, tx))
	})
}

// Admit has the table remember the token without a write: see [SQL.Admit].
func (g *SQLGate) Admit(ctx context.Context, resource string, token uint64) error {
	return g.s.Admit(ctx, g.db, resource, token)
}

type txKey struct{}

// TxFromContext returns the transaction that a write of [SQLGate.Do], or a
// handler behind [Handler] with such a gate, runs in. It is committed after the
// write has returned: neither commit it nor roll it back.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

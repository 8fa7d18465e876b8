// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurelock/tenure/driver"
)

// ErrTwoTables is matched by the errors of a store, and of [CreateTable], when the options
// name no schema and several schemas of the database have a table of that name: two roles
// would use different tables by their search paths, and not exclude each other. Name the
// schema, the same for all programs.
var ErrTwoTables = errors.New("several tables of one name")

// place is where a table is. A store that has found its place keeps it: the search path of a
// role may find another table after a change of the role, of its settings, or of the
// schemas.
type place struct {
	schema, name string
	sql          statements
}

// String is the table as the options name one.
func (p *place) String() string { return p.schema + "." + p.name }

func (p *place) quoted() string { return pgx.Identifier{p.schema, p.name}.Sanitize() }

// oneRow is a row of pgx or of database/sql.
type oneRow interface{ Scan(dest ...any) error }

// schemasWith finds the schemas of the database that have a relation of the name. All roles
// may read the catalog. The name has been checked.
func schemasWith(name string) string {
	return "SELECT coalesce(string_agg(n.nspname::text, chr(10) ORDER BY n.nspname::text), '') FROM pg_catalog.pg_class AS c" +
		" JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace" +
		" WHERE c.relname = '" + name + "' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'"
}

// schemasIn returns the schemas that have a table of the name. A server that is not PostgreSQL
// may not know the catalog.
func schemasIn(ctx context.Context, db DB, name string) ([]string, error) {
	schemas, err := schemasOf(db.QueryRow(ctx, schemasWith(name), pgx.QueryExecModeExec))
	var e *pgconn.PgError
	if errors.As(err, &e) && isCockroachDB(ctx, db) {
		return nil, errCockroachDB
	}
	return schemas, err
}

func schemasOf(r oneRow) ([]string, error) {
	var text string
	if err := r.Scan(&text); err != nil || text == "" {
		return nil, err
	}
	return strings.Split(text, "\n"), nil
}

// cut returns the schema that a name of a table has, if it has one, and the name without it.
func cut(table string) (schema, name string) {
	if schema, name, found := strings.Cut(table, "."); found {
		return schema, name
	}
	return "", table
}

// only returns the one schema of those that have the table.
func only(name string, schemas []string) (string, error) {
	switch len(schemas) {
	case 0:
		return "", driver.NotApplied(driver.Permanent(fmt.Errorf("postgres: %w", &noTableError{name})))
	case 1:
		return schemas[0], nil
	}
	return "", driver.NotApplied(driver.Permanent(fmt.Errorf("postgres: %w", twoTables(others(name, "", schemas)))))
}

func twoTables(all []string) error {
	return fmt.Errorf("%w: the database has %s, so two programs could use a table each, and hold one lock: write table=%s in the URL, "+
		"or Options.Table in a program, the same everywhere, or drop the table that no program uses",
		ErrTwoTables, strings.Join(all[:len(all)-1], ", ")+" and "+all[len(all)-1], all[0])
}

type noTableError struct{ table string }

func (e *noTableError) Error() string {
	return "table " + e.table + " does not exist: create it with tenure table create, or by the statement of pgstore.Schema"
}

// at returns the place of a store. It asks the server if the options name no schema, and the
// place is not known yet.
func (s *Store) at(ctx context.Context) (*place, error) {
	if p := s.place.Load(); p != nil {
		return p, nil
	}
	if err := s.ready(ctx); err != nil {
		return nil, driver.NotApplied(err)
	}
	schemas, err := schemasIn(ctx, s.pool, s.table)
	if errors.Is(err, errCockroachDB) {
		return nil, err
	}
	if err != nil {
		return nil, driver.NotApplied(s.failed(err)) // it writes nothing
	}
	return s.settle(schemas)
}

// settle keeps the place, if there is one.
func (s *Store) settle(schemas []string) (*place, error) {
	schema, err := only(s.table, schemas)
	if err != nil {
		return nil, err
	}
	s.place.CompareAndSwap(nil, s.placeIn(schema)) // the first one stays
	return s.place.Load(), nil
}

func (s *Store) placeIn(schema string) *place {
	p := &place{schema: schema, name: s.table}
	p.sql = newStatements(p.quoted(), s.commit)
	return p
}

// guards returns the place for a transaction of the program. If the place is not known yet,
// the query runs in that transaction, which may have the pool's last connection; its result
// is not kept, since the transaction may be of another database.
func (s *Store) guards(query func(sql string) oneRow) (*place, error) {
	if p := s.place.Load(); p != nil {
		return p, nil
	}
	schemas, err := schemasOf(query(schemasWith(s.table)))
	if err != nil {
		return nil, err
	}
	schema, err := only(s.table, schemas)
	if err != nil {
		return nil, err
	}
	return s.placeIn(schema), nil
}

// Table returns the name of the table. It has its schema if the options have named one, or
// once the store has found it: [Open] does, and the first call of a store that [New] has made.
func (s *Store) Table() string {
	if p := s.place.Load(); p != nil {
		return p.String()
	}
	return s.table
}

// others returns the tables of the name in all schemas but one.
func others(name, but string, schemas []string) (all []string) {
	for _, schema := range schemas {
		if schema != but {
			all = append(all, schema+"."+name)
		}
	}
	return all
}

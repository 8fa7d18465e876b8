// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

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
	foreign      bool // the engine is not PostgreSQL
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
	return schemas, orForeign(ctx, db, err)
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
	_, name := cut(all[0])
	return fmt.Errorf("%w: the database has %s, so two programs could use a table each, and hold one lock: find the table of the programs "+
		"that run, whose rows change, and drop the other, or write that one as table=SCHEMA.%s in the URL, or Options.Table in a "+
		"program, the same everywhere", ErrTwoTables, strings.Join(all[:len(all)-1], ", ")+" and "+all[len(all)-1], name)
}

type noTableError struct{ table string }

func (e *noTableError) Error() string {
	return "table " + e.table + " does not exist: create it with tenure table create, or by the statement of pgstore.Schema"
}

// at returns the place of a store. It asks the server if the options name no schema, or admit
// another engine, and the place is not known yet.
func (s *Store) at(ctx context.Context) (*place, error) {
	if p := s.place.Load(); p != nil {
		return p, nil
	}
	if err := s.ready(ctx); err != nil {
		return nil, driver.NotApplied(err)
	}
	engine, err := s.engine(ctx)
	schema := s.schema
	if err == nil && schema == "" {
		var schemas []string
		if schemas, err = schemasIn(ctx, s.pool, s.table); err == nil {
			schema, err = only(s.table, schemas)
		}
	}
	if err != nil {
		return nil, driver.NotApplied(s.failed(err)) // it writes nothing
	}
	return s.settle(schema, engine), nil
}

// engine returns the name of an engine that is not PostgreSQL, if the options admit one.
func (s *Store) engine(ctx context.Context) (string, error) {
	if !s.untested {
		return "", nil
	}
	return foreignEngine(ctx, s.pool)
}

// settle keeps the place. The first one stays.
func (s *Store) settle(schema, engine string) *place {
	s.place.CompareAndSwap(nil, s.placeIn(schema, engine))
	return s.place.Load()
}

func (s *Store) placeIn(schema, engine string) *place {
	p := &place{schema: schema, name: s.table, foreign: engine != ""}
	commit := s.commit
	if p.foreign {
		commit = ""
	}
	if s.guard != nil {
		p.sql = newGuardedStatements(p.quoted(), quotedLife(p), commit, s.guard)
	} else {
		p.sql = newStatements(p.quoted(), commit)
	}
	return p
}

// guards returns the place for a transaction of the program. If the place is not known yet,
// the query runs in that transaction, which may have the pool's last connection; its result
// is not kept, since the transaction may be of another database.
func (s *Store) guards(query func(sql string) oneRow) (*place, error) {
	if p := s.place.Load(); p != nil {
		return p, nil
	}
	schema := s.schema
	if schema == "" {
		schemas, err := schemasOf(query(schemasWith(s.table)))
		if err != nil {
			return nil, err
		}
		if schema, err = only(s.table, schemas); err != nil {
			return nil, err
		}
	}
	return s.placeIn(schema, ""), nil
}

// Table returns the name of the table. It has its schema if the options have named one, or
// once the store has found it: [Open] does, and the first call of a store that [New] has made.
func (s *Store) Table() string {
	if p := s.place.Load(); p != nil {
		return p.String()
	}
	if s.schema != "" {
		return s.schema + "." + s.table
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

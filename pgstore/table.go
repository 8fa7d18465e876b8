// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurelock/tenure/driver"
)

// leastVersion is the oldest server that has all that the statements use.
const leastVersion = 120000

// Rights are what a role needs on the table.
var Rights = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}

// Schema returns the statements that create the table, [DefaultTable] if the name is empty,
// and the view for people, whose name is that of the table and "_view". It returns an error if
// the name is not valid.
func Schema(name string) (string, error) { return schema(name, nil) }

// Schema is the function Schema for a guarded table: it creates a third table, with a row about the server. Run it at
// the primary, at once: in a transaction, or as one command.
func (g *Guarded) Schema(name string) (string, error) {
	set, err := g.guard()
	if err != nil {
		return "", err
	}
	return schema(name, set)
}

func schema(name string, g *guard) (string, error) {
	name = cmp.Or(name, DefaultTable)
	of, shows, version := table, view, "version"
	if g != nil {
		of, version = guardedTable(table), guardedVersion
	}
	text := fmt.Sprintf(of+storage+";\n"+shows, quoted(name), ` COLLATE "C"`, quoted(name+viewSuffix), version, quoted(name))
	if g != nil {
		text += ";\n" + fmt.Sprintf(lifeTable, quoted(name+lifeSuffix), g.settings)
	}
	return text, checkTable(name)
}

// Policy returns the statements that grant a role the rights that it needs on the table,
// and no more: [DefaultTable] if the name is empty.
func Policy(name, role string) (string, error) {
	name = cmp.Or(name, DefaultTable)
	to := " TO " + pgx.Identifier{role}.Sanitize()
	text := "GRANT " + strings.Join(Rights, ", ") + " ON " + quoted(name) + to +
		";\nGRANT SELECT ON " + quoted(name+viewSuffix) + to
	if schema, _, ok := strings.Cut(name, "."); ok {
		text = "GRANT USAGE ON SCHEMA " + pgx.Identifier{schema}.Sanitize() + to + ";\n" + text
	}
	return text, checkTable(name)
}

// DB is a pool, a connection or a transaction of pgx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// CreateTable creates the table: [DefaultTable] if the name is empty. An existing table is
// left as it is. If the name has no schema, a table of the name in any schema of the database
// is that table; the error matches [ErrTwoTables] if there are several, and a new table is
// created in the first existing schema of the search path.
func CreateTable(ctx context.Context, db DB, name string) error {
	return createTable(ctx, db, cmp.Or(name, DefaultTable), "", nil)
}

// CreateTable is the function CreateTable for a guarded table.
func (g *Guarded) CreateTable(ctx context.Context, db DB, name string) error {
	set, err := g.guard()
	if err != nil {
		return err
	}
	return createTable(ctx, db, cmp.Or(name, DefaultTable), "", set)
}

// createTable is CreateTable. An engine of another name gets the table alone.
func createTable(ctx context.Context, db DB, name, engine string, g *guard) error {
	text, err := schema(name, g)
	if err != nil {
		return err
	}
	if engine != "" {
		text = fmt.Sprintf(table, quoted(name), "")
	}
	if schema, plain := cut(name); schema == "" {
		schemas, err := schemasIn(ctx, db, plain)
		if err == nil && len(schemas) > 0 {
			_, err = only(plain, schemas)
			return err
		}
		if err != nil {
			return creating(err)
		}
	}
	_, err = db.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
	var e *pgconn.PgError
	if errors.As(err, &e) && (e.Code == "42P07" || e.Code == "23505") { // two at once meet in the catalog
		return nil
	}
	if engine == "" {
		err = orForeign(ctx, db, err)
	}
	return creating(err)
}

func creating(err error) error {
	if err == nil || errors.Is(err, driver.ErrNotApplied) {
		return err
	}
	return fmt.Errorf("postgres: create table: %w", err)
}

// Description is the result of [Store.Inspect]. Numbers are current values.
type Description struct {
	// Table includes the schema, unless no table or several tables have the name.
	Table string `json:"table"`
	// Elsewhere are other tables of the same name in the database, with their schemas. If
	// Table has no schema, they are all there are.
	Elsewhere []string `json:"-"`
	// Exists says that the table exists, and MayRead and MayWrite what the role may do.
	Exists   bool `json:"-"`
	MayRead  bool `json:"may_read"`
	MayWrite bool `json:"may_write"`
	// Unlogged says that the table is empty after a crash.
	Unlogged bool `json:"unlogged"`
	// Missing are columns that the table lacks.
	Missing []string `json:"missing_columns"`
	// Engine names an engine that is not PostgreSQL, and is empty for PostgreSQL. What follows
	// is then unknown.
	Engine string `json:"engine,omitempty"`
	// Version is the version of the server, such as 150018 for 15.18.
	Version int `json:"server_version_num"`
	// Encoding is the encoding of the database.
	Encoding string `json:"encoding"`
	// Standby says that the server is one, or is recovering.
	Standby bool `json:"standby"`
	// Fsync and FullPageWrites are settings of the server without which a crash loses
	// confirmed writes.
	Fsync          bool `json:"fsync"`
	FullPageWrites bool `json:"full_page_writes"`
	// Standbys are how many are connected, and Synchronous how many of them a commit may
	// wait for. These, and the transactions and connections below, are as many as the role
	// may see: all of them if it is a member of pg_read_all_stats.
	Standbys    int `json:"standbys"`
	Synchronous int `json:"synchronous_standbys"`
	// SynchronousNames is the setting synchronous_standby_names.
	SynchronousNames string `json:"synchronous_standby_names"`
	// Asynchronous is how many of the standbys may be promoted, and wait for nothing: as far as the role may see.
	Asynchronous int `json:"asynchronous_standbys"`
	// Sees says that the role is a member of pg_read_all_stats.
	Sees bool `json:"sees_standbys"`
	// SenderTimeout is the setting wal_sender_timeout, 0 if it is off.
	SenderTimeout time.Duration `json:"-"`
	// Settings are those of a guarded table, Life the life of the server, and Open says that locks are granted in it. They
	// are empty if the table is not guarded.
	Settings string `json:"guard,omitempty"`
	Life     string `json:"life,omitempty"`
	Open     bool   `json:"open,omitempty"`
	// CheckInterval is the setting client_connection_check_interval, 0 if it is off.
	CheckInterval time.Duration `json:"-"`
	// OldestTransaction is the age of the oldest transaction in the database. Until it
	// ends, vacuum cannot remove the dead rows of heartbeats.
	OldestTransaction time.Duration `json:"-"`
	// Autovacuum says that it is on.
	Autovacuum bool `json:"autovacuum"`
	// Connections are how many there are, and MaxConnections how many there may be.
	Connections    int `json:"connections"`
	MaxConnections int `json:"max_connections"`
	// Findings are the assessment of the table, if requested.
	Findings []driver.Finding `json:"findings"`

	guard    *guard // of the store
	accepted bool   // the options accept asynchronous standbys
}

// One statement, at any isolation level. What a role may not see is left out.
const describe = `
SELECT version(), current_setting('server_version_num')::int, current_setting('server_encoding'), pg_is_in_recovery(),
	t.oid IS NOT NULL, COALESCE(has_schema_privilege(t.schema, 'USAGE') AND has_table_privilege(t.oid, 'SELECT'), false),
	COALESCE(has_schema_privilege(t.schema, 'USAGE') AND has_table_privilege(t.oid, 'INSERT') AND has_table_privilege(t.oid, 'UPDATE') AND has_table_privilege(t.oid, 'DELETE'), false),
	COALESCE((SELECT relpersistence <> 'p' FROM pg_class WHERE oid = t.oid), false),
	COALESCE((SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = t.oid AND attnum > 0 AND NOT attisdropped), '{}'),
	current_setting('fsync')::bool, current_setting('full_page_writes')::bool,
	(SELECT count(*) FROM pg_stat_replication)::int, (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))::int,
	current_setting('synchronous_standby_names'),
	(SELECT count(*) FROM ` + physical + ` AND r.sync_state = 'async')::int, pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),
	(SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'),
	COALESCE((SELECT setting::bigint FROM pg_settings WHERE name = 'client_connection_check_interval'), 0),
	COALESCE((SELECT extract(epoch FROM max(clock_timestamp() - xact_start)) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()), 0)::float8,
	current_setting('autovacuum')::bool,
	(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int, current_setting('max_connections')::int
FROM (VALUES (1)) AS one LEFT JOIN (SELECT c.oid, c.relnamespace AS schema FROM pg_catalog.pg_class AS c
	JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')) AS t ON true`

// describeOther asks an engine that is not PostgreSQL only for the columns of the table.
const describeOther = `
SELECT COALESCE(array_agg(column_name::text), '{}') FROM information_schema.columns
WHERE table_schema = $1 AND table_name = $2`

// Inspect returns what the table and its server are like.
func (s *Store) Inspect(ctx context.Context) (*Description, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	engine, err := s.engine(ctx)
	var schemas []string
	if err == nil {
		schemas, err = schemasIn(ctx, s.pool, s.table)
	}
	if err != nil {
		return nil, s.failed(err)
	}
	p, schema := s.place.Load(), s.schema
	if schema == "" && len(schemas) == 1 {
		schema = schemas[0]
	}
	if p == nil && schema != "" {
		p = s.settle(schema, engine)
	}
	d := &Description{Table: s.Table(), Missing: []string{}, Engine: engine, guard: s.guard, accepted: s.accepted}
	if p != nil {
		schema = p.schema
	}
	d.Elsewhere = others(s.table, schema, schemas)
	var there []string
	if engine != "" {
		err = s.pool.QueryRow(ctx, describeOther, pgx.QueryExecModeExec, schema, s.table).Scan(&there)
		d.Exists, d.MayRead, d.MayWrite = len(there) > 0, len(there) > 0, len(there) > 0
		d.lacks(there)
		return d, s.failed(err)
	}
	var check, sender int64
	var oldest float64
	var version string
	err = s.pool.QueryRow(ctx, describe, pgx.QueryExecModeExec, schema, s.table).Scan(
		&version, &d.Version, &d.Encoding, &d.Standby, &d.Exists, &d.MayRead, &d.MayWrite, &d.Unlogged, &there, &d.Fsync, &d.FullPageWrites,
		&d.Standbys, &d.Synchronous, &d.SynchronousNames, &d.Asynchronous, &d.Sees, &sender, &check, &oldest, &d.Autovacuum, &d.Connections, &d.MaxConnections)
	if err = orForeign(ctx, s.pool, err); err == nil && foreign(version) != "" {
		err = refusal(foreign(version))
	}
	if err != nil {
		return nil, s.failed(err)
	}
	d.CheckInterval = time.Duration(check) * time.Millisecond
	d.SenderTimeout = time.Duration(sender) * time.Millisecond
	d.OldestTransaction = time.Duration(oldest * float64(time.Second))
	d.lacks(there)
	if slices.Contains(there, guardedVersion) && p != nil {
		err = s.pool.QueryRow(ctx, describeLife(quotedLife(p)), pgx.QueryExecModeExec).Scan(&d.Settings, &d.Life, &d.Open)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) && d.MayRead && d.guard != nil && !d.Standby {
			return nil, s.failed(fmt.Errorf("the table about the server: %w", err))
		}
	}
	return d, nil
}

// lacks notes the columns that an existing table lacks.
func (d *Description) lacks(there []string) {
	expected := columns
	if slices.Contains(there, guardedVersion) { // a table of the other kind is a problem of its own
		d.Settings, expected = "?", guardedNames
	}
	for _, name := range expected {
		if d.Exists && !slices.Contains(there, name) {
			d.Missing = append(d.Missing, name)
		}
	}
}

// Problems are what makes the table unusable, each with what to do. [Open] returns them.
func (d *Description) Problems() []error {
	return problemsOf(d.problems, d.serverProblems, d.guardProblems)
}

// problemsOf collects problems.
func problemsOf(all ...func(problem func(is bool, text string, args ...any))) (out []error) {
	for _, find := range all {
		find(func(is bool, text string, args ...any) {
			if is {
				out = append(out, fmt.Errorf("postgres: "+text, args...))
			}
		})
	}
	return out
}

func (d *Description) problems(problem func(is bool, text string, args ...any)) {
	known := d.Engine == ""
	problem(known && d.Version < leastVersion, "the server's version is %s: the store needs 12 or later", d.version())
	problem(known && d.Encoding != "UTF8", "the database is encoded in %s: create one with UTF8", d.Encoding)
	problem(d.Standby, "%w", errStandby)
	switch {
	case !d.Exists && len(d.Elsewhere) > 1 && !strings.Contains(d.Table, "."):
		problem(true, "%w", twoTables(d.Elsewhere))
	case !d.Exists:
		problem(true, "%w", &noTableError{d.Table})
	case !d.MayRead || !d.MayWrite:
		problem(true, "the role may not read and write table %s: grant it what tenure table policy prints", d.Table)
	case len(d.Missing) > 0:
		problem(true, "table %s lacks the column %s: %s", d.Table, d.Missing[0], otherTable)
	}
	problem(d.Unlogged, "table %s is unlogged: it would be empty after a crash, and tokens would be given twice: ALTER TABLE %[1]s SET LOGGED", d.Table)
}

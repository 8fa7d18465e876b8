// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenurelock/tenure/driver"
)

// DefaultTable is the table of a store whose options name no table.
const DefaultTable = "tenure_records"

// tableFormat is how this package writes rows. A row of a later format is unreadable, and
// no statement here changes it.
const tableFormat = 1

// schema creates the table. Its comments are for people with psql.
//
// The key is compared by bytes, as [driver.Store] lists it. Rows have room beside them in
// their page, and no column that changes is indexed, so that a heartbeat is a HOT update,
// which needs no vacuum of the index. The table must not be UNLOGGED: it would be empty
// after a crash, and tokens would begin at 1 again.
//
// No column has a CHECK: PostgreSQL parses each of them again with every update, and
// three took a seventh of its work. A row that was damaged by hand is unreadable.
const schema = `CREATE TABLE %s (
	key          text COLLATE "C" PRIMARY KEY,
	format       integer NOT NULL,   -- of the row: a program does not touch rows of a format that it does not know
	state        text NOT NULL,      -- held, resting (held under a session), reserved, released; past: history of a term; alive, closed: a session
	owner        text NOT NULL,
	token        bigint NOT NULL,    -- fencing token, from 1: one higher with every change of holder
	version      text NOT NULL,      -- new with every write
	beat         text NOT NULL,      -- new with every heartbeat
	session      text,               -- the session whose heartbeat keeps the lock
	lease_ns     bigint NOT NULL,    -- how long an unchanged beat proves life, in nanoseconds
	heartbeat_ns bigint NOT NULL,    -- period of the heartbeats in nanoseconds, 0: unknown
	drift        double precision NOT NULL, -- the holder's bound on the error of clock rates, 0: unknown
	host         text NOT NULL,
	label        text NOT NULL,
	bell         text,               -- where the holder takes notifications, and a secret
	since        timestamptz,        -- when the term began and ended, for people only
	until        timestamptz,
	ended        text NOT NULL,      -- how it ended, in a released record
	priority     bigint NOT NULL,    -- how much the holder is preferred
	requests     jsonb,              -- for the holder
	asked        jsonb,              -- the request that ended the term
	prev_token   bigint,             -- the term before this one, NULL if this is the first
	prev_owner   text,
	prev_host    text,
	prev_label   text,
	prev_since   timestamptz,
	prev_until   timestamptz,
	prev_ended   text,
	prev_asked   jsonb,
	data         bytea               -- the holder's own
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)`

// columns are the columns that this package knows, in the order of record.go, with their types.
var columns = []struct {
	name string
	oid  uint32
}{
	{"key", pgtype.TextOID},
	{"format", pgtype.Int4OID},
	{"state", pgtype.TextOID},
	{"owner", pgtype.TextOID},
	{"token", pgtype.Int8OID},
	{"version", pgtype.TextOID},
	{"beat", pgtype.TextOID},
	{"session", pgtype.TextOID},
	{"lease_ns", pgtype.Int8OID},
	{"heartbeat_ns", pgtype.Int8OID},
	{"drift", pgtype.Float8OID},
	{"host", pgtype.TextOID},
	{"label", pgtype.TextOID},
	{"bell", pgtype.TextOID},
	{"since", pgtype.TimestamptzOID},
	{"until", pgtype.TimestamptzOID},
	{"ended", pgtype.TextOID},
	{"priority", pgtype.Int8OID},
	{"requests", pgtype.JSONBOID},
	{"asked", pgtype.JSONBOID},
	{"prev_token", pgtype.Int8OID},
	{"prev_owner", pgtype.TextOID},
	{"prev_host", pgtype.TextOID},
	{"prev_label", pgtype.TextOID},
	{"prev_since", pgtype.TimestamptzOID},
	{"prev_until", pgtype.TimestamptzOID},
	{"prev_ended", pgtype.TextOID},
	{"prev_asked", pgtype.JSONBOID},
	{"data", pgtype.ByteaOID},
}

// dataColumn is the last column, which some statements leave alone.
const dataColumn = "data"

// statement is a statement that is prepared on each connection, under a name that no
// other text has.
type statement struct {
	sql, name string
	oids      []uint32
}

func newStatement(sql string, oids ...uint32) *statement {
	sum := sha256.Sum256([]byte(sql))
	return &statement{sql: sql, name: "tenure_" + hex.EncodeToString(sum[:12]), oids: oids}
}

// statements are the statements of one table.
type statements struct {
	get, getBatch, list, claim, claimKnown, claimKnownKeepingData, swap, swapKeepingData, remove *statement
	guard                                                                                        string
}

// tableName is compiled at its first use: a program may import this store, and use another.
var tableName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,54}$`)
})

func checkTable(table string) error {
	if !tableName().MatchString(table) {
		return fmt.Errorf("pgstore: table %.80q: write letters, digits and underscores, at most 55, with a schema and a dot before it if need be", table)
	}
	return nil
}

// quoted returns the table as a statement names it. Capitals stay as they are.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }

// channelOf returns the channel for notifications of changes of a table. It does not
// contain the schema, since one program may name it where another finds it by its
// search path.
func channelOf(table string) string {
	_, name := cut(table)
	return "tenure_" + name
}

func newStatements(t, commit string) statements {
	var oids []uint32
	var names, sets, claims []string
	params := parameters(len(columns))
	for i, c := range columns {
		oids, names = append(oids, c.oid), append(names, c.name)
		if i > 0 {
			sets = append(sets, c.name+" = "+params[i])
			claims = append(claims, c.name+" = "+claimed(c.name, params[i]))
		}
	}
	all := strings.Join(names, ", ")
	// The answer depends on two settings: the commit is as safe as the options say,
	// whatever the settings of the role and the server, and a warning comes if it is not.
	// Both end with the statement.
	settings := "WITH settings AS MATERIALIZED (SELECT set_config('synchronous_commit', '" + commit +
		"', true), set_config('client_min_messages', 'warning', true))"
	// In a statement for one row, the settings are made when that row is found: a plan
	// for the statement above costs as much as the update.
	settled := " AND set_config('synchronous_commit', '" + commit + "', true) <> '' AND set_config('client_min_messages', 'warning', true) <> ''"
	swap := func(sets []string, also string) *statement {
		return newStatement("UPDATE "+t+" AS t SET "+strings.Join(sets, ", ")+
			fmt.Sprintf(" WHERE t.key = $1 AND t.format = $2 AND t.version = $%d AND t.token = $%d", len(columns)+1, len(columns)+2)+also+settled,
			append(append([]uint32{}, oids...), pgtype.TextOID, pgtype.Int8OID)...)
	}
	isReleased := fmt.Sprintf(" AND t.state = '%s'", driver.Released)
	// A standby answers as well, with an older state.
	read := "SELECT pg_is_in_recovery(), " + all
	return statements{
		get:      newStatement(read+" FROM (VALUES (1)) AS one LEFT JOIN "+t+" ON key = $1", pgtype.TextOID),
		getBatch: newStatement(read+" FROM unnest($1) WITH ORDINALITY AS wanted (name, n) LEFT JOIN "+t+" ON key = name ORDER BY n", pgtype.TextArrayOID),
		list: newStatement(read+" FROM (VALUES (1)) AS one LEFT JOIN (SELECT * FROM "+t+
			" WHERE key >= $1 AND key > $2 AND starts_with(key, $1) ORDER BY key LIMIT $3) AS page ON true ORDER BY key",
			pgtype.TextOID, pgtype.TextOID, pgtype.Int8OID),
		// Nothing is locked before it is clear that a write follows: a claim of a held lock
		// costs no flush. The update finds changes since the row was read, because it reads
		// the current row.
		claim: newStatement(settings+", seen AS MATERIALIZED (SELECT "+all+" FROM "+t+" WHERE key = $1)"+
			", updated AS (UPDATE "+t+" AS t SET "+strings.Join(claims, ", ")+" FROM settings, seen"+
			fmt.Sprintf(" WHERE t.key = $1 AND t.format = $2 AND t.state = '%s' AND t.token < %d", driver.Released, uint64(driver.MaxToken))+
			" AND t.version = seen.version AND t.token = seen.token RETURNING t."+strings.Join(names, ", t.")+")"+
			", inserted AS (INSERT INTO "+t+" ("+all+") SELECT "+strings.Join(params, ", ")+" FROM settings"+
			" WHERE NOT EXISTS (SELECT FROM seen) ON CONFLICT (key) DO NOTHING RETURNING "+all+")"+
			" SELECT true, "+all+" FROM updated UNION ALL SELECT true, "+all+" FROM inserted UNION ALL SELECT false, "+all+" FROM seen", oids...),
		claimKnown:            swap(sets, isReleased),
		claimKnownKeepingData: swap(sets[:len(sets)-1], isReleased),
		swap:                  swap(sets, ""),
		swapKeepingData:       swap(sets[:len(sets)-1], ""),
		remove: newStatement("DELETE FROM "+t+fmt.Sprintf(" AS t WHERE t.key = $1 AND t.format = %d AND t.version = $2 AND t.token = $3", tableFormat)+settled,
			pgtype.TextOID, pgtype.TextOID, pgtype.Int8OID),
		guard: "SELECT format, token, state FROM " + t + " WHERE key = $1 FOR SHARE",
	}
}

// newNotify returns the statement that notifies of changes. It has a transaction of its
// own, since notifying transactions commit one after the other, in the whole cluster. It
// waits for no disk and no standby: a hint may be lost. It returns no row.
func newNotify() *statement {
	return newStatement("WITH settings AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"+
		" SELECT FROM settings, unnest($2) AS payload HAVING count(pg_notify($1, payload)) < 0", pgtype.TextOID, pgtype.TextArrayOID)
}

// parameters returns $1 to $n.
func parameters(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("$%d", i+1)
	}
	return list
}

// claimed is driver.Claimed in SQL: what a column becomes when a released row t is
// claimed.
func claimed(name, param string) string {
	switch name {
	case "token":
		return "t.token + 1"
	case dataColumn:
		return "COALESCE(" + param + ", t.data)"
	case "prev_ended":
		return fmt.Sprintf("COALESCE(NULLIF(t.ended, ''), '%s')", driver.EndReleased)
	case "prev_asked":
		// driver.Term.Brief: as much of the reason as fits, and an ellipsis.
		const reason, more = "(t.asked->>'reason')", "…"
		return fmt.Sprintf("CASE WHEN octet_length(%[1]s) > %[2]d THEN jsonb_set(t.asked, '{reason}', to_jsonb(left(%[1]s,"+
			" (SELECT max(n) FROM generate_series(0, %[3]d) AS n WHERE octet_length(left(%[1]s, n)) <= %[3]d)) || '%[4]s')) ELSE t.asked END",
			reason, driver.MaxPrevReasonLen, driver.MaxPrevReasonLen-len(more), more)
	}
	if was, ok := strings.CutPrefix(name, "prev_"); ok {
		return "t." + was
	}
	return param
}

// Commit says what the engine waits for before it answers a write.
type Commit string

const (
	// CommitOn waits until the write is on the disks of the primary and of the
	// synchronous standbys, if the server names any. It is the default.
	CommitOn Commit = "on"
	// CommitRemoteApply also waits until the synchronous standbys show it.
	CommitRemoteApply Commit = "remote_apply"
)

func (c Commit) check() error {
	switch c {
	case CommitOn, CommitRemoteApply:
		return nil
	case "":
		return errors.New("pgstore: commit is empty")
	}
	return fmt.Errorf("pgstore: commit %.40q: write %s or %s; a write that is answered before it is safe could be lost, and its token given twice", c, CommitOn, CommitRemoteApply)
}

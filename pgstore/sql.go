// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// DefaultTable is the table of a store whose options name no table.
const DefaultTable = "tenure_records"

// viewSuffix makes the name of the view from that of the table.
const viewSuffix = "_view"

// table creates the table: see [recordcodec.Row]. Its comments are for people with psql.
//
// The name is compared by bytes, as [driver.Store] lists it. Rows have room beside them in
// their page, and no column that changes is indexed, so that a heartbeat is a HOT update,
// which needs no vacuum of the index. The table must not be UNLOGGED: it would be empty
// after a crash, and tokens would begin at 1 again.
//
// A later version whose rows this one must not touch renames a column: then each statement
// of this one fails.
//
// No column has a CHECK: PostgreSQL parses each of them again with every update. Nor is the
// record json, which would be checked with every write. A row that was damaged by hand is
// unreadable.
const table = `CREATE TABLE %s (
	name    text%s PRIMARY KEY,
	version text NOT NULL,   -- new with every write
	token   bigint NOT NULL, -- fencing token, from 1: one higher with every change of holder
	state   text NOT NULL,   -- held, resting (held under a session), reserved, released
	                         -- past: the history of a term; alive, closed: a session
	owner   text NOT NULL,
	record  text NOT NULL,   -- the rest, a JSON object: the view has it in columns
	data    bytea            -- the holder's own
)`

// storage are the parameters of the table, which other engines do not know.
const storage = ` WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)`

// view shows the table to people, without the secret address for notifications.
const view = `CREATE OR REPLACE VIEW %s AS
SELECT t.name, t.state, t.owner, t.token, r.host, r.label, r.since, r.until, r."end" AS ended, r.session, r.lease,
	r.heartbeat, r.drift, r.priority, r.requests, r.asked, (r.prev ->> 'token')::bigint AS prev_token, r.prev ->> 'owner' AS prev_owner,
	(r.prev ->> 'until')::timestamptz AS prev_until, COALESCE(r.prev ->> 'end', r.prev ->> 'state') AS prev_ended,
	octet_length(t.data) AS data_bytes, t.%s AS version, r.beat
FROM %s AS t, jsonb_to_record(t.record::jsonb) AS r (host text, label text, since timestamptz, until timestamptz,
	"end" text, session text, lease text, heartbeat text, drift float8, priority bigint, requests jsonb, asked jsonb, prev jsonb, beat text)`

// columns are the columns of the table, in the order of [recordcodec.Row].
var columns = []string{"name", "version", "token", "state", "owner", "record", "data"}

// oids are the types of the values of a row.
var oids = []uint32{
	pgtype.TextOID, pgtype.TextOID, pgtype.Int8OID, pgtype.TextOID, pgtype.TextOID, pgtype.TextOID, pgtype.ByteaOID,
}

// valuesOf returns the values of a row. Data that are nil are NULL.
func valuesOf(rec driver.Record) []any {
	row := recordcodec.RowOf(rec)
	values := []any{row.Name, row.Version, row.Token, row.State, row.Owner, row.Text, nil}
	if row.Data != nil {
		values[len(values)-1] = row.Data
	}
	return values
}

// row is a row of an answer: a flag, and the row of the table that was found.
type row struct {
	flag, found bool
	server             // of a guarded store
	session     string // the life in which a session was opened
	recordcodec.Row
}

// rowOf decodes the values of a row: a flag; in a guarded store, lifeColumns for a read, and the life alone for a
// write; and the columns of the table, which are all NULL if it has no row, with the life of a session.
func rowOf(raw [][]byte) (row, error) {
	errTypes := errors.New("its columns have other types")
	if len(raw) == 0 || len(raw[0]) != 1 {
		return row{}, errTypes
	}
	r, raw := row{flag: raw[0][0] != 0}, raw[1:]
	switch len(raw) {
	case 1:
		r.life = string(raw[0])
		return r, nil
	case len(columns):
	case 1 + len(columns):
		r.life, raw = string(raw[0]), raw[1:]
	case guardedColumns + len(columns) + 1:
		r.server = server{
			life: string(raw[0]), id: string(raw[1]), settings: string(raw[2]), open: string(raw[3]),
		}
		for i, n := range []*int64{&r.base, &r.fresh, &r.connected} { // NULL if the store has no row
			if of := raw[4+i]; len(of) == 8 {
				*n = int64(binary.BigEndian.Uint64(of))
			} else if of != nil {
				return row{}, errTypes
			}
		}
		r.session, raw = string(raw[len(raw)-1]), raw[guardedColumns:]
	default:
		return row{}, errTypes
	}
	if r.found = raw[0] != nil; !r.found {
		return r, nil
	}
	if len(raw[2]) != 8 {
		return row{}, errTypes
	}
	r.Row = recordcodec.Row{
		Name: string(raw[0]), Version: string(raw[1]), Token: int64(binary.BigEndian.Uint64(raw[2])),
		State: string(raw[3]), Owner: string(raw[4]), Text: string(raw[5]),
	}
	if raw[6] != nil {
		r.Data = append([]byte{}, raw[6]...)
	}
	return r, nil
}

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

// statements are the statements of one table. Claim is nil where the engine refuses it; look is get, and also counts
// the standbys; the second line is for a guarded store.
type statements struct {
	get, look, getBatch, list, claim, insert, swap, swapKeepingData, take, takeKeepingData, remove *statement
	takeover, release, open, raise, raiseAbsent                                                    *statement
	guard                                                                                          string
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

// guardedColumns are how many columns of lifeColumns there are.
const guardedColumns = 7

// settings sets what the answer depends on: the commit is as safe as the options say, whatever the settings of the
// role and the server, and a warning comes if it is not. Both end with the statement. To look at them costs less
// than to set them again.
func settings(commit string) string {
	return " AND (current_setting('synchronous_commit') = '" + commit +
		"' OR set_config('synchronous_commit', '" + commit + "', true) <> '')" +
		" AND (current_setting('client_min_messages') IN ('notice', 'warning')" +
		" OR set_config('client_min_messages', 'warning', true) <> '')"
}

// newStatements returns the statements for table t. Without a commit they are for another
// engine than PostgreSQL: they have no settings, and claims are made in two statements.
func newStatements(t, commit string) statements {
	all := strings.Join(columns, ", ")
	settled, standby := "", "false"
	if commit != "" {
		settled = settings(commit)
		standby = "pg_is_in_recovery()" // a standby answers as well, with an older state
	}
	// The data are not written again if they stay: a heartbeat is small, whatever the record holds.
	const keep = "version = $2, token = $3, state = $4, owner = $5, record = $6"
	const withData = keep + ", data = $7"
	update := func(sets, also string) *statement {
		return newStatement("UPDATE "+t+" AS t SET "+sets+" WHERE t.name = $1 AND t.version = $8 AND t.token = $9"+
			also+settled, append(slices.Clip(oids), pgtype.TextOID, pgtype.Int8OID)...)
	}
	isReleased := " AND t.state = '" + string(driver.Released) + "'"
	insert := "INSERT INTO " + t + " (" + all + ") SELECT $1, $2, $3, $4, $5, $6, $7"
	read := "SELECT " + standby + ", " + all
	list := statements{
		get: newStatement(read+" FROM (VALUES (1)) AS one LEFT JOIN "+t+" ON name = $1", pgtype.TextOID),
		getBatch: newStatement(read+" FROM unnest($1) WITH ORDINALITY AS wanted (key, n) LEFT JOIN "+t+
			" ON name = key ORDER BY n", pgtype.TextArrayOID),
		list: newStatement(read+" FROM (VALUES (1)) AS one LEFT JOIN (SELECT * FROM "+t+
			" WHERE name >= $1 AND name > $2 AND starts_with(name, $1) ORDER BY name LIMIT $3) AS page ON true ORDER BY name",
			pgtype.TextOID, pgtype.TextOID, pgtype.Int8OID),
		insert:          newStatement(insert+" WHERE true"+settled+" ON CONFLICT (name) DO NOTHING", oids...),
		swap:            update(withData, ""),
		swapKeepingData: update(keep, ""),
		take:            update(withData, isReleased),
		takeKeepingData: update(keep, isReleased),
		remove: newStatement("DELETE FROM "+t+" AS t WHERE t.name = $1 AND t.version = $2 AND t.token = $3"+settled,
			pgtype.TextOID, pgtype.TextOID, pgtype.Int8OID),
		guard: "SELECT token, state FROM " + t + " WHERE name = $1 FOR SHARE",
	}
	list.look = list.get
	if commit == "" {
		return list
	}
	// Nothing is locked before it is clear that a write follows: a claim of a held lock
	// costs no flush. The update finds changes since the row was read, because it reads
	// the current row. The former text becomes the member prev of the new one, if it is one.
	list.claim = newStatement("WITH seen AS MATERIALIZED (SELECT "+all+" FROM "+t+" WHERE name = $1)"+
		", updated AS (UPDATE "+t+" AS t SET version = $2, token = t.token + 1, state = $4, owner = $5"+
		", data = COALESCE($7, t.data), record = "+claimedText+" FROM seen WHERE t.name = $1"+isReleased+fmt.Sprintf(" AND t.token < %d", uint64(driver.MaxToken))+
		" AND t.version = seen.version AND t.token = seen.token"+
		" AND t.record::json ->> 'lease' <> ''"+settled+" RETURNING 1)"+
		", inserted AS ("+insert+" WHERE NOT EXISTS (SELECT FROM seen)"+settled+" ON CONFLICT (name) DO NOTHING RETURNING 1)"+
		" SELECT EXISTS (SELECT FROM updated UNION ALL SELECT FROM inserted), "+all+
		" FROM (VALUES (1)) AS one LEFT JOIN seen ON true", oids...)
	return list
}

// claimedText is driver.Claimed for the text of a record, without reading it: see
// [recordcodec.DecodeTerm].
const claimedText = `left($6, -1) || ',"prev":{"state":"released","owner":' || to_json(t.owner)::text ||` +
	` ',"token":' || t.token || ',' || substr(ltrim(t.record, E' \t\n\r'), 2) || '}'`

// newNotify returns the statement that notifies of changes. It has a transaction of its
// own, since notifying transactions commit one after the other, in the whole cluster. It
// waits for no disk and no standby: a hint may be lost. It returns no row.
func newNotify() *statement {
	return newStatement("WITH settings AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"+
		" SELECT FROM settings, unnest($2) AS payload HAVING count(pg_notify($1, payload)) < 0", pgtype.TextOID, pgtype.TextArrayOID)
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	sqldriver "database/sql/driver"
	"fmt"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

const (
	// applicationID says in the header of the file that it is ours: "Tenu".
	applicationID = 0x54656e75
	// schemaVersion is the user_version that this package reads and writes; a file
	// with any other version is refused. Writes leave the columns of users as they are,
	// and what a later version adds to the text of a record stays for its term: see
	// package recordcodec. A new column needs a new version.
	schemaVersion = 1
)

// schema creates the table: see [recordcodec.Row]. Its comments are for people with the
// sqlite3 shell.
//
// With STRICT the engine refuses a text in a column of numbers. It is an
// ordinary rowid table with an index of names, because rows may be long. data is the
// last column, so that a heartbeat leaves the pages with long data alone: SQLite writes
// the pages that differ if the row keeps its size.
const schema = `
CREATE TABLE tenure_records (
	name    TEXT NOT NULL PRIMARY KEY COLLATE BINARY,
	version TEXT NOT NULL,    -- new with every write
	token   INTEGER NOT NULL, -- fencing token: one higher with every change of holder
	state   TEXT NOT NULL,    -- held, resting (held under a session), reserved, released
	                          -- past: the history of a term; alive, closed: a session
	owner   TEXT NOT NULL,
	record  TEXT NOT NULL,    -- the rest, a JSON object: tenure_records_view has it in columns
	data    BLOB              -- the holder's own
) STRICT`

// view shows the table to people, without the secret address for notifications. A text that
// was damaged by hand shows NULL.
const view = `
CREATE VIEW IF NOT EXISTS tenure_records_view AS
SELECT name, state, owner, token, json_extract(r, '$.host') AS host, json_extract(r, '$.label') AS label,
	json_extract(r, '$.since') AS since, json_extract(r, '$.until') AS until, json_extract(r, '$.end') AS ended,
	json_extract(r, '$.session') AS session, json_extract(r, '$.lease') AS lease,
	json_extract(r, '$.heartbeat') AS heartbeat, json_extract(r, '$.drift') AS drift,
	json_extract(r, '$.priority') AS priority, json_extract(r, '$.requests') AS requests,
	json_extract(r, '$.asked') AS asked,
	json_extract(r, '$.prev.token') AS prev_token, json_extract(r, '$.prev.owner') AS prev_owner,
	json_extract(r, '$.prev.until') AS prev_until, json_extract(r, '$.prev.end') AS prev_ended,
	length(data) AS data_bytes, version, json_extract(r, '$.beat') AS beat
FROM (SELECT *, CASE WHEN json_valid(record) THEN record END AS r FROM tenure_records)`

// columns are the columns of the table, in the order of [recordcodec.Row].
var columns = []string{"name", "version", "token", "state", "owner", "record", "data"}

// The statements. Writes name their columns, so that columns that a user has added stay as
// they are.
const (
	sqlColumns = "name, version, token, state, owner, record, data"
	sqlGet     = "SELECT " + sqlColumns + " FROM tenure_records WHERE name = ?"
	sqlPut     = "INSERT INTO tenure_records (" + sqlColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE" +
		" SET version = excluded.version, token = excluded.token, state = excluded.state, owner = excluded.owner," +
		" record = excluded.record, data = excluded.data"
	sqlSwap = "UPDATE tenure_records SET version = ?, token = ?, state = ?, owner = ?, record = ?, data = ?" +
		" WHERE name = ? AND version = ? AND token = ?"
	sqlList = "SELECT " + sqlColumns + " FROM tenure_records WHERE name >= ? AND name > ? ORDER BY name LIMIT ?"
)

const (
	sqlDelete  = "DELETE FROM tenure_records WHERE name = ? AND version = ? AND token = ?"
	sqlInspect = "SELECT (SELECT count(*) FROM sqlite_schema), application_id, user_version," +
		" (SELECT group_concat(name) FROM pragma_table_info('tenure_records'))" +
		" FROM pragma_application_id, pragma_user_version"
	sqlBegin    = "BEGIN IMMEDIATE"
	sqlCommit   = "COMMIT"
	sqlRollback = "ROLLBACK"
)

// prepareFile creates the table in an empty database, and leaves a database of
// others as it is. Any number of processes may do this at once.
func prepareFile(c *conn, file string) error {
	found, err := inspect(c, file)
	switch {
	case err != nil:
		return err
	case found.guest():
		return checkSettings(c, file)
	case !found.ours():
		return found.foreign(file)
	}
	if err := probe(c); err != nil && !locked(err) { // if others write, it is not read-only
		return fault(file, err)
	}
	// Write-ahead logging is requested every time, since a user may have
	// switched it off with the shell. If it is on, this waits for no lock.
	mode := ""
	if err := c.query("PRAGMA journal_mode = WAL", func(row []sqldriver.Value) bool {
		mode, _ = row[0].(string)
		return false
	}); err != nil {
		return fault(file, err)
	}
	if mode != "wal" {
		return driver.Permanent(fmt.Errorf(
			"sqlite file %q: cannot use write-ahead logging (journal mode is %q); put it on a local file system", file, mode))
	}
	if found.empty() {
		return create(c, file, false)
	}
	return nil
}

// probe returns an error if the database cannot be written, and changes nothing.
// BEGIN IMMEDIATE is not enough: it succeeds on a read-only file.
func probe(c *conn) error {
	if _, err := c.exec(sqlBegin); err != nil {
		return err
	}
	err := c.run(fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
	if rollbackErr := c.run(sqlRollback); err == nil {
		err = rollbackErr
	}
	return err
}

// create creates the table in one transaction, unless another process was
// first. With guest the database may be another application's: then only the
// table is created.
func create(c *conn, file string, guest bool) error {
	if _, err := c.exec(sqlBegin); err != nil {
		return fault(file, err)
	}
	found, err := inspect(c, file)
	var list []string
	switch {
	case err != nil, found.table, found.id == applicationID:
	case guest:
		list = []string{schema, view}
	case found.empty():
		list = []string{
			schema, view, fmt.Sprintf("PRAGMA application_id = %d", applicationID),
			fmt.Sprintf("PRAGMA user_version = %d", schemaVersion),
		}
	default:
		err = found.foreign(file)
	}
	for _, sql := range list {
		if err == nil {
			err = fault(file, c.run(sql))
		}
	}
	if err == nil {
		_, err = c.exec(sqlCommit)
		err = fault(file, err)
	}
	if err != nil {
		_ = c.run(sqlRollback)
	}
	return err
}

// found is what a database holds.
type found struct {
	objects, id, version int64
	table                bool // our table is there
}

func (f found) empty() bool { return f == found{} }

func (f found) ours() bool { return f.id == applicationID || f.empty() }

// guest says that the database is another application's, with our table in it.
func (f found) guest() bool { return f.table && f.id != applicationID }

func (f found) foreign(file string) error {
	return driver.Permanent(fmt.Errorf(
		"sqlite file %q: the database belongs to another application (application_id %#x, %d objects); give Tenure a file of its own",
		file, f.id, f.objects))
}

// otherVersion is what to do about a table that lacks a column. It is never read
// with a zero in the column's place. What becomes of the tokens is in
// docs/guides/operations.md.
const otherVersion = "the table is not as this program creates it (column %s is missing); if another version of Tenure created it, use that version," +
	" or stop all programs that use it and delete %s, or name a new file: its locks are forgotten then, and tokens begin at 1 again"

// inspect returns what the database holds, and an error if it has a table, or is
// a file of ours, that this program cannot work with. It changes nothing.
func inspect(c *conn, file string) (f found, err error) {
	var names []string
	// One statement, so that it sees another process's creation whole or not at all.
	err = c.query(sqlInspect, func(row []sqldriver.Value) bool {
		f.objects, _ = row[0].(int64)
		f.id, _ = row[1].(int64)
		f.version, _ = row[2].(int64)
		list, _ := row[3].(string)
		names = strings.Split(list, ",")
		f.table = list != ""
		return false
	})
	if err != nil {
		return found{}, fault(file, err)
	}
	refuse := func(text string, args ...any) (found, error) {
		return found{}, driver.Permanent(fmt.Errorf("sqlite file %q: "+text, append([]any{file}, args...)...))
	}
	what := "it"
	if f.guest() {
		what = "the table tenure_records"
	}
	for _, column := range columns {
		if f.table && !slices.Contains(names, column) {
			return refuse(otherVersion, column, what)
		}
	}
	switch {
	case f.id != applicationID:
	case f.version > schemaVersion:
		return refuse("made by a newer Tenure (schema version %d, this one knows %d); upgrade this program", f.version, schemaVersion)
	case f.version < schemaVersion:
		return refuse("schema version %d was never written by Tenure (this version writes %d); restore the file", f.version, schemaVersion)
	}
	return f, nil
}

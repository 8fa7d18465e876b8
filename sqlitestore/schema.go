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
	// with any other version is refused. Writes leave unknown columns as they are.
	// That is right for columns of users, but a danger for ours: a program of this
	// version takes a lock and leaves in the row what a later version has written
	// about the former holder. So a new column needs a new version, too, and a
	// value in the row that shows with which write it was filled: the version of
	// that write, say.
	schemaVersion = 1
)

// schema creates the table. Its comments are for people with the sqlite3 shell.
//
// With STRICT the engine refuses a text in a column of numbers. It is an
// ordinary rowid table with a key index, because rows may be long. data is the
// last column, so that a heartbeat, which changes version and beat at the
// front, leaves the pages with long data alone: SQLite writes the pages that
// differ if the row keeps its size.
const schema = `
CREATE TABLE tenure_records (
	key          TEXT NOT NULL PRIMARY KEY COLLATE BINARY,
	state        TEXT NOT NULL,    -- held, reserved, released; past: no lock, but the history of a term; alive, closed: a session
	owner        TEXT NOT NULL,
	token        INTEGER NOT NULL, -- fencing token: one higher with every change of holder
	version      TEXT NOT NULL,    -- new with every write
	beat         TEXT NOT NULL,    -- new with every heartbeat
	session      TEXT,             -- the session whose heartbeat renews the lock, NULL if the lock has its own
	lease_ns     INTEGER NOT NULL, -- how long an unchanged beat proves life, in nanoseconds
	heartbeat_ns INTEGER NOT NULL, -- period of the heartbeats in nanoseconds, 0: unknown
	drift        REAL NOT NULL,    -- the holder's bound on the error of clock rates, 0: unknown
	host         TEXT NOT NULL,
	label        TEXT NOT NULL,
	bell         TEXT,             -- where the holder takes notifications, and a secret
	since        TEXT,             -- when the term began and ended, RFC 3339, for people only
	until        TEXT,
	ended        TEXT NOT NULL,    -- how it ended, in a released record
	priority     INTEGER NOT NULL, -- how much the holder is preferred
	requests     TEXT,             -- for the holder, a JSON array, NULL if there are no requests
	asked        TEXT,             -- the request that ended the term, in JSON
	prev_token   INTEGER,          -- the term before this one, NULL if this is the first
	prev_owner   TEXT,
	prev_host    TEXT,
	prev_label   TEXT,
	prev_since   TEXT,
	prev_until   TEXT,
	prev_ended   TEXT,
	prev_asked   TEXT,
	data         BLOB              -- the holder's own
) STRICT`

// columns are the columns that this package knows, in the order of record.go.
var columns = []string{
	"key", "state", "owner", "token", "version", "beat", "session", "lease_ns", "heartbeat_ns", "drift", "host", "label", "bell",
	"since", "until", "ended", "priority", "requests", "asked", "prev_token", "prev_owner", "prev_host", "prev_label",
	"prev_since", "prev_until", "prev_ended", "prev_asked", "data",
}

// The statements. Writes name their columns, so that columns of a newer
// version stay as they are.
var (
	sqlGet = "SELECT " + strings.Join(columns, ", ") + " FROM tenure_records WHERE key = ?"

	sqlPut = "INSERT INTO tenure_records (" + strings.Join(columns, ", ") + ") VALUES (?" +
		strings.Repeat(", ?", len(columns)-1) + ") ON CONFLICT (key) DO UPDATE SET " + assign(" = excluded.%[1]s")

	sqlSwap = "UPDATE tenure_records SET " + assign(" = ?") + " WHERE key = ? AND version = ? AND token = ?"

	sqlList = "SELECT " + strings.Join(columns, ", ") +
		" FROM tenure_records WHERE key >= ? AND key > ? ORDER BY key LIMIT ?"
)

const (
	sqlDelete  = "DELETE FROM tenure_records WHERE key = ? AND version = ? AND token = ?"
	sqlInspect = "SELECT (SELECT count(*) FROM sqlite_schema), application_id, user_version," +
		" (SELECT group_concat(name) FROM pragma_table_info('tenure_records'))" +
		" FROM pragma_application_id, pragma_user_version"
	sqlBegin    = "BEGIN IMMEDIATE"
	sqlCommit   = "COMMIT"
	sqlRollback = "ROLLBACK"
)

// assign returns the assignments of all columns but the key.
func assign(value string) string {
	list := make([]string, 0, len(columns))
	for _, column := range columns[1:] {
		if strings.Contains(value, "%") {
			list = append(list, column+fmt.Sprintf(value, column))
		} else {
			list = append(list, column+value)
		}
	}
	return strings.Join(list, ", ")
}

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
		list = []string{schema}
	case found.empty():
		list = []string{
			schema, fmt.Sprintf("PRAGMA application_id = %d", applicationID), fmt.Sprintf("PRAGMA user_version = %d", schemaVersion),
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

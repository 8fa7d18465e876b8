// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	sqldriver "database/sql/driver"
	"fmt"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

const (
	// applicationID says in the header of the file that it is ours: "Tenu".
	applicationID = 0x54656e75
	// schemaVersion is the user_version that this package reads and writes.
	// Columns may be added without a new version, since writes leave columns
	// that they do not know as they are; any other change needs one.
	schemaVersion = 1
)

// schema makes the table. It is for people with the sqlite3 shell, too.
//
// STRICT has the engine refuse a text where a number belongs. An ordinary
// rowid table with a key beside it, because rows may be long. data is the last
// column, so that a heartbeat, which changes version and beat at the front,
// leaves the pages with long data alone: SQLite writes the pages that differ if
// the row keeps its size.
const schema = `
CREATE TABLE tenure_records (
	key          TEXT NOT NULL PRIMARY KEY COLLATE BINARY,
	state        TEXT NOT NULL,    -- held, released
	owner        TEXT NOT NULL,
	token        INTEGER NOT NULL, -- fencing token: one higher with every change of holder
	version      TEXT NOT NULL,    -- new with every write
	beat         TEXT NOT NULL,    -- new with every heartbeat
	lease_ns     INTEGER NOT NULL, -- how long an unchanged beat proves life, in nanoseconds
	heartbeat_ns INTEGER NOT NULL, -- period of the heartbeats in nanoseconds, 0: not said
	host         TEXT NOT NULL,
	label        TEXT NOT NULL,
	since        TEXT,             -- when the tenure began and ended, RFC 3339, for people only
	until        TEXT,
	ended        TEXT NOT NULL,    -- how it ended, in a released record
	prev_token   INTEGER,          -- the tenure before this one, NULL if this is the first
	prev_owner   TEXT,
	prev_host    TEXT,
	prev_label   TEXT,
	prev_since   TEXT,
	prev_until   TEXT,
	prev_ended   TEXT,
	data         BLOB              -- the holder's own
) STRICT`

// columns are those that this package knows, in the order of record.go.
var columns = []string{
	"key", "state", "owner", "token", "version", "beat", "lease_ns", "heartbeat_ns", "host", "label",
	"since", "until", "ended", "prev_token", "prev_owner", "prev_host", "prev_label", "prev_since", "prev_until",
	"prev_ended", "data",
}

// The statements. Writes name their columns, so that what a newer version has
// added stays as it is.
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
	sqlInspect = "SELECT (SELECT count(*) FROM sqlite_schema), application_id, user_version" +
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

// prepareFile makes an empty database ours and leaves any other as it is,
// unless it is ours already. Any number of processes may do this at once.
func prepareFile(c *conn, file string) error {
	fresh, err := inspect(c, file)
	if err != nil {
		return err
	}
	if err := probe(c); err != nil && !locked(err) { // if others write, it is not read-only
		return fault(file, err)
	}
	// Write-ahead logging is asked for every time, since anybody may have
	// switched it off with the shell. If it is on this waits for no lock.
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
	if fresh {
		return create(c, file)
	}
	return nil
}

// probe returns an error if the database cannot be written, and changes nothing.
// BEGIN IMMEDIATE alone does not tell: SQLite has it pass on a read-only file.
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

// create makes the table in one transaction, unless another process was first.
func create(c *conn, file string) error {
	if _, err := c.exec(sqlBegin); err != nil {
		return fault(file, err)
	}
	fresh, err := inspect(c, file)
	if fresh && err == nil {
		for _, sql := range []string{
			schema,
			fmt.Sprintf("PRAGMA application_id = %d", applicationID),
			fmt.Sprintf("PRAGMA user_version = %d", schemaVersion),
		} {
			if err = fault(file, c.run(sql)); err != nil {
				break
			}
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

// inspect tells whether the database is empty, and returns an error if it is
// neither that nor ours. It changes nothing.
func inspect(c *conn, file string) (fresh bool, err error) {
	var objects, id, version int64
	// One statement, so that it sees another process's creation whole or not at all.
	err = c.query(sqlInspect, func(row []sqldriver.Value) bool {
		objects, _ = row[0].(int64)
		id, _ = row[1].(int64)
		version, _ = row[2].(int64)
		return false
	})
	if err != nil {
		return false, fault(file, err)
	}
	switch {
	case objects == 0 && id == 0 && version == 0:
		return true, nil
	case id != applicationID:
		return false, driver.Permanent(fmt.Errorf(
			"sqlite file %q: the database belongs to another application (application_id %#x, %d objects); give Tenure a file of its own",
			file, id, objects))
	case version > schemaVersion:
		return false, driver.Permanent(fmt.Errorf(
			"sqlite file %q: made by a newer Tenure (schema version %d, this one knows %d); upgrade this program", file, version, schemaVersion))
	case version < schemaVersion:
		return false, driver.Permanent(fmt.Errorf(
			"sqlite file %q: schema version %d is none that Tenure ever wrote (this one writes %d); restore the file", file, version, schemaVersion))
	}
	return false, nil
}

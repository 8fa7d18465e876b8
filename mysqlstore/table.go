// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

// Rights are what a user needs on the table.
var Rights = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}

const (
	maxTableLen = 64 // of MySQL
	viewSuffix  = "_view"
)

// place is the table of a store.
type place struct{ database, name string }

// String is the table as the options name one.
func (p place) String() string { return p.database + "." + p.name }

func (p place) quoted() string { return "`" + p.database + "`.`" + p.name + "`" }

func (p place) view() place { return place{p.database, p.name + viewSuffix} }

// placeOf returns the table that the options name, by the database of the connection if they name none.
func placeOf(table, database string) (p place, err error) {
	p = place{database, table}
	if before, after, found := strings.Cut(table, "."); found {
		p = place{before, after}
	}
	if p.name == "" {
		p.name = DefaultTable
	}
	const characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
	switch {
	case p.database == "":
		return p, errors.New("no database is named: write it behind the host, or in Options.Table before a dot")
	case len(p.name) > maxTableLen-len(viewSuffix) || strings.Trim(p.name, characters) != "":
		return p, fmt.Errorf("table %.80q: its name has at most %d letters, digits and underscores, with a database and a "+
			"dot before it if needed", table, maxTableLen-len(viewSuffix))
	case len(p.database) > maxTableLen || strings.ContainsAny(p.database, "`.\x00"):
		return p, fmt.Errorf("database %.80q: its name has at most %d characters, without dots and backquotes", p.database, maxTableLen)
	}
	return p, nil
}

// schema creates the table. The name is compared by bytes, without padding, and DYNAMIC rows allow an index of its
// length. The data are last, and in pages of their own if they are long. No column that changes is indexed. A later
// version whose rows this one must not touch renames a column. See [recordcodec.Row].
const schema = `CREATE TABLE IF NOT EXISTS %s (
	name    varbinary(1088) NOT NULL PRIMARY KEY COMMENT 'of the lock, session or part of the history',
	version varbinary(64) NOT NULL COMMENT 'new with every write',
	token   bigint NOT NULL COMMENT 'fencing token, from 1: one higher with every change of holder',
	state   varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'held, resting (held under a session), reserved, released; past: history of a term; alive, closed: a session',
	owner   varchar(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	record  mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the rest, as JSON: the view has it in columns',
	data    mediumblob COMMENT 'of the program'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC`

// layout has the columns of the table, and their types.
var layout = map[string]string{
	"name": "varbinary", "version": "varbinary", "token": "bigint", "state": "varchar", "owner": "varchar",
	"record": "mediumtext", "data": "mediumblob",
}

// view shows people what the record has.
const view = `CREATE OR REPLACE SQL SECURITY INVOKER VIEW %s AS SELECT
	CONVERT(name USING utf8mb4) AS name, state, owner, token, %s, data, CONVERT(version USING utf8mb4) AS version
FROM %s`

// shown are the members of the record that are columns of the view.
var shown = []string{
	"host", "label", "lease", "since", "until", "end", "heartbeat", "drift", "session", "priority", "requests", "asked", "prev", "beat",
}

// Schema returns the statements that create the table and its view, which shows people the record in columns:
// [DefaultTable] if the name is empty. A name without a database is in the given one. It returns an error if a name is
// not valid.
func Schema(table, database string) (statements []string, err error) {
	p, err := placeOf(table, database)
	if err != nil {
		return nil, fmt.Errorf("mysqlstore: %w", err)
	}
	members := make([]string, len(shown))
	for i, name := range shown {
		members[i] = fmt.Sprintf("JSON_UNQUOTE(JSON_EXTRACT(record, '$.%s')) AS `%[1]s`", name)
	}
	return []string{
		fmt.Sprintf(schema, p.quoted()),
		fmt.Sprintf(view, p.view().quoted(), strings.Join(members, ", "), p.quoted()),
	}, nil
}

// statements are those of a store.
type statements struct {
	get, batch, list, insert, update, updateData, remove, guard string
}

func newStatements(p place) statements {
	const (
		// The server's columns come even if there is no row.
		read  = "SELECT CONCAT(@@global.read_only, @@global.innodb_read_only), t.* FROM (SELECT 1) AS one LEFT JOIN "
		all   = "name, version, token, state, owner, record, data"
		set   = " SET version = ?, token = ?, state = ?, owner = ?, record = ?"
		where = " WHERE name = ? AND version = ? AND token = ?"
	)
	at := p.quoted()
	rows := "(SELECT " + all + " FROM " + at + " WHERE name "
	return statements{
		get:        read + rows + "= ?) AS t ON true",
		batch:      read + rows + "IN (?%s)) AS t ON true",
		list:       read + rows + "> ? AND LEFT(name, LENGTH(?)) = ? ORDER BY name LIMIT ?) AS t ON true ORDER BY name",
		insert:     "INSERT INTO " + at + " (name, version, token, state, owner, record, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
		update:     "UPDATE " + at + set + where,
		updateData: "UPDATE " + at + set + ", data = ?" + where,
		remove:     "DELETE FROM " + at + where,
		guard:      "SELECT token, state FROM " + at + " WHERE name = ? LOCK IN SHARE MODE",
	}
}

func (s *statements) getBatch(n int) string { return fmt.Sprintf(s.batch, strings.Repeat(", ?", n-1)) }

// table is what the server has in the place of the store's table.
type table struct {
	place  place
	engine string            // "": there is no table
	types  map[string]string // of its columns
	key    string            // the columns of its primary key, with commas
}

// refused returns why a store cannot use the table.
func (t *table) refused() error {
	var err error
	switch {
	case t.engine == "":
		err = fmt.Errorf("mysql: table %s does not exist, or the user may not see it: create it with tenure table create, or by "+
			"the statements of mysqlstore.Schema, and grant what tenure table policy prints", t.place)
	case t.engine != "InnoDB":
		err = fmt.Errorf("mysql: table %s has the engine %s, whose writes the store does not trust: ALTER TABLE %[1]s ENGINE=InnoDB",
			t.place, t.engine)
	case t.key != "name":
		err = fmt.Errorf("mysql: the primary key of table %s is (%s), not (name): it was made by another program, or another "+
			"version of Tenure", t.place, t.key)
	}
	for column, kind := range layout {
		if err == nil && t.types[column] != kind {
			err = fmt.Errorf("mysql: column %s of table %s has the type %q, not %s: the table was made by another program, or "+
				"another version of Tenure", column, t.place, t.types[column], kind)
		}
	}
	return driver.Permanent(err)
}

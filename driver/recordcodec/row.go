// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package recordcodec

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
)

// Row is a record as a row of an SQL table. What statements compare, and the data, have
// columns of their own; Text has the rest. Nothing is in both, so that a row that was changed
// by hand does not contradict itself.
type Row struct {
	Name, Version string
	Token         int64
	State         string // "resting" if the lock is held under a session
	Owner         string
	Text          string
	Data          []byte
}

// RowOf returns the row of rec. It shares the memory of rec.Data.
func RowOf(rec driver.Record) Row {
	row := Row{
		Name: rec.Key, Version: rec.Version, Token: int64(rec.Token), State: string(stateOf(&rec)), Owner: rec.Owner,
		Data: rec.Data,
	}
	rec.Key, rec.Version, rec.Token, rec.State, rec.Owner, rec.Data = "", "", 0, "", "", nil
	row.Text = Encode(rec)
	return row
}

// Record returns the record of a row. An error matches [driver.ErrUnreadable], and names the
// lock; the record has its key even then.
//
// The state may have been changed by hand: a lock that is not held has no session, and a
// record that is neither held nor a session's has no address for notifications.
func (row Row) Record() (driver.Record, error) {
	rec, err := row.record()
	if err != nil {
		if !errors.Is(err, driver.ErrUnreadable) {
			err = unreadable(err)
		}
		return driver.Record{Key: row.Name}, fmt.Errorf("row %.1100q: %w", row.Name, err)
	}
	return rec, nil
}

func (row Row) record() (driver.Record, error) {
	rec, err := DecodePart(row.Text)
	if err != nil {
		return rec, err
	}
	if rec.Key+rec.Version+rec.Owner+string(rec.State) != "" || rec.Token != 0 || rec.Data != nil {
		return rec, errors.New("its text has a member that is a column")
	}
	for _, c := range []struct{ name, value string }{
		{"name", row.Name}, {"version", row.Version}, {"state", row.State}, {"owner", row.Owner},
	} {
		switch {
		case !utf8.ValidString(c.value) || strings.IndexByte(c.value, 0) >= 0:
			return rec, fmt.Errorf("column %s has a text that is not UTF-8, or has U+0000", c.name)
		case c.value == "" && (c.name != "owner" || row.State != string(driver.Reserved)):
			return rec, fmt.Errorf("column %s is empty", c.name)
		}
	}
	switch {
	case strings.Trim(row.State, "abcdefghijklmnopqrstuvwxyz-") != "":
		return rec, fmt.Errorf("column state is %.40q, not a word such as %s", row.State, driver.Held)
	case row.Token < 1:
		return rec, fmt.Errorf("column token is %d, less than 1", row.Token)
	case rec.Lease == 0:
		return rec, errors.New("its text has no lease")
	case row.State == string(resting) && rec.Session == "":
		return rec, fmt.Errorf("column state is %s, and its text has no session", resting)
	case row.State == string(driver.Held) && rec.Session != "":
		return rec, fmt.Errorf("column state is %s, not %s, and its text has a session", driver.Held, resting)
	}
	rec.Key, rec.Version, rec.Token, rec.Owner, rec.Data = row.Name, row.Version, uint64(row.Token), row.Owner, row.Data
	rec.State = heldOf(row.State)
	if rec.State != driver.Held {
		rec.Session = ""
	}
	if rec.State != driver.Held && rec.State != driver.Alive {
		rec.Notify = ""
	}
	return rec, nil
}

// heldOf returns the state that a row's column means: "resting" is [driver.Held].
func heldOf(column string) driver.State {
	if driver.State(column) == resting {
		return driver.Held
	}
	return driver.State(column)
}

// stateOf is the state of a record in a text or a column.
func stateOf(rec *driver.Record) driver.State {
	if rec.State == driver.Held && rec.Session != "" {
		return resting
	}
	return rec.State
}

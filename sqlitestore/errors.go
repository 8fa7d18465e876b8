// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tenurelock/tenure/driver"
)

// fault names the file, if it is given, and says what an error of the engine means and what to
// do about it. It marks with driver.Permanent what no retry can fix. The caller knows how far a
// write came, and says whether it was applied.
func fault(file string, err error) error {
	if err == nil {
		return nil
	}
	var engine *sqlite.Error
	permanent := false
	if errors.As(err, &engine) {
		var what string
		what, permanent = explain(engine.Code())
		if is(err, sqlite3.SQLITE_CANTOPEN) {
			if reason := noFiles(); reason != nil {
				what, permanent = fmt.Sprintf("cannot be opened, because this process cannot open any more files (%v); raise its limit (ulimit -n)", reason), false
			}
		}
		if is(err, sqlite3.SQLITE_IOERR) && file != "" && noSpace(filepath.Dir(file)) {
			what, permanent = explain(sqlite3.SQLITE_FULL) // as a file that could not grow, such as the index of the log
		}
		err = fmt.Errorf("%s: %w", what, err)
	}
	if file != "" {
		err = fmt.Errorf("sqlite file %q: %w", file, unnamed(file, err))
	}
	if permanent {
		return driver.Permanent(err)
	}
	return err
}

// unnamed takes the name of the file out of an error of the system's, for
// callers that name it anyway.
func unnamed(file string, err error) error {
	if system, ok := err.(*fs.PathError); ok && system.Path == file { //nolint:errorlint // a wrapped one has a text of its own
		return fmt.Errorf("%s: %w", system.Op, system.Err)
	}
	return err
}

// explain sorts the result codes of https://www.sqlite.org/rescode.html. The
// low byte of an extended code is the code that it refines.
func explain(code int) (what string, permanent bool) {
	if code == sqlite3.SQLITE_READONLY_DBMOVED {
		return "it was moved, replaced or deleted while in use; restart every program that uses it", true
	}
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return "locked by another writer; try again; if it stays locked, find the program that keeps a transaction open", false
	case sqlite3.SQLITE_FULL:
		return "no space left for it; free some on its disk or raise its max_page_count", false
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT:
		return "not an SQLite database; check the path (the file was left as it is)", true
	case sqlite3.SQLITE_CORRUPT:
		return "the database is corrupt; stop all users of it and restore it, or see .recover of the sqlite3 shell", true
	case sqlite3.SQLITE_READONLY:
		return "read-only; file and folder must be writable by this user", true
	case sqlite3.SQLITE_CANTOPEN:
		return "cannot be opened; file and folder must be readable and writable by this user", true
	case sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return "permission denied; file and folder must be readable and writable by this user", true
	case sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_TOOBIG:
		return "the record or the file is larger than the engine can hold", true
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH:
		return "the table is not as this program creates it; compare its schema with sqlitestore's documentation", true
	case sqlite3.SQLITE_IOERR:
		return "the disk or its file system reports an error", false
	case sqlite3.SQLITE_NOMEM:
		return "out of memory", false
	}
	return "unexpected error of the engine", false
}

// is reports whether err is the engine's with one of the given primary codes.
func is(err error, codes ...int) bool {
	var engine *sqlite.Error
	if !errors.As(err, &engine) {
		return false
	}
	for _, code := range codes {
		if engine.Code()&0xff == code {
			return true
		}
	}
	return false
}

// locked reports whether err says that another process is using the file just now.
func locked(err error) bool {
	return is(err, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
}

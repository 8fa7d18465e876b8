// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"net/url"
	"path/filepath"
	"runtime"

	"modernc.org/sqlite"
)

// engine is a connection of the engine's driver.
type engine interface {
	sqldriver.Conn
	sqldriver.ExecerContext
	sqldriver.ConnPrepareContext
}

// conn is one connection to the engine, with the statements that it has
// prepared. One goroutine at a time uses it.
//
// It is a connection of the engine's driver itself, not of the pool of
// database/sql: that pool opens new connections whenever it sees fit, and a
// connection that is opened later may lead to another file, put in the place
// of the first. Besides, record.go needs the values as they are stored.
//
// No context reaches the engine. An interrupted COMMIT leaves its outcome
// unknown for no gain; a caller that gives up waiting leaves the connection to
// finish (see write.go and Store.read).
type conn struct {
	// with calls fn with the engine, and returns its error. It cannot be nested.
	with  func(fn func(engine) error) error
	end   func() error
	stmts map[string]sqldriver.Stmt
}

// dial opens a connection. mode is rw, or rwc to create a missing file.
func dial(file, mode string) (*conn, error) {
	connector, err := sqlite.NewConnector(dsn(file, mode))
	if err != nil {
		return nil, err
	}
	dialed, err := connector.Connect(context.Background())
	if err != nil {
		return nil, err
	}
	e := dialed.(engine)
	return newConn(func(fn func(engine) error) error { return fn(e) }, e.Close)
}

// newConn makes a connection ready. It ends it if that fails.
func newConn(with func(fn func(engine) error) error, end func() error) (*conn, error) {
	c := &conn{with: with, end: end, stmts: map[string]sqldriver.Stmt{}}
	// The writer waits for others itself, and takes along what comes meanwhile.
	if err := c.run("PRAGMA busy_timeout = 0"); err != nil {
		_ = c.close()
		return nil, err
	}
	return c, nil
}

// dsn returns the URI of an absolute path. Every byte that means something in
// a URI is escaped, so that any name of a file will do.
func dsn(file, mode string) string {
	path := filepath.ToSlash(file)
	if runtime.GOOS == "windows" {
		path = "/" + path // file:///C:/...
	}
	// _error_rc: the text of an error belongs to its code. _dqs=0: a mistyped
	// column is an error, not a string.
	return (&url.URL{Scheme: "file", Path: path}).String() + "?mode=" + mode + "&_error_rc=1&_dqs=0"
}

// run executes sql without keeping it prepared. Some pragmas take effect while
// they are prepared, not while they are executed: they must go through run.
func (c *conn) run(sql string) error {
	return c.with(func(e engine) error {
		_, err := e.ExecContext(context.Background(), sql, nil)
		return err
	})
}

// exec executes a statement and returns the number of rows that it changed.
func (c *conn) exec(sql string, args ...sqldriver.Value) (n int64, err error) {
	err = c.with(func(e engine) error {
		stmt, err := c.prepare(e, sql)
		if err != nil {
			return err
		}
		res, err := stmt.(sqldriver.StmtExecContext).ExecContext(context.Background(), named(args))
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return n, err
}

// query calls fn with each row until fn returns false. The row is valid during
// the call alone; its values are int64, float64, string, []byte or nil, just
// as the engine stores them. fn must not use the connection.
func (c *conn) query(sql string, fn func(row []sqldriver.Value) bool, args ...sqldriver.Value) error {
	return c.with(func(e engine) error {
		stmt, err := c.prepare(e, sql)
		if err != nil {
			return err
		}
		rows, err := stmt.(sqldriver.StmtQueryContext).QueryContext(context.Background(), named(args))
		if err != nil {
			return err
		}
		row := make([]sqldriver.Value, len(rows.Columns()))
		for {
			if err = rows.Next(row); err != nil || !fn(row) {
				break
			}
		}
		closeErr := rows.Close() // ends the read transaction
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return closeErr
	})
}

// compile prepares statements for later.
func (c *conn) compile(list ...string) error {
	return c.with(func(e engine) error {
		for _, sql := range list {
			if _, err := c.prepare(e, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *conn) prepare(e engine, sql string) (sqldriver.Stmt, error) {
	if stmt := c.stmts[sql]; stmt != nil {
		return stmt, nil
	}
	stmt, err := e.PrepareContext(context.Background(), sql)
	if err != nil {
		return nil, err
	}
	c.stmts[sql] = stmt
	return stmt, nil
}

func (c *conn) close() error {
	_ = c.with(func(engine) error {
		for _, stmt := range c.stmts {
			_ = stmt.Close() // repeats the error of its last execution
		}
		return nil
	})
	return c.end()
}

func named(args []sqldriver.Value) []sqldriver.NamedValue {
	list := make([]sqldriver.NamedValue, len(args))
	for i, v := range args {
		list[i] = sqldriver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return list
}

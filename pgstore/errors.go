// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurelock/tenure/driver"
)

// failed returns the error of a request, marked with what is certain.
func (s *Store) failed(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, driver.ErrNotApplied) {
		return err // it is marked already
	}
	if s.ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", driver.ErrClosed, err)
	}
	return fmt.Errorf("postgres: %w", s.sorted(err))
}

// advice is what to do about an error, by its SQLSTATE.
func (s *Store) advice(code string) string {
	switch code {
	case "28P01", "28000":
		return "check the user, its password and pg_hba.conf"
	case "3D000":
		return "the database does not exist: name another one, or create it"
	case "42P01":
		return (&noTableError{s.Table()}).Error()
	case "42703":
		return "table " + s.Table() + " lacks a column: " + otherTable
	case "0A000":
		return "the server is not PostgreSQL, or its table has changed"
	case "42501":
		return "grant the role what tenure table policy prints"
	case "42P05", "26000":
		return "prepared statements do not work here: behind a pooler add default_query_exec_mode=exec to the URL"
	case "08P01":
		return "a pooler may refuse a start-up parameter: leave it out of the URL"
	case "25006":
		return "the server is a standby, or read-only: name the primary, or all servers of the cluster"
	case "53300":
		return "the server has no connection left: raise max_connections, or lower pool_max_conns"
	case "53100":
		return "the server's disk is full"
	case "57P03":
		return "the server is starting or shutting down"
	}
	return ""
}

// sorted marks an error of pgx. An error of the engine with severity ERROR has rolled
// the statement back. FATAL may come while a commit waits for a standby, and after any
// other error the statement may have been carried out.
func (s *Store) sorted(err error) error {
	var connect *pgconn.ConnectError
	unsent := errors.As(err, &connect) || pgconn.SafeToRetry(err)
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if unsent {
			return driver.NotApplied(err)
		}
		return err
	}
	if do := s.advice(e.Code); do != "" {
		err = fmt.Errorf("%s: %w", do, err)
	}
	severity := e.SeverityUnlocalized
	if severity == "" {
		severity = e.Severity
	}
	class := e.Code[:min(2, len(e.Code))]
	if !unsent && (severity != "ERROR" || class == "08" || class == "XX" || e.Code == "40003") {
		return err
	}
	switch {
	case strings.HasPrefix(e.Code, "53"):
		err = driver.Throttled(err)
	case e.Code == "42P05", e.Code == "26000":
	case class == "28", class == "3D", class == "3F", class == "42":
		err = driver.Permanent(err)
	}
	return driver.NotApplied(err)
}

// cockroachDB is how this engine names itself.
const cockroachDB = "CockroachDB"

// refusal refuses an engine that speaks the protocol of PostgreSQL, and is another product.
func refusal(engine string) error {
	return driver.NotApplied(driver.Permanent(fmt.Errorf("postgres: this is %s, with which Tenure was not tested: "+
		"use PostgreSQL 12 or later, or another store, such as etcd; to try it, write untested=yes in the URL, "+
		"or Options.Untested in a program", engine)))
}

// foreign returns the name of an engine that is not PostgreSQL, by what version() returns.
func foreign(version string) string {
	if strings.HasPrefix(version, "PostgreSQL ") && !strings.Contains(version, "-YB-") {
		return ""
	}
	name, _, _ := strings.Cut(version, " (")
	return name
}

// foreignEngine asks the server, which may not know a statement of PostgreSQL.
func foreignEngine(ctx context.Context, db DB) (string, error) {
	version := ""
	err := db.QueryRow(ctx, "SELECT version()", pgx.QueryExecModeExec).Scan(&version)
	if err != nil {
		return "", err
	}
	return foreign(version), nil
}

// orForeign returns the refusal of an engine that does not know a statement because it is not
// PostgreSQL, or err.
func orForeign(ctx context.Context, db DB, err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		if engine, askErr := foreignEngine(ctx, db); askErr == nil && engine != "" {
			return refusal(engine)
		}
	}
	return err
}

// otherTable is what to do about a table that this version did not create.
const otherTable = "it was made by another program, or another version of Tenure: name another table, or stop all " +
	"programs that use it and drop it with CASCADE, and its locks are forgotten, and tokens begin at 1 again"

// errUnconfirmed is the answer of a commit whose wait for the standby was cancelled, by an
// operator or a shutdown: it is only on the primary's disk.
var errUnconfirmed = errors.New("the commit was not confirmed by a synchronous standby: a fail-over may lose it")

// errStandby refuses what a standby answers: it may be of some time ago.
var errStandby = errors.New("the server is a standby, whose answers may be old: name the primary, or all servers of the cluster")

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// Postgres is the variable that names the URL of a PostgreSQL.
const Postgres = "TENURE_TEST_POSTGRES"

// PostgreSQL returns the URL of the PostgreSQL that scripts/engines has started, and skips
// the test if there is none. Its user may do everything.
func PostgreSQL(t testing.TB) string {
	t.Helper()
	return Shared(t, Postgres, "postgres")
}

// databases counts those of this process, for their names.
var databases atomic.Uint64

// Database makes an empty database on the server of a URL, and returns its URL. The
// database goes with the test, and so do connections that it still has. The server must
// answer then: on a [PostgreSQLServer] that the test ends, use the database of its URL.
func Database(t testing.TB, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), databases.Add(1))
	psql(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { psql(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	u.Path = "/" + name
	return u.String()
}

// psql runs statements in the database of a URL, and returns the values, a line for each
// row. It is for tests of modules that have no driver.
func psql(t testing.TB, database, statements string) string {
	t.Helper()
	out, err := psqlTry(context.WithoutCancel(t.Context()), t, database, statements)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// psqlTry is psql that returns what goes wrong, also that ctx has ended.
func psqlTry(ctx context.Context, t testing.TB, database, statements string) (string, error) {
	t.Helper()
	out, err := launcher.PSQL(ctx, database, statements)
	var missing *launcher.MissingError
	if errors.As(err, &missing) {
		need(t, err)
	}
	return out, err
}

// postgresProgram returns one of PostgreSQL's programs, of the newest release that is
// installed, and skips the test if there is none.
func postgresProgram(t testing.TB, name string) string {
	t.Helper()
	program, err := launcher.PostgresProgram(name)
	need(t, err)
	return program
}

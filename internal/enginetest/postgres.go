// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
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
	cmd := exec.CommandContext(ctx, postgresProgram(t, "psql"), "-qAtX", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", statements)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", statements, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// postgresProgram returns one of PostgreSQL's programs, of the newest release that is
// installed, and skips the test if there is none.
func postgresProgram(t testing.TB, name string) string {
	t.Helper()
	release := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 9.6 and the like are too old
		return n
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(found, func(a, b string) int { return release(b) - release(a) })
	return systemProgram(t, name, found...)
}

// systemProgram returns a program that scripts/setup installs: the first of the files
// that is there, or the one in PATH. It skips the test if there is none.
func systemProgram(t testing.TB, name string, files ...string) string {
	t.Helper()
	for _, file := range append(files, name) {
		if path, err := exec.LookPath(file); err == nil {
			return path
		}
	}
	Missing(t, name, "scripts/setup installs it")
	return ""
}

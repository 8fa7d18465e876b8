// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/pgstore"
)

// TestPostgresScripts runs the scripts of testdata/postgres, and those of testdata that are
// for any store. STORE has its table, on which its role has the least rights. With
// &table=$TABLE behind it DATABASE names one that is the script's own to make; table others
// there is of another program. GUARDED is the host of a server that asks for passwords: see
// guardedPostgres.
func TestPostgresScripts(t *testing.T) {
	database := enginetest.Database(t, enginetest.PostgreSQL(t))
	guarded := guardedPostgres(t)
	execute(t, database, "CREATE TABLE others (name text)")
	runStoreScripts(t, "postgres", nil, func(env *testscript.Env) error {
		table := "t_" + rand.Text()
		for _, pair := range [][2]string{
			{"GUARDED", guarded},
			{"TABLE", table + "_2"},
			{"DATABASE", database},
			{"STORE", "postgres://app:secret@" + guarded + "/locks?table=public." + table},
		} {
			env.Setenv(pair[0], pair[1])
		}
		text, err := pgstore.Schema(table)
		if err != nil {
			return err
		}
		rights, err := pgstore.Policy(table, "app")
		if err != nil {
			return err
		}
		execute(t, "postgres://tenure@"+guarded+"/locks?sslmode=disable", text, rights)
		return nil
	})
}

// guardedPostgres starts a server that asks its roles for a password, which is "secret", and
// returns its address. Its database locks has the table, for the role app, which may do
// with it what a store must; for reader, which may look; and for stranger and new, which
// may nothing.
func guardedPostgres(t *testing.T) string {
	t.Helper()
	server := enginetest.StartPostgreSQL(t, "fsync=on", "full_page_writes=on")
	table, err := pgstore.Schema("")
	if err != nil {
		t.Fatal(err)
	}
	policy, err := pgstore.Policy("", "app")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, server.URL, "CREATE DATABASE locks")
	for _, role := range []string{"app", "reader", "stranger", "new"} {
		execute(t, server.URL, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
	}
	execute(t, "postgres://tenure@"+server.Addr+"/locks?sslmode=disable", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", table, policy, "GRANT SELECT ON tenure_records TO reader")
	const access = "host all tenure 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(server.Data, "pg_hba.conf"), []byte(access), 0o600); err != nil {
		t.Fatal(err)
	}
	server.Configure("log_statement", "none") // it reads the file, too
	return server.Addr
}

// execute runs statements in the database of a URL.
func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

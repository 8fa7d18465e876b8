// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// ownSchemas creates two roles, each with a schema of its name, which comes first in
// the default search path, and returns the URL of the database for each.
func ownSchemas(t *testing.T) (database string, as [2]string, roles [2]string) {
	t.Helper()
	database = enginetest.Database(t, enginetest.PostgreSQL(t))
	for i := range as {
		roles[i] = fmt.Sprintf("r%d_%s", i, strings.ToLower(rand.Text()[:8]))
		mustExec(t, database, "CREATE ROLE "+roles[i]+" LOGIN")
		mustExec(t, database, "CREATE SCHEMA AUTHORIZATION "+roles[i])
		u := parse(t, database)
		u.User = url.User(roles[i])
		as[i] = u.String()
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			conn, err := pgx.Connect(ctx, database)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(ctx)
			if _, err := conn.Exec(ctx, "DROP OWNED BY "+roles[i]+"; DROP ROLE "+roles[i], pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Error(err)
			}
		})
	}
	return database, as, roles
}

func create(t *testing.T, database, table string) error {
	t.Helper()
	pool := connect(t, database)
	defer pool.Close()
	return CreateTable(t.Context(), pool, table)
}

// TestSecondRoleMakesNoSecondTable: the table is one, though each role has a schema of its
// own. It is found there by a role that does not search that schema.
func TestSecondRoleMakesNoSecondTable(t *testing.T) {
	database, as, roles := ownSchemas(t)
	for _, role := range as {
		if err := create(t, role, ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := ask[int](t, database, "SELECT count(*)::int FROM pg_tables WHERE tablename = 'tenure_records'"); n != 1 {
		t.Errorf("there are %d tables", n)
	}
	table := roles[0] + ".tenure_records"
	if _, err := Open(t.Context(), as[1], nil); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(fmt.Sprint(err), "may not read and write table "+table) {
		t.Errorf("opened without rights: %v", err)
	}
	text, err := Policy(table, roles[1])
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, as[0], text[:strings.Index(text, ";")])
	mustExec(t, as[0], text[strings.Index(text, ";")+1:])
	first, second := mustOpen(t, as[0]), mustOpen(t, with(t, as[1], "search_path", "nowhere"))
	if first.String() != "postgres table "+table || second.Table() != table {
		t.Errorf("the tables are %s and %s", first, second.Table())
	}
	enginetest.Claim(t, first, held("lock"))
	var conflict *driver.ConflictError
	if _, _, err := second.Claim(t.Context(), held("lock")); !errors.As(err, &conflict) {
		t.Errorf("the second role's claim: %v", err)
	}
}

// TestTwoTablesAreRefused: of two tables of one name a role would have one and another role
// the other. Nothing is written until the schema is named.
func TestTwoTablesAreRefused(t *testing.T) {
	_, as, roles := ownSchemas(t)
	tables := [2]string{roles[0] + ".tenure_records", roles[1] + ".tenure_records"}
	for i := range as {
		if err := create(t, as[i], tables[i]); err != nil {
			t.Fatal(err)
		}
	}
	pool := connect(t, as[0])
	defer pool.Close()
	store, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	_, opened := Open(t.Context(), as[0], nil)
	_, _, claimed := store.Claim(t.Context(), held("lock"))
	_, read := store.Get(t.Context(), "lock", driver.Strong)
	_, listed := store.List(t.Context(), "", "")
	_, seen := store.GetBatch(t.Context(), []string{"lock"}, driver.Strong)
	_, swapped := store.Swap(t.Context(), held("lock"), held("lock"))
	deleted := store.Delete(t.Context(), held("lock"))
	_, watched := store.Watch(t.Context(), "lock", func() {})
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // it has written nothing
	for what, err := range map[string]error{
		"open": opened, "claim": claimed, "get": read, "list": listed, "batch": seen, "swap": swapped, "delete": deleted, "watch": watched,
		"create": create(t, as[1], ""), "guard": store.Guard(t.Context(), tx, "lock", 1),
	} {
		if !errors.Is(err, ErrTwoTables) || !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for _, part := range append(tables[:], "table=", "Options.Table") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in %v", what, part, err)
			}
		}
		if strings.Contains(err.Error(), "table="+tables[0]) { // a program that was running before may use the other one
			t.Errorf("%s: one of the two is chosen: %v", what, err)
		}
	}
	named := mustOpenWith(t, as[0], &Options{Table: tables[0]})
	enginetest.Claim(t, named, held("lock"))
	if d, err := named.Inspect(t.Context()); err != nil || d.Table != tables[0] || len(d.Problems()) > 0 || len(d.Elsewhere) != 1 || d.Elsewhere[0] != tables[1] {
		t.Errorf("described as %+v, %v", d, err)
	}
}

// TestTableStays: what a store has begun with is its table, whatever its role's search path
// finds later.
func TestTableStays(t *testing.T) {
	database, as, roles := ownSchemas(t)
	mustExec(t, database, "GRANT CREATE ON SCHEMA public TO "+roles[0])
	if err := create(t, as[0], "public.tenure_records"); err != nil {
		t.Fatal(err)
	}
	pool := connect(t, as[0])
	defer pool.Close()
	store, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if store.Table() != "tenure_records" {
		t.Errorf("before the first call the table is %s", store.Table())
	}
	rec := enginetest.Claim(t, store, held("lock"))
	if store.Table() != "public.tenure_records" {
		t.Errorf("the table is %s", store.Table())
	}
	if err := create(t, as[0], roles[0]+".tenure_records"); err != nil {
		t.Fatal(err)
	}
	if now := enginetest.Get(t, store, "lock"); now.Version != rec.Version {
		t.Errorf("the lock is %+v", now)
	}
	guard := func(store *Store) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return store.Guard(t.Context(), tx, "lock", rec.Token) })
	}
	if err := guard(store); err != nil {
		t.Error(err)
	}
	if d, err := store.Inspect(t.Context()); err != nil || len(d.Elsewhere) != 1 {
		t.Errorf("described as %+v, %v", d, err)
	}
}

// TestTableIsFoundOnceItIsThere: a store that was made before its table finds it.
func TestTableIsFoundOnceItIsThere(t *testing.T) {
	database := enginetest.Database(t, enginetest.PostgreSQL(t))
	pool := connect(t, database)
	defer pool.Close()
	store, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Get(t.Context(), "lock", driver.Strong); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "table tenure_records does not exist") {
		t.Errorf("without a table: %v", err)
	}
	unknown := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return store.Guard(t.Context(), tx, "lock", 1) })
	if !errors.Is(unknown, ErrUnknownToken) {
		t.Errorf("guard without a table: %v", unknown)
	}
	if err := create(t, database, ""); err != nil {
		t.Fatal(err)
	}
	enginetest.Claim(t, store, held("lock"))
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestTableNames(t *testing.T) {
	database := enginetest.Database(t, enginetest.PostgreSQL(t))
	pool := connect(t, database)
	defer pool.Close()
	mustExec(t, database, `CREATE SCHEMA "Apps"`)
	for _, table := range []string{"locks", "Locks", "Apps.locks", "a_" + strings.Repeat("x", 53)} {
		for range 2 { // again, it is there
			if err := CreateTable(t.Context(), pool, table); err != nil {
				t.Fatal(err)
			}
		}
		s := mustOpenWith(t, database, &Options{Table: table})
		if rec := enginetest.Claim(t, s, held("lock")); rec.Token != 1 {
			t.Errorf("%s: token %d: the table is not its own", table, rec.Token)
		}
		stop, err := s.Watch(t.Context(), "lock", func() {})
		if err != nil {
			t.Fatal(err)
		}
		stop()
	}
	mustExec(t, database, `DROP TABLE "Apps".locks CASCADE`) // beside it "locks" is not enough of a name
	// Two names of one table are one store, and notify each other.
	bare, full := mustOpenWith(t, database, &Options{Table: "locks"}), mustOpenWith(t, database, &Options{Table: "public.locks"})
	rec := enginetest.Claim(t, full, held("both"))
	if _, _, err := bare.Claim(t.Context(), held("both")); err == nil {
		t.Error("a lock was taken by two names of its table")
	}
	hints := make(chan struct{}, 10)
	stop, err := bare.Watch(t.Context(), "both", func() { hints <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	enginetest.Swap(t, full, rec, released(rec))
	select {
	case <-hints:
	case <-time.After(patience):
		t.Error("no hint of a release by the table's other name")
	}
	for _, table := range []string{"a b", `x"`, "a.b.c", "1a", "", ".", strings.Repeat("x", 56), "a;DROP"} {
		if _, err := New(pool, &Options{Table: table}); (err == nil) != (table == "") {
			t.Errorf("%q: %v", table, err)
		}
	}
	if _, err := New(pool, &Options{Commit: "off"}); err == nil || !strings.Contains(err.Error(), "on or remote_apply") {
		t.Errorf("commit off: %v", err)
	}
	if _, err := New(pool, &Options{Listen: "postgres://a:b:c"}); err == nil {
		t.Error("an invalid listen URL is accepted")
	}
}

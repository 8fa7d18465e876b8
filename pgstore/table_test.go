// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestView: people see the record in columns, without the secret address.
func TestView(t *testing.T) {
	database := newDatabase(t, enginetest.PostgreSQL(t))
	s, other := mustOpen(t, database), mustOpen(t, database)
	rec := held("reports")
	rec.Owner, rec.Host, rec.Label, rec.Notify, rec.Since = `web-7 "a"\n`, "host-7", "v2", "udp://127.0.0.1:1 secret", time.Now()
	free := released(enginetest.Claim(t, s, rec))
	free.Asked = &driver.Request{ID: "q", Kind: driver.StepDown, By: "ops", Reason: "deploy"}
	free.End, free.Until = driver.EndSteppedDown, time.Now()
	enginetest.Swap(t, s, enginetest.Get(t, s, "reports"), free)
	next := held("reports")
	next.Requests, next.Data = nil, []byte("five!")
	next = enginetest.Claim(t, other, next)
	asked := beat(next)
	asked.Requests = []driver.Request{{ID: "r", Kind: driver.HandOver, By: "ops"}}
	enginetest.Swap(t, other, next, asked)
	got := ask[string](t, database, "SELECT concat_ws('|', name, state, owner, token, prev_token, prev_owner, prev_ended, "+
		"prev_until IS NOT NULL, lease, requests -> 0 ->> 'by', data_bytes) FROM tenure_records_view")
	if want := "reports|held|o|2|1|web-7 \"a\"\\n|stepped_down|t|10s|ops|5"; got != want {
		t.Errorf("the view shows %q, want %q", got, want)
	}
	if all := ask[string](t, database, "SELECT v::text FROM tenure_records_view AS v"); strings.Contains(all, "secret") {
		t.Errorf("the view shows the address for notifications: %s", all)
	}
	text, err := Policy("", "reader")
	if err != nil || !strings.Contains(text, `GRANT SELECT ON "tenure_records_view" TO "reader"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestOtherTable: a table of another layout is refused when it is opened, with what to do, and
// at the first use of a store that was not opened.
func TestOtherTable(t *testing.T) {
	database := enginetest.Database(t, enginetest.PostgreSQL(t))
	mustExec(t, database, `CREATE TABLE tenure_records (key text PRIMARY KEY, format integer, state text, owner text, token bigint, version text)`)
	want := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "lacks ") ||
			!strings.Contains(err.Error(), "name another table, or stop all programs that use it and drop it") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := Open(t.Context(), database, nil)
	want("Open", err)
	pool := connect(t, database)
	defer pool.Close()
	s, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, _, err = s.Claim(t.Context(), held("lock"))
	want("Claim", err)
}

// TestReleasedAndUnreadable: the claim in one statement takes no lock whose text is not that of
// a record, though its columns say that it is free.
func TestReleasedAndUnreadable(t *testing.T) {
	database := newDatabase(t, enginetest.PostgreSQL(t))
	s, other := mustOpen(t, database), mustOpen(t, database)
	for _, text := range []string{"", "{", "{}", "[]", "null", `{"lease":"10s"`, `{"beat":"b"}`, `{"lease":""}`} {
		rec := enginetest.Claim(t, s, held("lock"))
		enginetest.Swap(t, s, rec, released(rec))
		mustExec(t, database, "UPDATE tenure_records SET record = $1", text)
		if _, _, err := other.Claim(t.Context(), held("lock")); !errors.Is(err, driver.ErrUnreadable) || !errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("claim of %q: %v", text, err)
		}
		if state := ask[string](t, database, "SELECT state FROM tenure_records"); state != "released" {
			t.Errorf("%q: the lock is %s", text, state)
		}
		mustExec(t, database, "DELETE FROM tenure_records")
	}
	// Spaces do no harm.
	rec := enginetest.Claim(t, s, held("lock"))
	enginetest.Swap(t, s, rec, released(rec))
	mustExec(t, database, `UPDATE tenure_records SET record = E' \n' || replace(record, ',', ', ')`)
	now := enginetest.Claim(t, other, held("lock"))
	if is := enginetest.Get(t, s, "lock"); is.Prev == nil || is.Prev.Owner != rec.Owner || now.Token != rec.Token+1 {
		t.Errorf("%+v", is)
	}
}

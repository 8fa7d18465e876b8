// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bytes"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// What version 1 wrote, and how: word for word, but for the comments.
const (
	schemaV1 = `CREATE TABLE tenure_records (
	key          TEXT NOT NULL PRIMARY KEY COLLATE BINARY,
	state        TEXT NOT NULL,    -- held, released
	owner        TEXT NOT NULL,
	token        INTEGER NOT NULL,
	version      TEXT NOT NULL,
	beat         TEXT NOT NULL,
	lease_ns     INTEGER NOT NULL,
	heartbeat_ns INTEGER NOT NULL,
	host         TEXT NOT NULL,
	label        TEXT NOT NULL,
	since        TEXT,
	until        TEXT,
	ended        TEXT NOT NULL,
	prev_token   INTEGER,
	prev_owner   TEXT,
	prev_host    TEXT,
	prev_label   TEXT,
	prev_since   TEXT,
	prev_until   TEXT,
	prev_ended   TEXT,
	data         BLOB
) STRICT`
	columnsV1 = "key, state, owner, token, version, beat, lease_ns, heartbeat_ns, host, label, " +
		"since, until, ended, prev_token, prev_owner, prev_host, prev_label, prev_since, prev_until, prev_ended, data"
)

func getOld(columns string) string {
	return "SELECT " + columns + " FROM tenure_records WHERE key = ?"
}

func putOld(columns string) string {
	return "INSERT INTO tenure_records (" + columns + ") VALUES (?" + strings.Repeat(", ?", strings.Count(columns, ",")) +
		") ON CONFLICT (key) DO UPDATE SET " + assignOld(columns, func(c string) string { return "excluded." + c })
}

func swapOld(columns string) string {
	return "UPDATE tenure_records SET " + assignOld(columns, func(string) string { return "?" }) + " WHERE key = ? AND version = ? AND token = ?"
}

func assignOld(columns string, value func(column string) string) string {
	var list []string
	for _, column := range strings.Split(columns, ", ")[1:] {
		list = append(list, column+" = "+value(column))
	}
	return strings.Join(list, ", ")
}

// values are those of the columns that the program knows.
func (p oldProgram) values(tb testing.TB, rec driver.Record) []sqldriver.Value {
	tb.Helper()
	all, err := encode(rec)
	if err != nil {
		tb.Fatal(err)
	}
	var old []sqldriver.Value
	for i, column := range columns {
		if strings.Contains(", "+p.columns+",", ", "+column+",") {
			old = append(old, all[i])
		}
	}
	return old
}

// oldProgram is a program of an older version that has the file open.
type oldProgram struct {
	*conn
	columns string // those that it knows
}

func (p oldProgram) swap(tb testing.TB, prev, next driver.Record) (applied bool) {
	tb.Helper()
	n, err := p.exec(swapOld(p.columns), append(p.values(tb, next)[1:], next.Key, prev.Version, int64(prev.Token))...)
	if err != nil {
		tb.Fatal(err)
	}
	return n == 1
}

func (p oldProgram) put(tb testing.TB, rec driver.Record) {
	tb.Helper()
	if _, err := p.exec(putOld(p.columns), p.values(tb, rec)...); err != nil {
		tb.Fatal(err)
	}
}

// openV1 makes the file of version 1 if it is missing.
func openV1(tb testing.TB, file string) oldProgram {
	tb.Helper()
	_, missing := os.Stat(file)
	var creation []string
	if missing != nil {
		creation = []string{"PRAGMA journal_mode = WAL", schemaV1, fmt.Sprintf("PRAGMA application_id = %d", applicationID), "PRAGMA user_version = 1"}
	}
	return openOld(tb, file, columnsV1, creation)
}

func openOld(tb testing.TB, file, columns string, creation []string) oldProgram {
	tb.Helper()
	p := oldProgram{dialTest(tb, file), columns}
	tb.Cleanup(func() { _ = p.close() })
	for _, sql := range creation {
		if err := p.run(sql); err != nil {
			tb.Fatalf("%s: %v", sql, err)
		}
	}
	if err := p.compile(getOld(columns), putOld(columns), swapOld(columns)); err != nil {
		tb.Fatal(err)
	}
	p.get(tb, "k") // what it has read once it need not read again
	return p
}

// get returns what the program reads, by column, or nil.
func (p oldProgram) get(tb testing.TB, key string) map[string]sqldriver.Value {
	tb.Helper()
	var found map[string]sqldriver.Value
	if err := p.query(getOld(p.columns), func(row []sqldriver.Value) bool {
		found = map[string]sqldriver.Value{}
		for i, column := range strings.Split(p.columns, ", ") {
			found[column] = row[i]
		}
		return false
	}, key); err != nil {
		tb.Fatal(err)
	}
	return found
}

// recordsV1 are records that version 1 could hold.
func recordsV1() []driver.Record {
	fresh := held("held", "a")
	fresh.Token = 1
	long := held("long", "a")
	long.Token, long.Data = 7, bytes.Repeat([]byte("data"), 10_000)
	long.Prev = &driver.Tenure{Owner: "b", Token: 6, Host: "h", Label: "l", Since: time.Now(), End: driver.EndExpired}
	free := released(long)
	free.Key = "free"
	all := []driver.Record{fresh, long, free}
	for i := range all {
		all[i] = all[i].Detach()
	}
	return all
}

func TestMigrate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	old := openV1(t, file)
	for _, rec := range recordsV1() {
		old.put(t, rec)
	}
	shell(t, file, "ALTER TABLE tenure_records ADD COLUMN note TEXT")
	shell(t, file, "UPDATE tenure_records SET note = 'kept'")
	s := mustOpen(t, file)
	if got := ask(t, file, "PRAGMA user_version"); got != int64(schemaVersion) {
		t.Errorf("user_version %v, want %d", got, schemaVersion)
	}
	// The suite compares records by reflection; here their text is enough.
	for _, want := range recordsV1() {
		got := mustGet(t, s, want.Key)
		got.Version, got.Beat, got.Since, got.Until, got.Prev = want.Version, want.Beat, want.Since, want.Until, want.Prev
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%q is %.300v, want %.300v", want.Key, got, want)
		}
	}
	rec := mustGet(t, s, "long")
	if rec.Prev == nil || rec.Prev.Owner != "b" || rec.Prev.Token != 6 {
		t.Errorf("the tenure before is %+v", rec.Prev)
	}
	asked := next(rec)
	asked.Priority, asked.Requests = 3, []driver.Request{{ID: "q1", Kind: driver.StepDown, By: "ops"}}
	mustSwap(t, s, rec, asked)
	if got := mustGet(t, s, "long"); len(got.Requests) != 1 || got.Priority != 3 || !bytes.Equal(got.Data, rec.Data) {
		t.Errorf("after a request: priority %d, requests %+v, %d bytes of data", got.Priority, got.Requests, len(got.Data))
	}
	if got := ask(t, file, "SELECT note FROM tenure_records WHERE key = 'long'"); got != "kept" {
		t.Errorf("note is %v, want kept", got)
	}
	mustOpen(t, file) // a second time, it is ours
}

// TestMigrateUnderOldProgram has a program of version 1 go on with a file that
// was migrated under it. It can neither overwrite what it has not seen, nor
// leave a former holder's requests to the next.
func TestMigrateUnderOldProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	old := openV1(t, file)
	mine := held("k", "old")
	mine.Token = 1
	old.put(t, mine)
	s := mustOpen(t, file)

	want := func(what string, w driver.Record) driver.Record {
		t.Helper()
		got := mustGet(t, s, "k")
		if got.Version != w.Version || got.Priority != w.Priority || len(got.Requests) != len(w.Requests) ||
			fmt.Sprint(got.Asked != nil) != fmt.Sprint(w.Asked != nil) || got.Prev != nil && got.Prev.Asked != nil && w.Prev == nil {
			t.Errorf("%s: %+v, want %+v", what, got, w)
		}
		return got
	}
	beat := next(mine)
	if !old.swap(t, mine, beat) {
		t.Fatal("the old program's heartbeat was not applied")
	}
	now := want("after its heartbeat", beat)

	// A request of ours has its next heartbeat conflict: it counts as lost.
	asked := next(now)
	asked.Beat, asked.Priority = now.Beat, 5
	asked.Requests = []driver.Request{{ID: "q1", Kind: driver.StepDown, By: "ops"}}
	mustSwap(t, s, now, asked)
	if old.swap(t, beat, next(beat)) {
		t.Error("the old program's heartbeat went over a request")
	}
	now = want("after the request", asked)

	// It takes over from a record with a request: that was to another.
	taken := held("k", "old2")
	taken.Token = 2
	if !old.swap(t, now, taken) {
		t.Fatal("the old program's takeover was not applied")
	}
	if got := ask(t, file, "SELECT requests FROM tenure_records"); got == nil {
		t.Fatal("the old program took the request out of the row, so there is nothing to be seen here")
	}
	now = want("after its takeover", taken)

	// It claims a lock that was released on request.
	free := released(now)
	free.Asked = &driver.Request{ID: "q2", Kind: driver.HandOver, To: "x"}
	free.Prev = &driver.Tenure{Owner: "old", Token: 1, End: driver.EndExpired, Asked: &driver.Request{ID: "q1"}}
	now = mustSwap(t, s, now, free)
	claimed := held("k", "old3")
	claimed.Token, claimed.Prev = 3, now.Tenure("")
	claimed.Prev.Asked = nil // it knows of none
	old.put(t, claimed)
	got := want("after its claim", driver.Record{Version: claimed.Version})
	if got.Prev == nil || got.Prev.Owner != "old2" || got.Prev.Asked != nil {
		t.Errorf("the tenure before is %+v, want old2's, asked by nobody that is known", got.Prev)
	}

	// Ours again: everything counts.
	last := next(got)
	last.Token, last.Owner = 4, "new"
	last.Prev = &driver.Tenure{Owner: "old3", Token: 3, Asked: &driver.Request{ID: "q3", Kind: driver.StepDown}}
	mustSwap(t, s, got, last)
	if got := mustGet(t, s, "k"); got.Prev.Asked == nil || got.Prev.Asked.ID != "q3" {
		t.Errorf("the tenure before is %+v", got.Prev)
	}
}

// TestMigrateAtOnce has twenty processes open a file of an older version at the
// same moment, and a program of that version write all the while.
func TestMigrateAtOnce(t *testing.T) {
	for version, open := range map[int]func(testing.TB, string) oldProgram{1: openV1, 2: openV2} {
		t.Run(fmt.Sprint("Version", version), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "locks.db")
			migrateAtOnce(t, file, open(t, file))
			if got := ask(t, file, "PRAGMA user_version"); got != int64(schemaVersion) {
				t.Errorf("user_version %v, want %d", got, schemaVersion)
			}
		})
	}
}

func migrateAtOnce(t *testing.T, file string, old oldProgram) {
	t.Helper()
	for _, rec := range recordsV1() {
		old.put(t, rec)
	}
	before := ask(t, file, "SELECT count(*) FROM tenure_records").(int64)
	var all []*child
	for range 20 {
		all = append(all, start(t, "open", file, nil))
	}
	for _, c := range all {
		if line := <-c.out; line != "ready" {
			t.Fatal(line)
		}
	}
	for _, c := range all {
		_ = c.stdin.Close()
	}
	for i := range 20 {
		rec := held(fmt.Sprint("old", i), "old")
		rec.Token = 1
		old.put(t, rec)
	}
	for _, c := range all {
		if lines := c.wait(t); len(lines) != 2 || lines[1] != "ok" {
			t.Errorf("child: %q", lines)
		}
	}
	if got := ask(t, file, "SELECT count(*) FROM tenure_records"); got != before+40 {
		t.Errorf("%v records, want %d", got, before+40)
	}
	page, err := mustOpen(t, file).List(t.Context(), "", "")
	if err != nil || int64(len(page.Records)) != before+40 {
		t.Errorf("%d readable records of %d, %v", len(page.Records), before+40, err)
	}
}

// TestMigrateInTheWay meets a column of somebody's that has the name of ours:
// the file is left as it is.
func TestMigrateInTheWay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	openV1(t, file)
	shell(t, file, "ALTER TABLE tenure_records ADD COLUMN asked INTEGER")
	_, err := Open(file, nil)
	if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "duplicate column") {
		t.Errorf("%v: want that a column is there twice, permanently", err)
	}
	if got := ask(t, file, "PRAGMA user_version"); got != int64(1) {
		t.Errorf("user_version %v, want 1", got)
	}
	if got := ask(t, file, "SELECT count(*) FROM pragma_table_info('tenure_records')"); got != int64(22) {
		t.Errorf("%v columns, want 22", got)
	}
}

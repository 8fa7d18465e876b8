// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// What version 2 made and wrote, word for word, but for the comments.
const (
	schemaV2 = `CREATE TABLE tenure_records (
	key          TEXT NOT NULL PRIMARY KEY COLLATE BINARY,
	state        TEXT NOT NULL,
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
	priority     INTEGER NOT NULL DEFAULT 0,
	requests     TEXT,
	asked        TEXT,
	prev_token   INTEGER,
	prev_owner   TEXT,
	prev_host    TEXT,
	prev_label   TEXT,
	prev_since   TEXT,
	prev_until   TEXT,
	prev_ended   TEXT,
	prev_asked   TEXT,
	stamp        TEXT,
	data         BLOB
) STRICT`
	columnsV2 = "key, state, owner, token, version, beat, lease_ns, heartbeat_ns, host, label, since, until, ended, priority, requests, asked, " +
		"prev_token, prev_owner, prev_host, prev_label, prev_since, prev_until, prev_ended, prev_asked, stamp, data"
)

// rowsV2 are a file of version 2: a held lock; one whose holder was asked to hand
// over; one that was released for that; one that is reserved; a piece of history.
var rowsV2 = []string{
	`INSERT INTO "tenure_records" VALUES('held','held','web-1',1,'held-1','held-1',15000000000,3000000000,'h1','v1','2026-03-01T12:00:00.000000005Z',NULL,'',2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'held-1',NULL)`,
	`INSERT INTO "tenure_records" VALUES('asked','held','web-1',1,'asked-2','asked-1',15000000000,3000000000,'h1','v1','2026-03-01T12:00:00.000000005Z',NULL,'',2,'[{"id":"q1","kind":"hand_over","by":"ops","reason":"deploy","to":"web-2","at":"2026-03-01T12:01:00.000000005Z"}]',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'asked-2',X'636865636B706F696E74')`,
	`INSERT INTO "tenure_records" VALUES('free','released','web-1',1,'free-2','free-1',15000000000,3000000000,'h1','v1','2026-03-01T12:00:00.000000005Z','2026-03-01T13:00:00.000000005Z','handed_over',2,NULL,'{"id":"q1","kind":"hand_over","by":"ops","reason":"deploy","to":"web-2","at":"2026-03-01T12:01:00.000000005Z"}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'free-2',NULL)`,
	`INSERT INTO "tenure_records" VALUES('reserved','reserved','web-2',1,'reserved-2','reserved-2',15000000000,3000000000,'h1','v1','2026-03-01T12:00:00.000000005Z',NULL,'',2,NULL,NULL,1,'web-1','h1','v1','2026-03-01T12:00:00.000000005Z',NULL,'handed_over','{"id":"q1","kind":"hand_over","by":"ops","reason":"deploy","to":"web-2","at":"2026-03-01T12:01:00.000000005Z"}','reserved-2',NULL)`,
	`INSERT INTO "tenure_records" VALUES('tenure/history/free/1','past','web-1',1,'past-1','past-1',15000000000,3000000000,'h1','v1','2026-03-01T12:00:00.000000005Z',NULL,'',2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'past-1',NULL)`,
}

// recordsV2 are what version 2 reads in them.
func recordsV2() []driver.Record {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	request := driver.Request{ID: "q1", Kind: driver.HandOver, By: "ops", Reason: "deploy", To: "web-2", At: at.Add(time.Minute)}
	row := func(key string, state driver.State, version string) driver.Record {
		return driver.Record{
			Key: key, State: state, Owner: "web-1", Token: 1, Version: version, Beat: version,
			Lease: 15 * time.Second, Heartbeat: 3 * time.Second, Host: "h1", Label: "v1", Since: at, Priority: 2,
		}
	}
	asked := row("asked", driver.Held, "asked-2")
	asked.Beat, asked.Requests, asked.Data = "asked-1", []driver.Request{request}, []byte("checkpoint")
	free := row("free", driver.Released, "free-2")
	free.Beat, free.Until, free.End, free.Asked = "free-1", at.Add(time.Hour), driver.EndHandedOver, &request
	reserved := row("reserved", driver.Reserved, "reserved-2")
	reserved.Owner = "web-2"
	reserved.Prev = &driver.Tenure{Owner: "web-1", Token: 1, Host: "h1", Label: "v1", Since: at, End: driver.EndHandedOver, Asked: &request}
	return []driver.Record{
		row("held", driver.Held, "held-1"), asked, free, reserved, row("tenure/history/free/1", driver.Past, "past-1"),
	}
}

// openV2 makes the file of version 2 if it is missing.
func openV2(tb testing.TB, file string) oldProgram {
	tb.Helper()
	_, missing := os.Stat(file)
	var creation []string
	if missing != nil {
		creation = append([]string{
			"PRAGMA journal_mode = WAL", schemaV2,
			fmt.Sprintf("PRAGMA application_id = %d", applicationID), "PRAGMA user_version = 2",
		}, rowsV2...)
	}
	return openOld(tb, file, columnsV2, creation)
}

// under returns a record for a claim under a session.
func under(key, session string) driver.Record {
	rec := held(key, "us")
	rec.Session = session
	return rec
}

func session(id string) driver.Record {
	rec := held(driver.SessionPrefix+id, "us")
	rec.State = driver.Alive
	return rec
}

func TestMigrateFromV2(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	openV2(t, file)
	shell(t, file, "ALTER TABLE tenure_records ADD COLUMN note TEXT")
	shell(t, file, "UPDATE tenure_records SET note = 'kept'")
	s := mustOpen(t, file)
	if got := ask(t, file, "PRAGMA user_version"); got != int64(3) {
		t.Errorf("user_version %v, want 3", got)
	}
	for _, want := range recordsV2() {
		if got := mustGet(t, s, want.Key); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is\n%+v, want\n%+v", want.Key, got, want)
		}
	}

	// What is new works on the old rows.
	mustClaim(t, s, session("s1"))
	free := mustGet(t, s, "free")
	claim := under("free", "s1")
	now := mustClaim(t, s, claim)
	if want := driver.Claimed(claim.Detach(), free, true); !reflect.DeepEqual(mustGet(t, s, "free"), want) || !reflect.DeepEqual(now, want) {
		t.Errorf("after a claim under a session: %+v", now)
	}
	if got := ask(t, file, "SELECT state || ' ' || session || ' ' || note FROM tenure_records WHERE key = 'free'"); got != "resting s1 kept" {
		t.Errorf("the row says %q", got)
	}
	mustOpen(t, file) // a second time, it is ours
}

// TestMigrateUnderV2 has a program of version 2 go on with a file that was
// migrated under it. It keeps its locks, and is kept off those that it does not
// understand: by the states that it acts on, and by no other.
func TestMigrateUnderV2(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	old := openV2(t, file)
	mine := held("mine", "old")
	mine.Token = 1
	old.put(t, mine)
	s := mustOpen(t, file)

	beat := next(mine)
	if !old.swap(t, mine, beat) {
		t.Error("the old program's heartbeat was not applied")
	}
	if got := mustGet(t, s, "mine"); got.Version != beat.Version || got.State != driver.Held {
		t.Errorf("its lock is %+v", got)
	}

	alive := mustClaim(t, s, session("s1"))
	closed := mustClaim(t, s, session("s2"))
	closing := next(closed)
	closing.State = driver.Closed
	mustSwap(t, s, closed, closing)
	resting := mustClaim(t, s, under("resting", "s1"))
	known := map[any]bool{"held": true, "reserved": true, "released": true, "past": true}
	for _, key := range []string{resting.Key, alive.Key, closed.Key} {
		if state := old.get(t, key)["state"]; known[state] {
			t.Errorf("%s: the old program reads the state %q, and acts by it", key, state)
		}
	}

	// An operator's release by force, of what it does not understand, leaves the
	// column: what comes after is under no session.
	forced := held("resting", "ops")
	forced.Token, forced.State, forced.End = resting.Token, driver.Released, driver.EndFreed
	if !old.swap(t, resting, forced) {
		t.Fatal("the old program's release was not applied")
	}
	leftover := func(when string) {
		t.Helper()
		if got := ask(t, file, "SELECT session FROM tenure_records WHERE key = 'resting'"); got != "s1" {
			t.Fatalf("%s session is %v, so there is nothing to be seen here", when, got)
		}
	}
	leftover("after the release")
	if got := mustGet(t, s, "resting"); got.State != driver.Released || got.Session != "" {
		t.Errorf("after its release: %+v", got)
	}
	taken := held("resting", "old")
	taken.Token = 2
	old.put(t, taken)
	leftover("after its claim")
	got := mustGet(t, s, "resting")
	if got.State != driver.Held || got.Session != "" || got.Owner != "old" {
		t.Errorf("after its claim: %+v", got)
	}
	last := next(got)
	last.State, last.End = driver.Released, driver.EndReleased
	mustSwap(t, s, got, last)
	if got := ask(t, file, "SELECT session FROM tenure_records WHERE key = 'resting'"); got != nil {
		t.Errorf("after our release session is %v", got)
	}
}

// TestMigrateGuest has processes open a database of another application's at the
// same moment, in which version 2 made its table.
func TestMigrateGuest(t *testing.T) {
	guest := func(t *testing.T) (string, oldProgram) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "app.db")
		old := openOld(t, file, columnsV2, append([]string{
			"PRAGMA journal_mode = WAL", "PRAGMA application_id = 77", "PRAGMA user_version = 5", "CREATE TABLE orders (id INTEGER PRIMARY KEY)", schemaV2,
		}, rowsV2...))
		return file, old
	}
	want := func(t *testing.T, file string, s *Store) {
		t.Helper()
		for _, want := range recordsV2() {
			if got := mustGet(t, s, want.Key); !reflect.DeepEqual(got, want) {
				t.Errorf("%q is\n%+v, want\n%+v", want.Key, got, want)
			}
		}
		mustClaim(t, s, under("new", "s1"))
		for pragma, want := range map[string]int64{"user_version": 5, "application_id": 77} {
			if got := ask(t, file, "PRAGMA "+pragma); got != want {
				t.Errorf("%s is %v, want %d", pragma, got, want)
			}
		}
	}
	t.Run("New", func(t *testing.T) {
		file, old := guest(t)
		s := mustNew(t, handle(t, file))
		want(t, file, s)
		if state := old.get(t, "new")["state"]; state != "resting" {
			t.Errorf("the old program reads the state %v", state)
		}
	})
	t.Run("Open", func(t *testing.T) {
		file, _ := guest(t)
		want(t, file, mustOpen(t, file))
	})
	t.Run("AtOnce", func(t *testing.T) {
		file, old := guest(t)
		migrateAtOnce(t, file, old)
	})
}

// TestMigrateV2InTheWay meets a column of somebody's that has the name of ours.
func TestMigrateV2InTheWay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	openV2(t, file)
	shell(t, file, "ALTER TABLE tenure_records ADD COLUMN session INTEGER")
	_, err := Open(file, nil)
	if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "duplicate column") {
		t.Errorf("%v: want that a column is there twice, permanently", err)
	}
	if got := ask(t, file, "PRAGMA user_version"); got != int64(2) {
		t.Errorf("user_version %v, want 2", got)
	}
}

// TestRestingRows reads rows that somebody has changed by hand.
func TestRestingRows(t *testing.T) {
	for change, want := range map[string]string{
		"session = NULL":                     "column session holds NULL",
		"session = ''":                       "column session holds",
		"state = 'held'":                     "", // a lock of its own, as the row says
		"version = 'by hand'":                "", // and stamp is not: it rests all the same
		"state = 'hibernating'":              "",
		"state = 'released', session = NULL": "",
	} {
		file := filepath.Join(t.TempDir(), "locks.db")
		s := mustOpen(t, file)
		mustClaim(t, s, under("k", "s1"))
		shell(t, file, "UPDATE tenure_records SET "+change)
		rec, err := s.Get(t.Context(), "k", driver.Strong)
		if want != "" {
			if !errors.Is(err, driver.ErrUnreadable) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %+v, %v; want ErrUnreadable with %q", change, rec, err, want)
			}
			continue
		}
		rests := strings.HasPrefix(change, "version")
		if err != nil || (rec.Session == "s1") != rests {
			t.Errorf("%s: %+v, %v", change, rec, err)
		}
	}
}

// TestGuardUnderSession: what is held under a session is held.
func TestGuardUnderSession(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	db := handle(t, file, "busy_timeout(5000)")
	s := mustNew(t, db)
	guarded := func(token uint64) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		return Guard(context.WithoutCancel(t.Context()), tx, "k", token)
	}
	rec := mustClaim(t, s, under("k", "s1"))
	if err := guarded(1); err != nil {
		t.Error(err)
	}
	taken := under("k", "s2")
	taken.Token = 2
	mustSwap(t, s, rec, taken)
	stale := (*StaleError)(nil)
	if err := guarded(1); !errors.As(err, &stale) || stale.Highest != 2 || stale.State != driver.Held {
		t.Errorf("the former token: %v", err)
	}
	if err := guarded(2); err != nil {
		t.Error(err)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// otherLayout is a table that an earlier state of this package made: a lock in
// it looks free of a clock bound, to whoever reads it with zeros for what is
// missing.
const otherLayout = `CREATE TABLE tenure_records (
	key TEXT NOT NULL PRIMARY KEY COLLATE BINARY, state TEXT NOT NULL, owner TEXT NOT NULL, token INTEGER NOT NULL,
	version TEXT NOT NULL, beat TEXT NOT NULL, lease_ns INTEGER NOT NULL, heartbeat_ns INTEGER NOT NULL,
	host TEXT NOT NULL, label TEXT NOT NULL, since TEXT, until TEXT, ended TEXT NOT NULL,
	priority INTEGER NOT NULL DEFAULT 0, requests TEXT, asked TEXT,
	prev_token INTEGER, prev_owner TEXT, prev_host TEXT, prev_label TEXT, prev_since TEXT, prev_until TEXT, prev_ended TEXT,
	prev_asked TEXT, stamp TEXT, session TEXT, data BLOB
) STRICT`

// TestOtherLayout meets files of other layouts, whatever version they say they
// are of: they are refused, with what to do, and not touched.
func TestOtherLayout(t *testing.T) {
	for _, version := range []int{1, 3} {
		for _, application := range []int{applicationID, 77} {
			t.Run(fmt.Sprintf("Version%d/Of%#x", version, application), func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "locks.db")
				for _, sql := range []string{
					"PRAGMA journal_mode = WAL", otherLayout, fmt.Sprintf("PRAGMA application_id = %d", application), fmt.Sprintf("PRAGMA user_version = %d", version),
					"INSERT INTO tenure_records (key, state, owner, token, version, beat, lease_ns, heartbeat_ns, host, label, ended)" +
						" VALUES ('k', 'held', 'a', 7, 'v', 'v', 15000000000, 0, '', '', '')",
				} {
					shell(t, file, sql)
				}
				before, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				what := "delete it, or name a new file"
				if application != applicationID {
					what = "delete the table tenure_records, or"
				}
				db := handle(t, file)
				for name, open := range map[string]func() (*Store, error){
					"Open": func() (*Store, error) { return Open(file, nil) },
					"New":  func() (*Store, error) { return New(db, nil) },
				} {
					s, err := open()
					if err == nil {
						_ = s.Close()
						t.Fatalf("%s: opened", name)
					}
					if text := err.Error(); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(text, "column drift is missing") || !strings.Contains(text, what) {
						t.Errorf("%s: %v; want the column, and %q, permanently", name, err, what)
					}
				}
				_ = db.Close()
				if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
					t.Errorf("the file was changed (%v)", err)
				}
			})
		}
	}
}

// TestRowsChangedByHand reads what somebody has changed of a lock under a
// session, whose holder takes hints.
func TestRowsChangedByHand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	rec := under("k", "s1")
	rec.Bell = "udp://127.0.0.1:1 secret"
	rec = enginetest.Claim(t, s, rec)
	for _, c := range []struct {
		change        string
		session, bell string
	}{
		{"version = 'by hand'", "s1", rec.Bell},
		{"state = 'hibernating'", "", ""},
		{"state = 'alive'", "", rec.Bell},
		{"state = 'released'", "", ""},
		{"state = 'held', session = NULL", "", rec.Bell},
	} {
		shell(t, file, "UPDATE tenure_records SET "+c.change)
		got := enginetest.Get(t, s, "k")
		if got.Session != c.session || got.Bell != c.bell {
			t.Errorf("%s: session %q, bell %q; want %q, %q", c.change, got.Session, got.Bell, c.session, c.bell)
		}
	}
}

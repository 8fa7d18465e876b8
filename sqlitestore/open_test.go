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
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestOpenRefuses checks the errors of Open for files that it cannot use, and
// that the file is left as it was, to the byte.
func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, file string) // prepares file, in a folder of its own
		path string                          // what is opened, if not file
		want string
	}{
		{name: "empty path", path: "-", want: "the path is empty"},
		{name: "memory", path: ":memory:", want: "use memstore"},
		{name: "uri", path: "file:locks.db?mode=memory", want: "not a URI"},
		{name: "zero byte", path: "locks\x00.db", want: "zero byte"},
		{name: "folder missing", path: "missing/locks.db", want: "its folder is missing"},
		{name: "folder is a file", path: "locks.db/locks.db", want: "not a directory", make: func(t *testing.T, file string) {
			write0(t, file, nil)
		}},
		{name: "a folder", want: "it is a folder", make: func(t *testing.T, file string) {
			if err := os.Mkdir(file, 0o700); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "dangling link", want: "symbolic link to a file that is missing", make: func(t *testing.T, file string) {
			if err := os.Symlink("elsewhere", file); err != nil {
				t.Skip(err)
			}
		}},
		{name: "not a database", want: "not an SQLite database", make: func(t *testing.T, file string) {
			write0(t, file, bytes.Repeat([]byte("precious notes\n"), 1000))
		}},
		{name: "short and not a database", want: "not an SQLite database", make: func(t *testing.T, file string) {
			write0(t, file, []byte("hi\n"))
		}},
		{name: "schema overwritten", want: "corrupt", make: func(t *testing.T, file string) {
			damage(t, file, 100, 200)
		}},
		{name: "header overwritten", want: "not an SQLite database", make: func(t *testing.T, file string) {
			damage(t, file, 0, 64)
		}},
		{name: "cut short", want: "corrupt", make: func(t *testing.T, file string) {
			database(t, file)
			if err := os.Truncate(file, 4096); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "other tables", want: "another application", make: func(t *testing.T, file string) {
			shell(t, file, "CREATE TABLE orders (id INTEGER)")
		}},
		{name: "other application", want: "another application (application_id 0x7,", make: func(t *testing.T, file string) {
			shell(t, file, "PRAGMA application_id = 7")
		}},
		{name: "newer", want: "newer Tenure (schema version 2, this one knows 1); upgrade this program", make: func(t *testing.T, file string) {
			database(t, file)
			shell(t, file, "PRAGMA user_version = 2")
		}},
		{name: "never written", want: "schema version 0 was never written", make: func(t *testing.T, file string) {
			database(t, file)
			shell(t, file, "PRAGMA user_version = 0")
		}},
		{name: "table missing", want: "the table is not as this program creates it", make: func(t *testing.T, file string) {
			database(t, file)
			shell(t, file, "DROP TABLE tenure_records")
		}},
		{name: "column missing", want: "the table is not as this program creates it (column record is missing); if another version of Tenure created it, " +
			"use that version, or stop all programs that use it and delete it, or name a new file", make: func(t *testing.T, file string) {
			database(t, file)
			shell(t, file, "DROP VIEW tenure_records_view")
			shell(t, file, "ALTER TABLE tenure_records DROP COLUMN record")
		}},
		{name: "column missing beside other tables", want: "delete the table tenure_records, or", make: func(t *testing.T, file string) {
			database(t, file)
			shell(t, file, "DROP VIEW tenure_records_view")
			shell(t, file, "ALTER TABLE tenure_records DROP COLUMN record")
			shell(t, file, "PRAGMA application_id = 77")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			path, err := filepath.Abs("locks.db")
			if err != nil {
				t.Fatal(err)
			}
			if c.make != nil {
				c.make(t, path)
			}
			file := path
			before, readErr := os.ReadFile(file)
			if c.path == "-" {
				path = ""
			} else if c.path != "" {
				path = c.path
			}
			s, err := open(path, nil, 100*time.Millisecond)
			if err == nil {
				_ = s.Close()
				t.Fatal("opened")
			}
			t.Log(err)
			if !errors.Is(err, driver.ErrPermanent) {
				t.Errorf("%v: not permanent", err)
			}
			if text := err.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "\n") {
				t.Errorf("%q: want one line with %q", text, c.want)
			}
			if n := strings.Count(err.Error(), "locks.db"); c.path == "" && n != 1 {
				t.Errorf("%v: the file is named %d times", err, n)
			}
			after, err := os.ReadFile(file)
			if !bytes.Equal(before, after) || fmt.Sprint(err) != fmt.Sprint(readErr) {
				t.Errorf("the file was changed: %d bytes (%v) before, %d (%v) after", len(before), readErr, len(after), err)
			}
		})
	}
}

func TestOpenEmptyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	write0(t, file, nil)
	enginetest.Claim(t, mustOpen(t, file), held("k", "a"))
}

// TestOpenLocked has another program hold the file: Open waits, but not for
// ever, and is through as soon as the file is free.
func TestOpenLocked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	database(t, file)
	shell(t, file, "PRAGMA journal_mode = DELETE")
	other := dialTest(t, file)
	defer func() { _ = other.close() }()
	if err := other.run("BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	_, err := open(file, nil, 20*time.Millisecond)
	if !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "locked by another") {
		t.Fatalf("%v: want not applied, not permanent, and that it is locked", err)
	}
	opened := make(chan error, 1)
	go func() {
		s, err := open(file, nil, time.Minute)
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	if err := other.run("COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
}

func TestOptions(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "locks.db"), &Options{PollPeriod: time.Microsecond})
	if err == nil || err.Error() != "poll period 1µs: it must be 0 or at least 10ms" {
		t.Fatal(err)
	}
}

func TestNetworkFS(t *testing.T) {
	for kind, want := range map[uint32]string{0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0xef53: "", 0x01021994: "", 0: ""} {
		err := refuseNetworkFS("/net/locks.db", kind)
		if want == "" {
			if err != nil {
				t.Errorf("%#x: %v", kind, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), "("+want+")") || !strings.Contains(err.Error(), "AllowNetworkFS") {
			t.Errorf("%#x: %v, want a refusal that names %s and the option", kind, err, want)
		}
	}
}

// TestCreateSecond is too late: another process has created the table between the
// first read and the transaction.
func TestCreateSecond(t *testing.T) {
	count := func(file string) any { return ask(t, file, "SELECT count(*) FROM pragma_table_info('tenure_records')") }
	for _, guest := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "locks.db")
		if guest {
			shell(t, file, "CREATE TABLE orders (id INTEGER)")
		}
		c := dialTest(t, file)
		defer func() { _ = c.close() }()
		for range 2 {
			if err := create(c, file, guest); err != nil {
				t.Errorf("guest %t: %v", guest, err)
			}
		}
		if got := count(file); got != int64(len(columns)) {
			t.Errorf("guest %t: %v columns, want %d", guest, got, len(columns))
		}
	}
	file := filepath.Join(t.TempDir(), "app.db")
	shell(t, file, "CREATE TABLE orders (id INTEGER)")
	c := dialTest(t, file)
	defer func() { _ = c.close() }()
	if err := create(c, file, false); err == nil || !strings.Contains(err.Error(), "another application") {
		t.Errorf("a file that was another application's in between: %v", err)
	}
	if got := count(file); got != int64(0) {
		t.Errorf("the table was made there, with %v columns", got)
	}
}

// database makes a database of ours with a few records.
func database(t *testing.T, file string) {
	t.Helper()
	s, err := Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		rec := held(fmt.Sprint("k", i), "a")
		rec.Data = bytes.Repeat([]byte{byte(i)}, 1000)
		enginetest.Claim(t, s, rec)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// damage makes a database and overwrites some of its bytes.
func damage(t *testing.T, file string, from, to int) {
	t.Helper()
	database(t, file)
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, to-from), int64(from)); err != nil {
		t.Fatal(err)
	}
}

func write0(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

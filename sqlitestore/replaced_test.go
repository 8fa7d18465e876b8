// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// soon is far below any lease, and more than a machine with much to do needs.
const soon = 5 * time.Second

func isReplaced(s *Store) bool {
	select {
	case <-s.Replaced():
		return true
	default:
		return false
	}
}

// TestReplaced takes files away from under an open store. Going on would make
// two holders, as soon as another process opens the new files.
func TestReplaced(t *testing.T) {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		for _, how := range []string{"moved", "deleted", "replaced", "linked"} {
			t.Run(how+suffix, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "locks.db")
				s := mustOpen(t, file)
				rec := enginetest.Claim(t, s, held("k", "a"))
				name := file + suffix
				if how == "deleted" {
					if err := os.Remove(name); err != nil {
						t.Skip(err)
					}
				} else if err := os.Rename(name, name+".old"); err != nil {
					t.Skip(err)
				}
				switch how {
				case "replaced":
					write0(t, name, nil)
				case "linked": // to the same file, beside which others find another log
					if err := os.Symlink(name+".old", name); err != nil {
						t.Skip(err)
					}
				}
				if runtime.GOOS == "linux" {
					select { // without a call
					case <-s.Replaced():
					case <-time.After(soon):
						t.Errorf("not told within %v", soon)
					}
				}
				want := fmt.Sprintf("sqlite file %q: it was moved, replaced or deleted while in use, and a process that opens it now has other locks; restart", s.file)
				if suffix != "" {
					want = fmt.Sprintf("sqlite file %q: %q beside it was moved", s.file, filepath.Base(name))
				}
				check := func() {
					t.Helper()
					_, err := s.Swap(t.Context(), rec, next(rec))
					wantError(t, err, permanent, want)
					if n := strings.Count(err.Error(), s.file); n != 1 {
						t.Errorf("%v: names the file %d times", err, n)
					}
					_, _, err = s.Claim(t.Context(), held("l", "a"))
					wantError(t, err, permanent, want)
					if !errors.Is(err, driver.ErrReplaced) {
						t.Errorf("claim: %v: want ErrReplaced", err)
					}
					if _, err = s.Get(t.Context(), "k", driver.Strong); !errors.Is(err, driver.ErrReplaced) {
						t.Errorf("read: %v", err)
					}
					if !isReplaced(s) {
						t.Error("the channel is not closed")
					}
				}
				check()
				if how != "deleted" { // put back: others may have begun in between
					_ = os.Remove(name)
					if err := os.Rename(name+".old", name); err != nil {
						t.Fatal(err)
					}
					check()
				}
			})
		}
	}
}

// TestReplacedBetween replaces the file between a commit and its answer: the
// grant is void.
func TestReplacedBetween(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	w := &write{durable: true, apply: func(c *conn) error {
		if err := os.Rename(file, file+".old"); err != nil {
			t.Skip(err)
		}
		return nil
	}}
	if err := s.submit(t.Context(), w); !errors.Is(err, driver.ErrReplaced) || errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("%v: want ErrReplaced, and not that it was not applied", err)
	}
}

// TestFolderAway moves the folder away: others find no database at all, or this
// one under the new name. Once there is another database, the store is replaced.
func TestFolderAway(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, filepath.Join(folder, "locks.db"))
	rec := enginetest.Claim(t, s, held("k", "a"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Skip(err)
		}
	}
	must(os.Rename(folder, folder+".old"))
	_, err := s.Swap(t.Context(), rec, next(rec))
	if !errors.Is(err, driver.ErrPermanent) || errors.Is(err, driver.ErrReplaced) ||
		!strings.Contains(err.Error(), "its folder was moved or deleted") {
		t.Errorf("without its folder: %v", err)
	}
	must(os.Rename(folder+".old", folder))
	rec = enginetest.Swap(t, s, rec, next(rec))
	must(os.Rename(folder, folder+".old"))
	must(os.CopyFS(folder, os.DirFS(folder+".old")))
	if _, err = s.Swap(t.Context(), rec, next(rec)); !errors.Is(err, driver.ErrReplaced) {
		t.Errorf("with a copy in its place: %v", err)
	}
}

// TestLinkTurned has a symbolic link in the name lead to another file, as a deployment
// does with its "current": a process that uses the name finds that file.
func TestLinkTurned(t *testing.T) {
	for _, what := range []string{"folder", "file"} {
		t.Run(what, func(t *testing.T) {
			at := t.TempDir()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Skip(err)
				}
			}
			link, to, name := "current", []string{"one", "two"}, filepath.Join(at, "current", "locks.db")
			must(os.Mkdir(filepath.Join(at, "one"), 0o700))
			must(os.Mkdir(filepath.Join(at, "two"), 0o700))
			if what == "file" {
				link, to, name = "locks.db", []string{"one/locks.db", "two/locks.db"}, filepath.Join(at, "locks.db")
				write0(t, filepath.Join(at, to[0]), nil)
				write0(t, filepath.Join(at, to[1]), nil)
			}
			turn := func(to string) {
				t.Helper()
				must(os.Symlink(to, filepath.Join(at, "new")))
				must(os.Rename(filepath.Join(at, "new"), filepath.Join(at, link)))
			}
			turn(to[0])
			s := mustOpen(t, name)
			rec := enginetest.Claim(t, s, held("k", "a"))
			must(os.Remove(filepath.Join(at, link)))
			must(os.Symlink("nowhere", filepath.Join(at, link)))
			_, err := s.Swap(t.Context(), rec, next(rec))
			if !errors.Is(err, driver.ErrPermanent) || errors.Is(err, driver.ErrReplaced) {
				t.Errorf("with a link that leads nowhere: %v", err)
			}
			turn(to[0])
			rec = enginetest.Swap(t, s, rec, next(rec))
			turn(to[1])
			if _, err := s.Swap(t.Context(), rec, next(rec)); !errors.Is(err, driver.ErrReplaced) {
				t.Errorf("with a link that leads elsewhere: %v", err)
			}
			if now, _, err := mustOpen(t, name).Claim(t.Context(), held("k", "b")); err != nil || now.Token != 1 {
				t.Errorf("where the name leads now: %+v, %v", now, err)
			}
		})
	}
}

// TestSwappedWhileOpened replaces the file between two connections of a store: it
// begins again, on the file that others find.
func TestSwappedWhileOpened(t *testing.T) {
	file, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(file, "locks.db")
	database(t, file)
	mustOpen(t, file+".new") // which has a log and an index of its own
	conns := 0
	s, err := origin{
		file: file, readers: readerCount,
		connect: func(mode string) (*conn, error) {
			c, err := dial(file, mode)
			if conns++; conns == 1+readerCount { // the last one of the first try
				for _, suffix := range []string{"", "-wal", "-shm"} {
					if err := os.Rename(file+".new"+suffix, file+suffix); err != nil {
						t.Skip(err)
					}
				}
			}
			return c, err
		},
		prepare: func(c *conn) error { return prepareFile(c, file) },
	}.open(Options{PollPeriod: defaultPollPeriod}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	enginetest.Claim(t, s, held("swapped", "a"))
	if got := enginetest.Get(t, mustOpen(t, file), "swapped"); got.Owner != "a" {
		t.Errorf("the lock is %q's where others look", got.Owner)
	}
}

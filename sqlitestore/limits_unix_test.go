// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlitestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// The user that a child becomes for whom the permissions of files count.
const nobody = 65534

// TestDenied opens files without the permission for it.
func TestDenied(t *testing.T) {
	for _, c := range []struct {
		name         string
		folder, file os.FileMode // file 0: no file
	}{
		{"read-only file", 0o777, 0o444},
		{"read-only folder", 0o555, 0o666},
		{"read-only file and folder", 0o555, 0o444},
		{"read-only folder without the file", 0o555, 0},
		{"unreadable file", 0o777, 0o200},
		{"closed folder", 0o600, 0o666},
	} {
		t.Run(c.name, func(t *testing.T) {
			top, err := os.MkdirTemp("", "denied") //nolint:usetesting // the parents of t.TempDir are closed to others
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(top) })
			folder := filepath.Join(top, "folder")
			if err := errors.Join(os.Chmod(top, 0o755), os.Mkdir(folder, 0o700)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(folder, 0o700) })
			file := filepath.Join(folder, "locks.db")
			var before []byte
			if c.file != 0 {
				database(t, file)
				if before, err = os.ReadFile(file); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(file, c.file); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(folder, c.folder); err != nil {
				t.Fatal(err)
			}
			lines := start(t, "denied", file, nil).wait(t)
			if len(lines) != 2 || lines[0] != "permanent true" || strings.Count(lines[1], file) != 1 ||
				!strings.Contains(lines[1], "permission denied") {
				t.Errorf("child: %q", lines)
			}
			t.Log(lines)
			_ = os.Chmod(folder, 0o700)
			_ = os.Chmod(file, 0o600)
			after, _ := os.ReadFile(file)
			if !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
			if names, _ := filepath.Glob(filepath.Join(folder, "*")); len(names) != len(before)/max(len(before), 1) {
				t.Errorf("files are left behind: %q", names)
			}
		})
	}
}

func init() {
	children["denied"] = childDenied
	children["files"] = childFiles
}

// TestNoFiles allows no more open files: the error names this, and not a
// permission.
func TestNoFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	database(t, file)
	for _, line := range start(t, "files", file, nil).wait(t) {
		t.Log(line)
		if !strings.Contains(line, "permanent false") || !strings.Contains(line, "too many open files") || strings.Contains(line, "writable by this user") {
			t.Errorf("%q: want that no files are left, not permanently", line)
		}
	}
}

// childFiles opens the file while no, one or two more files may be opened.
func childFiles(file string) error {
	if err := os.Chdir(filepath.Dir(file)); err != nil {
		return err
	}
	for left := range 3 {
		var all []*os.File
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				break
			}
			all = append(all, f)
			if len(all) == 1 {
				var limit syscall.Rlimit
				if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
					return err
				}
				limit.Cur = 40
				if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
					return err
				}
			}
		}
		for range left {
			_ = all[len(all)-1].Close()
			all = all[:len(all)-1]
		}
		s, err := open(file, nil, 0)
		for _, f := range all {
			_ = f.Close()
		}
		if err == nil {
			return errors.Join(errors.New("opened"), s.Close())
		}
		fmt.Fprintln(os.Stdout, "permanent", errors.Is(err, driver.ErrPermanent), err)
	}
	return nil
}

func childDenied(file string) error {
	if os.Geteuid() == 0 {
		if err := errors.Join(syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	}
	s, err := Open(file, nil)
	if err == nil {
		return errors.Join(errors.New("opened"), s.Close())
	}
	fmt.Fprintln(os.Stdout, "permanent", errors.Is(err, driver.ErrPermanent))
	fmt.Fprintln(os.Stdout, err)
	return nil
}

// childFull fills up the disk in folder, and checks what writes say then.
func childFull(folder string) error {
	file := filepath.Join(folder, "locks.db")
	s, err := Open(file, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	rec, _, err := s.Claim(ctx, held("k", "a"))
	if err != nil {
		return err
	}
	filler := filepath.Join(folder, "filler")
	f, err := os.Create(filler)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if err := f.Close(); err != nil {
		return err
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("filling the disk: %w", err)
	}
	// Heartbeats append to the log until it meets the end of the disk.
	for range 1000 {
		var now driver.Record
		if now, err = s.Swap(ctx, rec, next(rec)); err != nil {
			break
		}
		rec = now
	}
	fmt.Fprintln(os.Stdout, class(err))
	fmt.Fprintln(os.Stdout, err)
	if now, err := s.Get(ctx, "k", driver.Strong); err != nil || same(now, rec) != nil {
		return errors.Join(err, same(now, rec))
	}
	if err := os.Remove(filler); err != nil {
		return err
	}
	big := next(rec)
	big.Data = make([]byte, 50_000)
	if rec, err = s.Swap(ctx, rec, big); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	if err := s.Close(); err != nil {
		return err
	}
	if s, err = Open(file, nil); err != nil {
		return err
	}
	if now, err := s.Get(ctx, "k", driver.Strong); err != nil || same(now, rec) != nil {
		return fmt.Errorf("opened again: %w", errors.Join(err, same(now, rec)))
	}
	fmt.Fprintln(os.Stdout, "ok")
	return s.Close()
}

func same(got, want driver.Record) error {
	if got.Version != want.Version {
		return fmt.Errorf("version %q, want %q", got.Version, want.Version)
	}
	return nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// TestDiskFull fills up a file system: a write fails as not applied, and with space again all
// goes on.
func TestDiskFull(t *testing.T) {
	lines := onSmallDisk(t, "small disk")
	if len(lines) != 3 || lines[0] != passes || !strings.Contains(lines[1], "no space left") || lines[2] != "ok" {
		t.Errorf("child: %q", lines)
	}
}

// TestDiskFullOfTheLog: SQLite's log grows to 4 MB before SQLite moves it into the file. On a
// file system without room for that, it is moved when no room is left. If other files have
// filled the file system, opening a store says so.
func TestDiskFullOfTheLog(t *testing.T) {
	lines := onSmallDisk(t, "small log")
	if len(lines) != 2 || lines[1] != "ok" || !strings.Contains(lines[0], "locks.db\": no space left for it") {
		t.Errorf("child: %q", lines)
	}
}

func init() {
	for name, child := range map[string]func(folder string) error{"small disk": childFull, "small log": childFullOfTheLog} {
		children[name] = func(folder string) error {
			if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=1m"); err != nil {
				return os.NewSyscallError("mount", err)
			}
			return child(folder)
		}
	}
}

// onSmallDisk returns the output of a child on a file system of its own, which only the
// child sees and which ends with it.
func onSmallDisk(t *testing.T, child string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a small file system")
	}
	lines := start(t, child, t.TempDir(), func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}).wait(t)
	if len(lines) == 1 && strings.Contains(lines[0], "mount") {
		t.Skip(lines[0])
	}
	return lines
}

func childFullOfTheLog(folder string) error {
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
	// The file itself has the room that it needs.
	db, err := sql.Open("sqlite", file)
	if err == nil {
		_, err = db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	for i := range 1000 {
		now, err := s.Swap(ctx, rec, next(rec))
		if err != nil {
			if !errors.Is(err, driver.ErrNotApplied) {
				return fmt.Errorf("write %d: %w", i, err)
			}
			if now, err = s.Swap(ctx, rec, next(rec)); err != nil {
				return fmt.Errorf("write %d, made again: %w", i, err)
			}
		}
		rec = now
	}
	if now, err := s.Get(ctx, "k", driver.Strong); err != nil || same(now, rec) != nil {
		return errors.Join(err, same(now, rec))
	}
	if err := s.Close(); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(folder, "filler"))
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	if s, err = Open(file, nil); err == nil {
		_, err = s.Get(ctx, "k", driver.Strong)
	}
	fmt.Fprintln(os.Stdout, err)
	fmt.Fprintln(os.Stdout, "ok")
	return nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

func init() { children["mode"] = childMode }

// childMode opens the file under a umask, with a mode, and takes and releases a
// lock under the notice of a watch.
func childMode(file string) error {
	umask, err := strconv.ParseUint(os.Getenv("UMASK"), 8, 32)
	if err != nil {
		return err
	}
	mode, err := strconv.ParseUint(os.Getenv("MODE"), 8, 32)
	if err != nil {
		return err
	}
	if uid, err := strconv.Atoi(os.Getenv("SETUID")); err == nil {
		if err := errors.Join(syscall.Setgroups([]int{nobody}), syscall.Setgid(uid), syscall.Setuid(uid)); err != nil {
			return err
		}
	}
	syscall.Umask(int(umask))
	s, err := Open(file, &Options{Mode: fs.FileMode(mode)})
	if err != nil {
		return err
	}
	if _, err := s.Watch(context.Background(), "k", func() {}); err != nil {
		return err
	}
	ctx := context.Background()
	var rec driver.Record
	if err := persist(func() (err error) {
		rec, _, err = s.Claim(ctx, held(fresh(), "a"))
		return err
	}); err != nil {
		return err
	}
	if err := persist(func() error { _, err := s.Swap(ctx, rec, released(rec)); return err }); err != nil {
		return err
	}
	for _, suffix := range []string{"", "-wal", "-shm", "-notify"} {
		if info, err := os.Stat(file + suffix); err == nil {
			fmt.Fprintf(os.Stdout, "%s%04o ", suffix, info.Mode().Perm())
		}
	}
	fmt.Fprintln(os.Stdout)
	return s.Close()
}

// TestMode checks the permissions of files that a store makes.
func TestMode(t *testing.T) {
	for _, c := range []struct {
		umask, mode string
		before      fs.FileMode // of a file that is there
		want        string
	}{
		{"0", "0", 0, "0600"},
		{"022", "0", 0, "0600"},
		{"077", "0660", 0, "0660"},
		{"0777", "0600", 0, "0600"},
		{"022", "0666", 0, "0666"},
		{"022", "0", 0o644, "0644"},
		{"022", "0660", 0o600, "0600"},
	} {
		t.Run(fmt.Sprintf("Umask%s/Mode%s/Before%04o", c.umask, c.mode, c.before), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "locks.db")
			if c.before != 0 {
				write0(t, file, nil)
				if err := os.Chmod(file, c.before); err != nil {
					t.Fatal(err)
				}
			}
			lines := start(t, "mode", file, func(cmd *exec.Cmd) {
				cmd.Env = append(cmd.Env, "UMASK="+c.umask, "MODE="+c.mode)
			}).wait(t)
			want := fmt.Sprintf("%[1]s -wal%[1]s -shm%[1]s -notify%[1]s ", c.want)
			if _, err := os.Stat(file + "-notify"); err != nil { // only where a process watches it
				want, _, _ = strings.Cut(want, "-notify")
			}
			if len(lines) != 1 || lines[0] != want {
				t.Errorf("%q, want %q", lines, want)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
	for _, mode := range []fs.FileMode{0o060, 0o400, 0o700, 0o1600, fs.ModeDir | 0o600} {
		if _, err := Open(filepath.Join(t.TempDir(), "locks.db"), &Options{Mode: mode}); err == nil || !strings.Contains(err.Error(), "it must include 0600") {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

// TestModeOfTwoUsers has users of one group open a missing file at the same time,
// under the strictest umasks: none of them is refused.
func TestModeOfTwoUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be several users")
	}
	for range 5 {
		top, err := os.MkdirTemp("", "users") //nolint:usetesting // the parents of t.TempDir are closed to others
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(top) })
		if err := errors.Join(os.Chown(top, 0, nobody), os.Chmod(top, 0o770|fs.ModeSetgid)); err != nil {
			t.Fatal(err)
		}
		var all []*child
		for i := range 6 {
			all = append(all, start(t, "mode", filepath.Join(top, "locks.db"), func(cmd *exec.Cmd) {
				cmd.Env = append(cmd.Env, "UMASK=077", "MODE=0660", fmt.Sprint("SETUID=", 40000+i))
			}))
		}
		for _, c := range all {
			if lines := c.wait(t); len(lines) != 1 || !strings.HasPrefix(lines[0], "0660 ") {
				t.Errorf("child: %q", lines)
			}
		}
	}
}

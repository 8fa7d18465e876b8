// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func init() { children["take"] = childTake }

// childTake takes the lock k, and holds it until its input ends.
func childTake(file string) error {
	s, err := Open(file, nil)
	if err == nil {
		err = persist(func() error {
			_, _, err := s.Claim(context.Background(), held("k", "child"))
			return err
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stdout, "permanent", errors.Is(err, driver.ErrPermanent), err)
		return nil
	}
	fmt.Fprintln(os.Stdout, "taken")
	return s.Close()
}

// private has a child run script in a mount namespace of its own first.
func private(t *testing.T, script string) func(*exec.Cmd) {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip(err)
	}
	args := []string{unshare, "-m"}
	if os.Geteuid() != 0 {
		args = []string{unshare, "-Urm"}
	}
	if out, err := exec.Command(unshare, append(args[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no mount namespace here: %v: %s", err, out)
	}
	return func(cmd *exec.Cmd) {
		cmd.Path = unshare
		cmd.Args = append(args, "sh", "-ec", script+`; exec "$0"`, os.Args[0])
	}
}

// TestTwoNames has one process hold a lock, and another process open the file
// by another name, under which it finds no log: it would take the same lock,
// under the same token.
func TestTwoNames(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, file, other string) func(*exec.Cmd)
		want    string
	}{
		"HardLink": {func(t *testing.T, file, other string) func(*exec.Cmd) {
			if err := os.Link(file, other); err != nil {
				t.Skip(err)
			}
			return nil
		}, "it has 2 names (hard links)"},
		"BindMount": {func(t *testing.T, file, other string) func(*exec.Cmd) {
			write0(t, other, nil)
			return private(t, fmt.Sprintf("mount --bind '%s' '%s'", file, other))
		}, "it is a mount itself"},
		"BindMountOnItself": {func(t *testing.T, file, other string) func(*exec.Cmd) {
			return private(t, fmt.Sprintf("mount --bind '%s' '%s'; touch '%s'; mount --bind '%s' '%s'", file, file, other, file, other))
		}, "it is a mount itself"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			file := filepath.Join(folder, "locks.db")
			other := filepath.Join(folder, "elsewhere", "its locks.db")
			if err := os.Mkdir(filepath.Dir(other), 0o700); err != nil {
				t.Fatal(err)
			}
			s := mustOpen(t, file)
			prepare := c.prepare(t, file, other)
			rec := enginetest.Claim(t, s, held("k", "holder"))
			lines := start(t, "take", other, prepare).wait(t)
			if len(lines) != 1 || !strings.HasPrefix(lines[0], "permanent true") || !strings.Contains(lines[0], c.want) {
				t.Errorf("by the other name: %q, want a refusal with %q", lines, c.want)
			}
			if left, _ := filepath.Glob(other + "-*"); len(left) > 0 {
				t.Errorf("files are left beside the other name: %q", left)
			}
			// The process that has it open goes on: a backup's link ends no lease.
			enginetest.Swap(t, s, rec, next(rec))
		})
	}
}

// TestMountsOfFolders has a folder under another name, and a folder that is a
// mount: both are one database.
func TestMountsOfFolders(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "a", "locks.db")
	other := filepath.Join(folder, "b", "locks.db")
	for _, f := range []string{file, other} {
		if err := os.Mkdir(filepath.Dir(f), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, file)
	prepare := private(t, fmt.Sprintf("mount --bind '%s' '%s'", filepath.Dir(file), filepath.Dir(other)))
	if lines := start(t, "take", other, prepare).wait(t); len(lines) != 1 || lines[0] != "taken" {
		t.Errorf("through a mount of the folder: %q", lines)
	}
	if got := enginetest.Get(t, s, "k"); got.Owner != "child" {
		t.Errorf("the lock is %q's", got.Owner)
	}
}

// TestListOfMounts tests the fallback for kernels that do not report a mount for the file.
func TestListOfMounts(t *testing.T) {
	for file, want := range map[string]bool{"/proc": true, "/": true, t.TempDir(): false, filepath.Join(t.TempDir(), "none"): false} {
		if got := listedAsMount(file); got != want {
			t.Errorf("%s: %t, want %t", file, got, want)
		}
		if got := isMount(file); got != want {
			t.Errorf("statx: %s: %t, want %t", file, got, want)
		}
	}
}

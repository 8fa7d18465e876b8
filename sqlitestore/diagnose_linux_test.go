// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
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

// TestDiagnose changes what others may do with a database, and its names.
func TestDiagnose(t *testing.T) {
	enginetest.MakeVerify(t)
	for name, c := range map[string]struct {
		do   func(file string) error
		want string // the only line that is not "ok", except the disk's; or a line that is
		bad  bool
	}{
		"AsMade":           {func(string) error { return nil }, "", false},
		"Readable":         {func(file string) error { return os.Chmod(file, 0o644) }, "warn file: any user can read it: that is enough", false},
		"Writable":         {func(file string) error { return os.Chmod(file, 0o666) }, "warn file: any user can write it", false},
		"ForAGroup":        {func(file string) error { return chmodAll(file, 0o660) }, "ok file: its group can use it", false},
		"IndexReadable":    {func(file string) error { return os.Chmod(file+"-shm", 0o644) }, "warn file: locks.db-shm lets others do more", false},
		"FolderWritable":   {func(file string) error { return os.Chmod(filepath.Dir(file), 0o777) }, "warn file: any user can write the folder", false},
		"NotifyIsAPipe":    {func(file string) error { return exec.Command("mkfifo", file+"-notify").Run() }, "warn file: locks.db-notify is not a regular file", false},
		"HardLinkMadeThen": {func(file string) error { return os.Link(file, file+".2") }, "bad file: it has 2 names (hard links)", true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "locks.db")
			first, err := Open(file, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer first.Close()
			if err := c.do(file); err != nil {
				t.Skip(err)
			}
			var lines strings.Builder
			bad := false
			for _, f := range Diagnose(t.Context(), file) {
				bad = bad || f.Level == driver.LevelBad
				if f.Level != driver.LevelOK && !strings.Contains(f.Finding, "MB are free") || strings.Contains(f.Finding, "group") {
					lines.WriteString(string(f.Level) + " " + f.Check + ": " + f.Finding + "\n")
				}
			}
			text := strings.TrimSuffix(lines.String(), "\n")
			if strings.Contains(text, "overlay") {
				t.Skip("the machine's temporary folder is on an overlay")
			}
			if bad != c.bad || !strings.HasPrefix(text, c.want) || (text == "") != (c.want == "") || strings.Contains(text, "\n") {
				t.Errorf("bad %t, %q; want %t, %q", bad, text, c.bad, c.want)
			}
		})
	}
}

// TestBlockerIsNamed: a process that keeps all others from writing is named.
func TestBlockerIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	mustOpen(t, file)
	blocker := start(t, "block", file, nil)
	if line := <-blocker.out; line != "blocks" {
		t.Fatal(line)
	}
	enginetest.Findings(t, Diagnose(t.Context(), file),
		fmt.Sprintf("warn users: process %d (", blocker.cmd.Process.Pid), "has kept all others from writing")
}

func chmodAll(file string, mode os.FileMode) error {
	return errors.Join(os.Chmod(file, mode), os.Chmod(file+"-wal", mode), os.Chmod(file+"-shm", mode))
}

// TestOverlay looks at a file on a container's own file system.
func TestOverlay(t *testing.T) {
	const inside = "SQLITESTORE_TEST_OVERLAY"
	if folder := os.Getenv(inside); folder != "" {
		file := filepath.Join(folder, "locks.db")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, f := range Diagnose(t.Context(), file) {
			if f.Level == driver.LevelWarn && strings.Contains(f.Finding, "is on an overlay") {
				t.Log("seen: ", f.Advice)
			}
		}
		return
	}
	folder := t.TempDir()
	script := `mount -t tmpfs none "$0" && mkdir "$0/l" "$0/u" "$0/w" "$0/m" &&
		mount -t overlay none -o lowerdir="$0/l",upperdir="$0/u",workdir="$0/w" "$0/m" || exit 99
		` + inside + `="$0/m" exec "$1" -test.v -test.run='^TestOverlay$'`
	args := []string{"-m", "sh", "-c", script, folder, os.Args[0]}
	if os.Geteuid() != 0 {
		args[0] = "-Urm"
	}
	out, err := exec.Command("unshare", args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.Is(err, exec.ErrNotFound) || errors.As(err, &exit) && exit.ExitCode() == 99 {
		t.Skipf("no overlay here: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "seen: ") {
		t.Errorf("%v: %s", err, out)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestDiskFull has a process fill up a file system of its own, which nobody
// else sees and which ends with it.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a small file system")
	}
	lines := start(t, "small disk", t.TempDir(), func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}).wait(t)
	if len(lines) == 1 && strings.Contains(lines[0], "mount") {
		t.Skip(lines[0])
	}
	if len(lines) != 3 || lines[0] != passes || !strings.Contains(lines[1], "no space left") || lines[2] != "ok" {
		t.Errorf("child: %q", lines)
	}
}

func init() {
	children["small disk"] = func(folder string) error {
		if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=1m"); err != nil {
			return os.NewSyscallError("mount", err)
		}
		return childFull(folder)
	}
}

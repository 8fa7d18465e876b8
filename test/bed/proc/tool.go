// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Run runs a tool in a folder, this one if empty, and returns its standard output.
// An error shows all that it has written.
func Run(ctx context.Context, dir, name string, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	// Child processes, as Maven has them, may hold the pipes after it was killed.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// ModuleDir is where a module is. The go command is asked, so that it is found from
// any module that requires it or shares a workspace with it.
func ModuleDir(ctx context.Context, module string) (string, error) {
	out, err := Run(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", module)
	return strings.TrimSpace(out), err
}

// Monotonic is the machine's CLOCK_MONOTONIC in nanoseconds. Every process of
// one machine reads the same clock, and it is the one behind Java's
// System.nanoTime on Linux, so that instants of different peers can be
// compared. Package time keeps its reading of this clock to itself.
func Monotonic() int64 { return Clock(unix.CLOCK_MONOTONIC) }

// Clock is a clock of clock_gettime(2), as this process sees it.
func Clock(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic("clock_gettime: " + err.Error()) //nolint:forbidigo // the kernel refuses a clock only to a caller that asks for none
	}
	return ts.Nano()
}

// Map makes a file a part of memory, which all processes share that have mapped it,
// and makes the file if it is not there. What a process has written is there when it
// is killed in the next instant. The caller unmaps it, or the end of the process.
func Map(path string, size int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the mapping stays
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

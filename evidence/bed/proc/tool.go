// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tenurelock/tenure/release/modules"
)

// Try does what users do when the revision is tagged with the version: it installs the
// programs, and gets each module into a program of its own and builds it; from a folder that
// serves as module proxy, with an empty home, and with nothing of the checkout in reach.
func Try(ctx context.Context, repository modules.Repository, revision, version string, log io.Writer) (err error) {
	home, err := os.MkdirTemp("", "tenure-try-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeAll(home)) }()
	proxy := filepath.Join(home, "proxy")
	if err := repository.Proxy(ctx, revision, version, proxy); err != nil {
		return err
	}
	env, err := Environment(ctx, home, proxy)
	if err != nil {
		return err
	}
	try := func(dir string, args ...string) error {
		_, _ = fmt.Fprintf(log, "go %s\n", strings.Join(args, " "))
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Env = dir, env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	// With the flags of a release, so that what this compiles need not be compiled again.
	for _, command := range modules.Commands() {
		if err := try(home, "install", "-trimpath", "-ldflags=-s", command+"@"+version); err != nil {
			return err
		}
		program := filepath.Join(home, "go", "bin", filepath.Base(command))
		out, err := exec.CommandContext(ctx, program, "--version").Output()
		if err != nil {
			return err
		}
		if words := strings.Fields(string(out)); len(words) < 2 || words[1] != version {
			return fmt.Errorf("%s says that it is %q, and is %s", command, strings.TrimSpace(string(out)), version)
		}
	}
	list, err := repository.Released(ctx, revision)
	if err != nil {
		return err
	}
	for _, m := range list {
		user := filepath.Join(home, "user", filepath.FromSlash(m.Dir))
		if err := os.MkdirAll(user, 0o755); err != nil {
			return err
		}
		for _, args := range [][]string{
			{"mod", "init", "example.com/user"},
			{"get", m.Path() + "/...@" + version}, // cmd has no package at its top
			{"build", "-trimpath", m.Path() + "/..."},
		} {
			if err := try(user, args...); err != nil {
				return fmt.Errorf("%s: %w", m.Path(), err)
			}
		}
	}
	return nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// A Repository is a clone of the repository, by the path of its top folder.
type Repository string

// git runs git in the clone and returns what it prints, without the last line's end.
func (r Repository) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", string(r)}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return strings.TrimRight(out.String(), "\n"), nil
}

// Read returns a file of the revision.
func (r Repository) Read(ctx context.Context, revision, path string) (string, error) {
	return r.git(ctx, "show", revision+":"+path)
}

// Commit returns the full name of the revision's commit.
func (r Repository) Commit(ctx context.Context, revision string) (string, error) {
	return r.git(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
}

// Time returns when the revision was committed, in UTC. What is made of it is dated so,
// that it is the same bytes whoever makes it.
func (r Repository) Time(ctx context.Context, revision string) (time.Time, error) {
	text, err := r.git(ctx, "log", "-1", "--format=%cI", revision)
	if err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, text)
	return at.UTC(), err
}

// find returns the paths of the revision's files for which want is true.
func (r Repository) find(ctx context.Context, revision string, want func(path string) bool) ([]string, error) {
	out, err := r.git(ctx, "ls-tree", "-r", "-z", "--name-only", revision)
	if err != nil {
		return nil, err
	}
	var found []string
	for path := range strings.SplitSeq(out, "\x00") {
		if path != "" && want(path) {
			found = append(found, path)
		}
	}
	return found, nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

// lint returns what is wrong with a workflow.
func lint(t *testing.T, name string, text []byte) []*actionlint.Error {
	t.Helper()
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{Shellcheck: "", Pyflakes: ""})
	if err != nil {
		t.Fatal(err)
	}
	found, err := linter.Lint(name, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The workflows of the repository, and the one that a guide shows, are such as GitHub takes.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no workflows", err)
	}
	workflows := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		workflows[file] = string(text)
	}
	shown, err := os.ReadFile("../docs/guides/platforms/github-deploy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	workflows["github-deploy.yaml"] = string(shown)
	for name, text := range workflows {
		for _, e := range lint(t, name, []byte(text)) {
			t.Error(e)
		}
		if !strings.Contains(text, "timeout-minutes:") {
			t.Errorf("%s may run for 6 hours", name)
		}
	}
	if wrong := strings.Replace(workflows["github-deploy.yaml"], "runs-on:", "run-on:", 1); len(lint(t, "wrong", []byte(wrong))) == 0 {
		t.Error("a workflow with a wrong key is taken")
	}
}

// Each command of the usage is there, and takes what the usage says.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"check"}, {"dist", "v0.1.0"}, {"unknown", "v0.1.0"}, {"check", "v0.1.0", "-unknown"}, {"tag", "v0.1.0", "more"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), errUsage.Error()) {
			t.Errorf("%q ends with %v", args, err)
		}
	}
	if err := run(t.Context(), []string{"dist", "v999.0.0", t.TempDir()}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "there is no tag v999.0.0") {
		t.Errorf("without a tag: %v", err)
	}
}

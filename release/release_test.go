// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package release_test tests the workflows, and scripts/release on a small repository.
package release_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"golang.org/x/tools/txtar"
)

// lint returns the problems of a workflow.
func lint(t *testing.T, name, text string) []*actionlint.Error {
	t.Helper()
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{Shellcheck: "", Pyflakes: ""})
	if err != nil {
		t.Fatal(err)
	}
	found, err := linter.Lint(name, []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// GitHub accepts the workflows of the repository and the workflow in the guide.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no workflows", err)
	}
	for _, file := range append(files, "../docs/guides/platforms/github-deploy.yaml") {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, e := range lint(t, file, text) {
			t.Error(e)
		}
		if !strings.Contains(text, "timeout-minutes:") {
			t.Errorf("%s may run for 6 hours", file)
		}
		if len(lint(t, file, strings.Replace(text, "runs-on:", "run-on:", 1))) == 0 {
			t.Errorf("%s is taken with a wrong key", file)
		}
	}
}

const root = "github.com/tenurelock/tenure"

// commit makes a repository of the good files, with one of them changed.
func commit(t *testing.T, file, text string) (dir string) {
	t.Helper()
	good, err := txtar.ParseFile("testdata/good.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for _, f := range append(good.Files, txtar.File{Name: file, Data: []byte(text)}) {
		if f.Name == "" {
			continue
		}
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	must(t, dir, "git", "init", "--quiet", "--initial-branch", "main")
	must(t, dir, "git", "config", "user.name", "The Tests")
	must(t, dir, "git", "config", "user.email", "tests@example.com")
	must(t, dir, "git", "add", "--all")
	must(t, dir, "git", "commit", "--quiet", "--message", "all")
	return dir
}

// try runs a program in the folder; must also requires it to succeed. Both return its
// output.
func try(t *testing.T, dir, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func must(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, program, args...)
	if err != nil {
		t.Fatalf("%s %q: %v: %s", program, args, err, out)
	}
	return out
}

// script is scripts/release.
var script, _ = filepath.Abs("../scripts/release")

// A good tree has no problem, and each rule that is broken is one.
func TestCheck(t *testing.T) {
	const other = ": names no or another version"
	for name, c := range map[string]struct {
		file, text string
		do         string // what git does
		want       string // the beginning of each problem
	}{
		"a good tree":                {},
		"an older tag":               {do: "tag v0.1.9"},
		"a candidate's tag":          {do: "tag v0.2.0-rc.1"},
		"something is not committed": {do: "rm --quiet tenure.go", want: "tenure.go: is not committed"},
		"another branch":             {do: "checkout --quiet -b next", want: "HEAD: is not on main"},
		"a tag that is there":        {do: "tag store/v0.2.0", want: "tag store/v0.2.0: is there already"},
		"a newer tag":                {do: "tag v0.10.0", want: "tag v0.10.0: is newer"},
		"a sibling of another version": {
			file: "store/go.mod", text: "module " + root + "/store\n\nrequire " + root + " v0.1.0\n",
			want: "store/go.mod" + other,
		},
		"a sibling that is not released": {
			file: "store/go.mod", text: "module " + root + "/store\n\nrequire (\n\t" + root + "/test v0.2.0\n)\n",
			want: "store/go.mod: requires test/v0.2.0, which is not released",
		},
		"a replace line": {
			file: "store/go.mod", text: "module " + root + "/store\n\nreplace " + root + " => ../\n",
			want: "store/go.mod: has replace or exclude lines",
		},
		"a workspace of another version": {
			file: "go.work", text: "go 1.26.0\n\nreplace " + root + " v0.1.0 => ./\n", want: "go.work" + other,
		},
		"no changes of the version": {
			file: "CHANGELOG.md", text: "## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n\n- Some.\n",
			want: "CHANGELOG.md: has no changes under",
		},
		"no day": {
			file: "CHANGELOG.md", text: "## [Unreleased]\n\n## [0.2.0]\n\n- More.\n",
			want: "CHANGELOG.md: has no changes under",
		},
		"changes that are left": {
			file: "CHANGELOG.md", text: "## [Unreleased]\n\n- New.\n\n## [0.2.0] - 2026-11-26\n\n- More.\n",
			want: "CHANGELOG.md" + other,
		},
		"a page of another version": {
			file: "docs/start.md", text: "    go install tenure/cmd/tenure@v0.1.0\n", want: "docs/start.md" + other,
		},
		"a page of before": {
			file: "docs/start.md", text: "# Start\n\nUntil the\nfirst release, wait.\n",
			want: "docs/start.md: says what holds until",
		},
		"another page of before": {
			file: "README.md", text: "0.1, before its first release.\n", want: "README.md: says what holds until",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := commit(t, c.file, c.text)
			if c.do != "" {
				must(t, dir, "git", strings.Fields(c.do)...)
			}
			out, err := try(t, dir, script, "check", "v0.2.0")
			want := []string{"HEAD can be released as v0.2.0"}
			if c.want != "" {
				want = []string{c.want, "release: HEAD is not ready to be released as v0.2.0"}
			}
			got := strings.Split(strings.TrimSpace(out), "\n")
			if (err == nil) != (c.want == "") || !slices.EqualFunc(got, want, strings.HasPrefix) {
				t.Errorf("%v: %s\nwant:\n%s", err, out, c.want)
			}
		})
	}
}

// The script refuses what it cannot do, and prints its usage after a wrong call.
func TestRefused(t *testing.T) {
	dir := commit(t, "", "")
	for args, want := range map[string]string{
		"":                      "usage:",
		"check":                 "usage:",
		"dist v0.2.0":           "usage:",
		"unknown v0.2.0":        "usage:",
		"check v0.2.0 -unknown": "usage:",
		"tag v0.2.0 more":       "usage:",
		"check 0.2.0":           "no version",
		"check v0.2":            "no version",
		"check v2.0.0":          "no version",
		"prepare v0.2.0+build":  "no version",
		"notes v0.4.0":          "says nothing of v0.4.0",
		"dist v0.9.0 never":     "there is no tag v0.9.0",
	} {
		if out, err := try(t, dir, script, strings.Fields(args)...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%q ends with %v: %s", args, err, out)
		}
	}
}

// What `prepare` has written, and someone has committed, has no problem.
func TestPrepare(t *testing.T) {
	dir := commit(t, "CHANGELOG.md",
		"# Changelog\n\n## [Unreleased]\n\n### Added\n\n- New.\n\n## [0.2.0] - 2026-11-26\n\n- More.\n")
	must(t, dir, script, "prepare", "v0.3.0-rc.1")
	must(t, dir, "git", "commit", "--quiet", "--all", "--message", "release")
	if got := must(t, dir, "git", "show", "--name-only", "--format="); strings.Count(got, "\n") != 6 {
		t.Errorf("it changes %s", got)
	}
	const want = "version=0.3.0-rc.1, tenure_0.3.0-rc.1_linux.tar.gz, " +
		"ghcr.io/x/tenure:0.3.0-rc.1 beside scheduler:1.4.2\n"
	if page := must(t, dir, "cat", "docs/start.md"); !strings.HasSuffix(page, want) {
		t.Errorf("the page says %q", page)
	}
	must(t, dir, script, "check", "v0.3.0-rc.1")
	if notes := must(t, dir, script, "notes", "v0.3.0-rc.1"); strings.TrimSpace(notes) != "### Added\n\n- New." {
		t.Errorf("the changes are %q", notes)
	}
}

// A tag for each module that is released; and a release is made of all of them.
func TestTag(t *testing.T) {
	dir := commit(t, "", "")
	out := must(t, dir, script, "tag", "v0.2.0")
	if !strings.HasSuffix(out, "git push --atomic origin cmd/v0.2.0 v0.2.0 store/v0.2.0\n") {
		t.Errorf("it says %s", out)
	}
	if kind := must(t, dir, "git", "cat-file", "-t", "cmd/v0.2.0"); kind != "tag\n" {
		t.Errorf("it is a %s", kind)
	}
	must(t, dir, "git", "commit", "--quiet", "--allow-empty", "--message", "more")
	for _, change := range []string{"--force", "--delete"} {
		must(t, dir, "git", "tag", change, "cmd/v0.2.0")
		out, err := try(t, dir, script, "dist", "v0.2.0", "out")
		if err == nil || !strings.Contains(out, "tag cmd/v0.2.0 is not there, or not of") {
			t.Errorf("after git tag %s: %v, %s", change, err, out)
		}
	}
}

// If one module cannot be tagged, or could not be installed, no module is tagged.
func TestTagNone(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"store/go.mod", "module " + root + "/stores\n\ngo 1.26.0\n", root + "/stores"},
		{"store/store.go", "package store\n\nvar x int = \"does not build\"\n", "does not build"},
		{".git/refs/tags/store/v0.2.0.lock", "", "no tag was made"},
	} {
		dir := commit(t, c.file, c.text)
		if out, err := try(t, dir, script, "tag", "v0.2.0"); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("it ends with %v, want %s: %s", err, c.want, out)
		}
		if tags := must(t, dir, "git", "tag", "--list"); tags != "" {
			t.Errorf("it leaves the tags %s", tags)
		}
	}
}

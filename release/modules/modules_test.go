// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package modules_test

import (
	"archive/zip"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/release/modules"
)

const root = modules.Root

// goodFiles are a small repository that can be released as v0.2.0, and comes close to the
// border of some rules.
func goodFiles() map[string]string {
	return map[string]string{
		"go.mod":                        "module " + root + "\n\ngo 1.26.0\n",
		"LICENSE":                       "do what you want\n",
		"tenure.go":                     "package tenure\n",
		"README.md":                     "# Tenure\n\nIn its first release there is not much.\n",
		"CHANGELOG.md":                  "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-26\n\n- More.\n\n## [0.1.0] - 2026-01-01\n\n- Some.\n",
		"docs/start.md":                 "# Start\n\nversion=0.2.0, tenure_0.2.0_linux.tar.gz, ghcr.io/x/tenure:0.2.0 beside scheduler:1.4.2\n",
		"store/go.mod":                  "module " + root + "/store\n\ngo 1.26.0\n\nrequire " + root + " v0.2.0\n",
		"store/store.go":                "package store\n",
		"cmd/go.mod":                    "module " + root + "/cmd\n\ngo 1.26.0\n\nrequire (\n\t" + root + " v0.2.0\n\t" + root + "/store v0.2.0\n)\n",
		"cmd/main.go":                   "package main\n",
		"evidence/go.mod":               "module " + root + "/evidence\n\ngo 1.26.0\n\nrequire " + root + " v0.2.0\n",
		"store/internal/engine/go.mod":  "module " + root + "/store/internal/engine\n\ngo 1.26.0\n",
		"store/testdata/pretend/go.mod": "module pretend\n",
		"go.work":                       "go 1.26.0\n\nuse (\n\t.\n\t./cmd\n\t./evidence\n\t./store\n)\n\nreplace (\n\t" + root + " v0.2.0 => ./\n\t" + root + "/store v0.2.0 => ./store\n)\n",
	}
}

// commit makes a repository of the files; an empty text leaves one out.
func commit(t *testing.T, files map[string]string) modules.Repository {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if text == "" {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "init", "--quiet", "--initial-branch", "main")
	git(t, dir, "config", "user.name", "The Tests")
	git(t, dir, "config", "user.email", "tests@example.com")
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message", "all")
	return modules.Repository(dir)
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return string(out)
}

// A good tree has no problem, and each rule that is broken is one.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		do    func(t *testing.T, dir string)
		want  []string // the beginning of each problem
	}{
		{name: "good tree"},
		{
			name: "something is not committed",
			do: func(t *testing.T, dir string) {
				if err := os.WriteFile(filepath.Join(dir, "more.go"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"more.go: is not committed"},
		},
		{
			name: "another branch",
			do:   func(t *testing.T, dir string) { git(t, dir, "checkout", "--quiet", "-b", "next") },
			want: []string{`HEAD: is on branch "next"`},
		},
		{
			name: "a tag that is there",
			do:   func(t *testing.T, dir string) { git(t, dir, "tag", "store/v0.2.0") },
			want: []string{"tag store/v0.2.0: is there already"},
		},
		{
			name: "a newer tag",
			do:   func(t *testing.T, dir string) { git(t, dir, "tag", "v0.10.0") },
			want: []string{"tag v0.10.0: is newer"},
		},
		{
			name: "an older tag",
			do:   func(t *testing.T, dir string) { git(t, dir, "tag", "v0.1.9") },
		},
		{
			name:  "a sibling of another version",
			files: map[string]string{"cmd/go.mod": "module " + root + "/cmd\n\ngo 1.26.0\n\nrequire (\n\t" + root + " v0.1.0\n\t" + root + "/store v0.2.0\n)\n"},
			want:  []string{"cmd/go.mod: requires " + root + " v0.1.0"},
		},
		{
			name:  "a sibling that is not released",
			files: map[string]string{"cmd/go.mod": "module " + root + "/cmd\n\ngo 1.26.0\n\nrequire " + root + "/evidence v0.2.0\n"},
			want:  []string{"cmd/go.mod: requires " + root + "/evidence, which is not released"},
		},
		{
			name:  "a replace line",
			files: map[string]string{"store/go.mod": "module " + root + "/store\n\ngo 1.26.0\n\nrequire " + root + " v0.2.0\n\nreplace " + root + " => ../\n"},
			want:  []string{"store/go.mod: has 1 replace or exclude lines"},
		},
		{
			name:  "a module of another path",
			files: map[string]string{"store/go.mod": "module " + root + "/stores\n\ngo 1.26.0\n"},
			want:  []string{"store/go.mod: is of module " + root + "/stores"},
		},
		{
			name:  "a workspace of another version",
			files: map[string]string{"go.work": "go 1.26.0\n\nuse .\n\nreplace " + root + " v0.1.0 => ./\n"},
			want:  []string{"go.work: replaces " + root + " v0.1.0"},
		},
		{
			name:  "no changes of the version",
			files: map[string]string{"CHANGELOG.md": "## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n\n- Some.\n"},
			want:  []string{"CHANGELOG.md: has no changes of v0.2.0"},
		},
		{
			name:  "no day, and changes that are left",
			files: map[string]string{"CHANGELOG.md": "## [Unreleased]\n\n- New.\n\n## [0.2.0]\n\n- More.\n"},
			want:  []string{"CHANGELOG.md: the heading of v0.2.0 has no day", "CHANGELOG.md: has changes under [Unreleased]"},
		},
		{
			name:  "a page of another version",
			files: map[string]string{"docs/start.md": "    go install tenure/cmd/tenure@v0.1.0\n"},
			want:  []string{`docs/start.md: shows "tenure@v0.1.0"`},
		},
		{
			name:  "pages of before",
			files: map[string]string{"docs/start.md": "# Start\n\nUntil the\nfirst release, wait.\n\n0.1, before its first release.\n"},
			want:  []string{`docs/start.md:3: says "Until the first release"`, `docs/start.md:6: says "before its first release"`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			files := goodFiles()
			maps.Copy(files, c.files)
			repository := commit(t, files)
			if c.do != nil {
				c.do(t, string(repository))
			}
			found, err := repository.Check(t.Context(), "v0.2.0")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range found {
				got = append(got, p.String())
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
			}
		})
	}
}

func TestCheckVersions(t *testing.T) {
	repository := commit(t, goodFiles())
	for _, version := range []string{"0.2.0", "v0.2", "v2.0.0", "v0.2.0+build", "latest", ""} {
		if found, err := repository.Check(t.Context(), version); err != nil || len(found) != 1 {
			t.Errorf("version %q: %v, %v", version, found, err)
		}
	}
}

// A tag for each module that is released, or none at all; and a release is made of all of them.
func TestTag(t *testing.T) {
	repository := commit(t, goodFiles())
	if err := repository.Tagged(t.Context(), "v0.2.0"); err == nil {
		t.Error("there are no tags, and that is not told")
	}
	names, err := repository.Tag(t.Context(), "v0.2.0", false)
	if want := []string{"v0.2.0", "cmd/v0.2.0", "store/v0.2.0"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("tags %q, %v; want %q", names, err, want)
	}
	if err := repository.Tagged(t.Context(), "v0.2.0"); err != nil {
		t.Error(err)
	}
	if kind := git(t, string(repository), "cat-file", "-t", "cmd/v0.2.0"); kind != "tag\n" {
		t.Errorf("it is a %s", kind)
	}

	git(t, string(repository), "commit", "--quiet", "--allow-empty", "--message", "more")
	git(t, string(repository), "tag", "--force", "cmd/v0.2.0")
	if err := repository.Tagged(t.Context(), "v0.2.0"); err == nil || !strings.Contains(err.Error(), "tag cmd/v0.2.0 is of commit") {
		t.Errorf("tags of two commits: %v", err)
	}
	git(t, string(repository), "tag", "--delete", "cmd/v0.2.0")
	if err := repository.Tagged(t.Context(), "v0.2.0"); err == nil || !strings.Contains(err.Error(), "no tag cmd/v0.2.0") {
		t.Errorf("a tag is missing: %v", err)
	}

	git(t, string(repository), "tag", "store/v0.3.0")
	if names, err := repository.Tag(t.Context(), "v0.3.0", false); err == nil || len(names) != 0 {
		t.Errorf("over a tag that is there: %q, %v", names, err)
	}
	if tags := git(t, string(repository), "tag", "--list", "*v0.3.0"); tags != "store/v0.3.0\n" {
		t.Errorf("half of the tags stay: %s", tags)
	}
}

// What Prepare has written, and someone has committed, has no problem.
func TestPrepare(t *testing.T) {
	files := goodFiles()
	files["CHANGELOG.md"] = strings.Replace(files["CHANGELOG.md"], "## [Unreleased]\n", "## [Unreleased]\n\n### Added\n\n- New.\n", 1)
	repository := commit(t, files)
	if err := repository.Prepare(t.Context(), "v0.3.0-rc.1", time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	git(t, string(repository), "commit", "--quiet", "--all", "--message", "release")
	page, err := repository.Read(t.Context(), "HEAD", "docs/start.md")
	if want := "version=0.3.0-rc.1, tenure_0.3.0-rc.1_linux.tar.gz, ghcr.io/x/tenure:0.3.0-rc.1 beside scheduler:1.4.2"; err != nil || !strings.HasSuffix(page, want) {
		t.Errorf("the page says %q, %v", page, err)
	}
	found, err := repository.Check(t.Context(), "v0.3.0-rc.1")
	if err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
	log, err := repository.Read(t.Context(), "HEAD", "CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if text, day := modules.Changes(log, "v0.3.0-rc.1"); text != "### Added\n\n- New." || day != "2026-12-24" {
		t.Errorf("the changes are %q of %q", text, day)
	}
	if err := repository.Prepare(t.Context(), "0.3", time.Time{}); err == nil {
		t.Error("0.3 is taken for a version")
	}
}

// A proxy has each released module, and no file of another one in it.
func TestProxy(t *testing.T) {
	repository := commit(t, goodFiles())
	dir := t.TempDir()
	if err := repository.Proxy(t.Context(), "HEAD", "v0.2.0", dir); err != nil {
		t.Fatal(err)
	}
	for module, want := range map[string][]string{
		root:            {"CHANGELOG.md", "LICENSE", "README.md", "docs/start.md", "go.mod", "go.work", "tenure.go"},
		root + "/cmd":   {"LICENSE", "go.mod", "main.go"},
		root + "/store": {"LICENSE", "go.mod", "store.go"},
	} {
		archive, err := zip.OpenReader(filepath.Join(dir, module, "@v", "v0.2.0.zip"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range archive.File {
			name := strings.TrimPrefix(f.Name, module+"@v0.2.0/")
			if strings.Contains(name, "testdata") {
				continue // the folder is a module of its own, which only its go.mod says
			}
			got = append(got, name)
		}
		_ = archive.Close()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", module, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, root, "evidence")); err == nil {
		t.Error("the evidence is released")
	}
}

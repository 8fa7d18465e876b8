// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// version is what the tests release: that at which the modules require each other.
var version = func() string {
	work, err := os.ReadFile("../../go.work")
	if err != nil {
		return err.Error()
	}
	return string(regexp.MustCompile(`v\d\S+`).Find(work))
}()

// scratch holds what the tests share.
var scratch string

func TestMain(m *testing.M) {
	if kept := os.Getenv(required); filepath.IsAbs(kept) {
		scratch = kept
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "tenure-installed-")
	if err != nil {
		panic(err)
	}
	scratch = dir
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// released makes a release once, of a clone in which nothing stands in its way: as the release
// notes say, the version is prepared, and the pages no longer say what holds before it. Nothing
// of this is in the repository's own tags.
var released = sync.OnceValues(func() (clone string, err error) {
	clone = filepath.Join(scratch, "clone")
	if sums, _ := filepath.Glob(clone + "/dist/SHA256SUMS"); sums != nil {
		return clone, nil
	}
	ctx := context.Background()
	run := func(dir, program string, args ...string) {
		if err != nil {
			return
		}
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = dir
		out, failed := cmd.CombinedOutput()
		if failed != nil {
			err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), failed, out)
		}
	}
	run("../..", "git", "clone", "--quiet", "--no-tags", ".", clone)
	run(clone, "git", "checkout", "--quiet", "-B", "main")
	for _, setting := range [][2]string{{"user.name", "The Tests"}, {"user.email", "tests@example.com"}} {
		run(clone, "git", "config", setting[0], setting[1])
	}
	if err != nil {
		return clone, err
	}
	if err := releasePages(clone); err != nil {
		return clone, err
	}
	program := script(clone)
	run(clone, program, "prepare", version)
	run(clone, "git", "commit", "--quiet", "--all", "--message", "all: release "+version)
	run(clone, program, "tag", version)
	run(clone, program, "dist", version, "dist", "-platforms", "linux/amd64")
	return clone, err
})

// script is the script of the clone that releases.
func script(clone string) string { return filepath.Join(clone, "scripts", "release") }

// untrue is a sentence that holds before the first release only.
var untrue = regexp.MustCompile(`(?i)(until\s+the\s+first\s+release|before\s+its\s+first\s+release)`)

// releasePages changes the pages as the one who releases does.
func releasePages(clone string) error {
	pages, err := filepath.Glob(clone + "/docs/*/*.md")
	if err != nil {
		return err
	}
	more, err := filepath.Glob(clone + "/docs/*.md")
	if err != nil {
		return err
	}
	for _, page := range append(append(pages, more...), clone+"/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		if changed := untrue.ReplaceAll(text, []byte("Since this release")); !bytes.Equal(changed, text) {
			if err := os.WriteFile(page, changed, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// dist returns the folder with the release's files.
func dist(t *testing.T) string {
	t.Helper()
	clone, err := released()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(clone, "dist")
}

// only returns the one file of the release with the ending.
func only(t *testing.T, ending string) string {
	t.Helper()
	found, err := filepath.Glob(dist(t) + "/*" + ending)
	if err != nil || len(found) != 1 {
		t.Fatalf("of %s there are %q, %v", ending, found, err)
	}
	return found[0]
}

// output runs a program here, which succeeds, and returns what it says.
func output(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// The tags of all modules were made by the script, which had installed each of them from a
// proxy; and a second time it refuses.
func TestTags(t *testing.T) {
	needs(t, "git")
	clone, err := released()
	if err != nil {
		t.Fatal(err)
	}
	tags := strings.Fields(output(t, clone, "git", "tag", "--list"))
	want := []string{
		"adapters/certmagic", "adapters/clientgo", "adapters/controllerruntime", "adapters/gocron", "azblobstore", "cmd", "dynamostore", "etcdstore", "gcsstore", "k8sstore", "pgstore", "s3store", "sqlitestore", "tenureotel", "tenureprom",
	}
	for i, dir := range want {
		want[i] = dir + "/" + version
	}
	want = append(want, version, "zkstore/"+version)
	if strings.Join(tags, " ") != strings.Join(want, " ") {
		t.Errorf("tags %q, want %q", tags, want)
	}
	cmd := exec.CommandContext(t.Context(), script(clone), "tag", version)
	cmd.Dir = clone
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "is there already") {
		t.Errorf("it tags a version again: %v, %s", err, out)
	}
}

// The checksums are those of all files, and one changed byte is told.
func TestChecksums(t *testing.T) {
	needs(t, "sha256sum")
	out := output(t, dist(t), "sha256sum", "--check", "--strict", "SHA256SUMS")
	files, err := os.ReadDir(dist(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out, ": OK\n"); got != len(files)-1 || got < 5 {
		t.Errorf("%d files are checked, of %d:\n%s", got, len(files), out)
	}
	changed := t.TempDir()
	output(t, "/", "cp", "-r", dist(t)+"/.", changed)
	archive := filepath.Join(changed, filepath.Base(only(t, ".tar.gz")))
	b, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(archive, b, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--quiet", "SHA256SUMS")
	cmd.Dir = changed
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("a changed archive is taken: %s", out)
	}
}

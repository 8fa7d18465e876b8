// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Tag makes the annotated tags of all modules at the commit that is checked out, and returns
// their names. It makes all of them or none, and pushes nothing. Call Check before.
func (r Repository) Tag(ctx context.Context, version string, sign bool) (names []string, err error) {
	list, err := r.Released(ctx, "HEAD")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && len(names) > 0 {
			_, _ = r.git(context.WithoutCancel(ctx), append([]string{"tag", "--delete"}, names...)...)
			names = nil
		}
	}()
	kind := "--annotate"
	if sign {
		kind = "--sign"
	}
	for _, m := range list {
		name := m.Tag(version)
		if _, err := r.git(ctx, "tag", kind, "--message", m.Path()+" "+version, name, "HEAD"); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}

// Tagged returns an error if the tags of the version do not name one commit. It is what keeps a
// release from being built of half of the tags.
func (r Repository) Tagged(ctx context.Context, version string) error {
	commit, err := r.Commit(ctx, "refs/tags/"+version)
	if err != nil {
		return fmt.Errorf("there is no tag %s", version)
	}
	list, err := r.Released(ctx, commit)
	if err != nil {
		return err
	}
	for _, m := range list {
		tag := m.Tag(version)
		other, err := r.Commit(ctx, "refs/tags/"+tag)
		switch {
		case err != nil:
			return fmt.Errorf("there is no tag %s, and there is %s: push all of them", tag, version)
		case other != commit:
			return fmt.Errorf("tag %s is of commit %.12s, and %s of %.12s", tag, other, version, commit)
		}
	}
	return nil
}

// sibling is a line of a go.mod or go.work file that gives the version of one of our modules.
var sibling = regexp.MustCompile(`(?m)(\s` + regexp.QuoteMeta(Root) + `(?:/[a-z0-9/]+)? )v\S+`)

// shown is where a page gives the version that it is about: of an archive, an image, a module.
var shown = regexp.MustCompile(`(version=|\btenured?[:@_]v?)\d+\.\d+\.\d+(?:-[a-z]+\.\d+)?`)

// isPage reports whether the file is documentation for users.
func isPage(p string) bool {
	return path.Ext(p) == ".md" && (p == "README.md" || strings.HasPrefix(p, "docs/"))
}

// Prepare writes the version into what is checked out: into every go.mod file and go.work, into
// the pages, and above the changes that are not released yet, with the day. It commits nothing.
func (r Repository) Prepare(ctx context.Context, version string, day time.Time) error {
	if !Valid(version) {
		return fmt.Errorf("%q is no version of a release: it has the form v0.2.0 or v0.2.0-rc.1", version)
	}
	files, err := r.find(ctx, "HEAD", func(p string) bool {
		return path.Base(p) == "go.mod" && !strings.Contains(p, "testdata/") || p == "go.work" || isPage(p)
	})
	if err != nil {
		return err
	}
	for _, p := range files {
		change := func(text string) string { return sibling.ReplaceAllString(text, "${1}"+version) }
		if isPage(p) {
			change = func(text string) string { return shown.ReplaceAllString(text, "${1}"+strings.TrimPrefix(version, "v")) }
		}
		if err := r.edit(p, change); err != nil {
			return err
		}
	}
	return r.edit("CHANGELOG.md", func(text string) string {
		if left, _ := Changes(text, "Unreleased"); left == "" {
			return text
		}
		const open = "## [Unreleased]\n"
		closed := fmt.Sprintf("%s\n## [%s] - %s\n", open, strings.TrimPrefix(version, "v"), day.Format(time.DateOnly))
		return strings.Replace(text, open, closed, 1)
	})
}

// edit changes a file that is checked out.
func (r Repository) edit(name string, change func(string) string) error {
	name = filepath.Join(string(r), filepath.FromSlash(name))
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if changed := change(string(text)); changed != string(text) {
		return os.WriteFile(name, []byte(changed), 0o644)
	}
	return nil
}

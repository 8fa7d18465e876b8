// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// Branch is the branch that is tagged.
const Branch = "main"

// A Problem is what stands in the way of a release.
type Problem struct {
	// Where is a file, a tag or a branch.
	Where string
	// What is wrong, and what to do.
	What string
}

func (p Problem) String() string { return p.Where + ": " + p.What }

// beforeTheFirst is how pages say that something works after the first release only.
var beforeTheFirst = regexp.MustCompile(`(?i)until\s+the\s+first\s+release|before\s+its\s+first\s+release`)

// Check returns what is wrong with the commit that is checked out, if it is to be tagged with
// the version. It changes nothing. An error means that it could not look.
func (r Repository) Check(ctx context.Context, version string) ([]Problem, error) {
	var found []Problem
	add := func(where, what string, args ...any) {
		found = append(found, Problem{where, fmt.Sprintf(what, args...)})
	}
	if !Valid(version) {
		add(version, "no version of a release: it has the form v0.2.0 or v0.2.0-rc.1, and begins with v0 or v1, as the modules' paths say")
		return found, nil
	}
	status, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(status) {
		add(strings.TrimSpace(line[2:]), "is not committed, so the tag would not have it: commit or remove it")
	}
	if branch, _ := r.git(ctx, "symbolic-ref", "--quiet", "--short", "HEAD"); branch != Branch {
		add("HEAD", "is on branch %q: releases are tagged on %s", branch, Branch)
	}
	list, err := r.Released(ctx, "HEAD")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || list[0].Dir != "." {
		add("go.mod", "there is no root module")
		return found, nil
	}
	tags, err := r.git(ctx, "tag", "--list")
	if err != nil {
		return nil, err
	}
	checkTags(list, version, strings.Fields(tags), add)
	for _, m := range list {
		checkModule(m, version, add)
	}
	work, err := r.Read(ctx, "HEAD", "go.work")
	if err != nil {
		return nil, err
	}
	if err := checkWork(list, version, work, add); err != nil {
		return nil, err
	}
	log, err := r.Read(ctx, "HEAD", "CHANGELOG.md")
	if err != nil {
		return nil, err
	}
	checkChangelog(log, version, add)
	pages, err := r.find(ctx, "HEAD", isPage)
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		text, err := r.Read(ctx, "HEAD", page)
		if err != nil {
			return nil, err
		}
		for _, m := range shown.FindAllString(text, -1) {
			if !strings.HasSuffix(m, strings.TrimPrefix(version, "v")) {
				add(page, "shows %q: run 'scripts/release prepare %s'", m, version)
			}
		}
		for _, at := range beforeTheFirst.FindAllStringIndex(text, -1) {
			add(fmt.Sprintf("%s:%d", page, strings.Count(text[:at[0]], "\n")+1), "says %q, which the release makes untrue: write what holds now", strings.Join(strings.Fields(text[at[0]:at[1]]), " "))
		}
	}
	return found, nil
}

// Valid reports whether the version is one that the modules can have.
func Valid(version string) bool {
	return semver.IsValid(version) && semver.Canonical(version) == version &&
		slices.Contains([]string{"v0", "v1"}, semver.Major(version))
}

// checkTags finds tags that are there, and versions that would not be the newest.
func checkTags(list []Module, version string, tags []string, add func(where, what string, args ...any)) {
	for _, m := range list {
		if tag := m.Tag(version); slices.Contains(tags, tag) {
			add("tag "+tag, "is there already. Proxies keep a version for ever: choose the next one")
		}
	}
	for _, tag := range tags {
		if semver.IsValid(tag) && semver.Compare(tag, version) > 0 {
			add("tag "+tag, "is newer than %s", version)
		}
	}
}

// checkModule finds what would keep users from the module: go install refuses one that
// replaces or excludes, and a sibling at another version is another release's code.
func checkModule(m Module, version string, add func(where, what string, args ...any)) {
	where := path.Join(m.Dir, "go.mod")
	if got := m.File.Module.Mod.Path; got != m.Path() {
		add(where, "is of module %s; in this folder it must be %s", got, m.Path())
	}
	if n := len(m.File.Replace) + len(m.File.Exclude); n > 0 {
		add(where, "has %d replace or exclude lines, with which go install refuses it: the first belong into go.work", n)
	}
	for _, need := range m.File.Require {
		if !ours(need.Mod.Path) {
			continue
		}
		if need.Mod.Version != version {
			add(where, "requires %s %s, which is not in this release: run 'scripts/release prepare %s'", need.Mod.Path, need.Mod.Version, version)
		}
	}
}

// checkWork finds siblings that are required and not released, and replace lines of another
// version: then the tests would be those of other code.
func checkWork(list []Module, version, text string, add func(where, what string, args ...any)) error {
	work, err := modfile.ParseWork("go.work", []byte(text), nil)
	if err != nil {
		return err
	}
	released := map[string]bool{}
	for _, m := range list {
		released[m.Path()] = true
	}
	for _, m := range list {
		for _, need := range m.File.Require {
			if ours(need.Mod.Path) && !released[need.Mod.Path] {
				add(path.Join(m.Dir, "go.mod"), "requires %s, which is not released", need.Mod.Path)
			}
		}
	}
	for _, line := range work.Replace {
		if ours(line.Old.Path) && line.Old.Version != version {
			add("go.work", "replaces %s %s: run 'scripts/release prepare %s'", line.Old.Path, line.Old.Version, version)
		}
	}
	return nil
}

func ours(modulePath string) bool {
	return modulePath == Root || strings.HasPrefix(modulePath, Root+"/")
}

// heading begins the changes of a version, with the day of its release.
var heading = regexp.MustCompile(`(?m)^## \[(.+?)\](?: - (\S+))?\n`)

// Changes returns what the changelog says of the version, and the day of its release.
func Changes(log, version string) (text, day string) {
	all := heading.FindAllStringSubmatchIndex(log, -1)
	for i, at := range all {
		if log[at[2]:at[3]] != strings.TrimPrefix(version, "v") {
			continue
		}
		end := len(log)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		if at[4] >= 0 {
			day = log[at[4]:at[5]]
		}
		return strings.TrimSpace(log[at[1]:end]), day
	}
	return "", ""
}

var aDay = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)

func checkChangelog(log, version string, add func(where, what string, args ...any)) {
	const where = "CHANGELOG.md"
	text, day := Changes(log, version)
	switch {
	case text == "":
		add(where, "has no changes of %s under a line '## [%s] - YEAR-MONTH-DAY'", version, strings.TrimPrefix(version, "v"))
	case !aDay.MatchString(day):
		add(where, "the heading of %s has no day: write '## [%s] - YEAR-MONTH-DAY'", version, strings.TrimPrefix(version, "v"))
	}
	if left, _ := Changes(log, "Unreleased"); left != "" {
		add(where, "has changes under [Unreleased], which the release has: move them below its heading")
	}
}

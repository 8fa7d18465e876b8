// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// A modFile is a go.mod or go.work file. It keeps the directives as words,
// which is all that the rules ask for; the go command judges the rest.
type modFile struct {
	path       string
	directives []directive
}

// A directive is one line of the file; the lines of a block carry its verb.
type directive struct {
	verb string
	args []string
	line int
}

func readModFile(fsys fs.FS, name string) (*modFile, error) {
	source, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	m := &modFile{path: name}
	block := ""
	for i, text := range strings.Split(string(source), "\n") {
		text, _, _ = strings.Cut(text, "//")
		words := strings.Fields(text)
		for j, w := range words {
			words[j] = strings.Trim(w, "\"`")
		}
		switch {
		case len(words) == 0:
		case block != "" && words[0] == ")":
			block = ""
		case block != "":
			m.directives = append(m.directives, directive{block, words, i + 1})
		case len(words) == 2 && words[1] == "(":
			block = words[0]
		default:
			m.directives = append(m.directives, directive{words[0], words[1:], i + 1})
		}
	}
	if block != "" {
		return nil, fmt.Errorf("%s: the block %q is not closed", name, block)
	}
	return m, nil
}

func (m *modFile) dir() string { return path.Dir(m.path) }

// all returns the directives with the verb.
func (m *modFile) all(verb string) []directive {
	var list []directive
	for _, d := range m.directives {
		if d.verb == verb {
			list = append(list, d)
		}
	}
	return list
}

// first returns the first argument of the first directive with the verb, or "".
func (m *modFile) first(verb string) string {
	for _, d := range m.all(verb) {
		if len(d.args) > 0 {
			return d.args[0]
		}
	}
	return ""
}

// apart are the modules that build an engine of the tests, or a release.
var apart = []string{"k8sstore/internal/apiserver", "release"}

// checkModules finds what would make a module unfit for its users, or the
// workspace unfit for its authors:
//
//   - The root module requires nothing and picks no toolchain, so that to import
//     it changes nobody's build.
//   - No module has a replace line: go install refuses such a module, and users
//     of the others do not see it. Those lines stand in go.work.
//   - All modules speak the same Go version, and require each other at one
//     version: they are released together.
//   - go.work uses every module, and replaces each sibling at just the version
//     that is required. Without the line the go command asks the proxy for a
//     version that no tag carries yet.
//   - A module that builds an engine or a release stands apart: go.work does not use it,
//     so that its weight reaches nobody, it requires none of ours, and may replace.
func checkModules(t *tree) []string {
	var r report
	if len(t.modules) == 0 || t.modules[0].dir() != "." {
		r.add("go.mod", 1, "the root module is missing")
		return r
	}
	if t.work == nil {
		r.add("go.work", 1, "the workspace file is missing")
		return r
	}
	for _, d := range t.modules[0].directives {
		switch d.verb {
		case "module", "go", "retract":
		default:
			r.add("go.mod", d.line, "the root module has a %s line; it must have none", d.verb)
		}
	}
	goVersion := t.modules[0].first("go")
	for _, m := range append([]*modFile{t.work}, t.modules[1:]...) {
		if v := m.first("go"); v != goVersion {
			r.add(m.path, 1, "go %s, but the root module has go %s", v, goVersion)
		}
	}
	for _, m := range t.modules {
		want := path.Join(rootModule, m.dir())
		if got := m.first("module"); got != want {
			r.add(m.path, 1, "module %s; in this directory it must be %s", got, want)
		}
		for _, d := range m.all("replace") {
			if m.dir() != "." && !slices.Contains(apart, m.dir()) { // the root's are reported above
				r.add(m.path, d.line, "a replace line; it belongs into go.work")
			}
		}
	}
	checkUses(t, &r)
	checkSiblings(t, &r)
	return r
}

// checkUses compares the use lines of go.work with the modules that exist.
func checkUses(t *tree, r *report) {
	used := make(map[string]bool)
	for _, d := range t.work.all("use") {
		used[path.Clean(d.args[0])] = true
	}
	for _, m := range t.modules {
		switch alone := slices.Contains(apart, m.dir()); {
		case alone && used[m.dir()]:
			r.add("go.work", 1, "uses %s, which stands apart", m.dir())
		case !alone && !used[m.dir()]:
			r.add("go.work", 1, "no use line for the module in %s", m.dir())
		}
		delete(used, m.dir())
	}
	for _, dir := range slices.Sorted(maps.Keys(used)) {
		r.add("go.work", 1, "uses %s, where there is no go.mod file", dir)
	}
}

// checkSiblings compares the versions at which modules require each other with
// one another and with the replace lines of go.work.
func checkSiblings(t *tree, r *report) {
	version := ""                     // the first one seen
	required := make(map[string]bool) // "module version"
	for _, m := range t.modules {
		for _, d := range m.all("require") {
			if _, ok := ours(d.args[0]); !ok || len(d.args) < 2 {
				continue
			}
			module, v := d.args[0], d.args[1]
			if slices.Contains(apart, m.dir()) {
				r.add(m.path, d.line, "requires %s, and stands apart", module)
				continue
			}
			if version == "" {
				version = v
			}
			if v != version {
				r.add(m.path, d.line, "requires %s %s, while siblings are required at %s elsewhere", module, v, version)
			}
			required[module+" "+v] = true
		}
	}
	for _, d := range t.work.all("replace") {
		// MODULE VERSION => ./DIR
		if len(d.args) != 4 || d.args[2] != "=>" {
			r.add("go.work", d.line, "replace %s: want the form MODULE VERSION => ./DIR", strings.Join(d.args, " "))
			continue
		}
		dir, ok := ours(d.args[0])
		if !ok {
			r.add("go.work", d.line, "replaces %s, which is not ours: users would not get what we test", d.args[0])
			continue
		}
		if path.Clean(d.args[3]) != dir {
			r.add("go.work", d.line, "replaces %s by %s; it is in ./%s", d.args[0], d.args[3], dir)
		}
		key := d.args[0] + " " + d.args[1]
		if !required[key] {
			r.add("go.work", d.line, "replaces %s, which no module requires", key)
		}
		delete(required, key)
	}
	for _, key := range slices.Sorted(maps.Keys(required)) {
		r.add("go.work", 1, "no replace line for %s, which a module requires", key)
	}
}

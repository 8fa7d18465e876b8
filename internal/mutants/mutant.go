// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one deliberate mistake, as a file describes it.
type mutant struct {
	name   string // the path of the file
	rule   string // that it breaks
	finds  []find
	edits  []edit
	source map[string]string // the files that it changes, with the mistake
}

// find is a command that must fail, and a text that it must print.
type find struct{ command, says string }

// edit replaces a text that stands in a file once.
type edit struct{ path, old, new string }

// folders are where the files of mutants are, below the root of the repository.
func folders(root string) ([]string, error) {
	var all []string
	for _, depth := range []string{"", "*", "*/*", "*/*/*"} {
		found, err := filepath.Glob(filepath.Join(root, depth, "testdata/mutants/*.txt"))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.Sort(all)
	return all, nil
}

// load reads the mutants of a repository, and makes the change of each.
func load(root string) ([]*mutant, error) {
	files, err := folders(root)
	if err != nil {
		return nil, err
	}
	var all []*mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m, err := parse(string(text))
		if err == nil {
			err = m.apply(root)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if m.name, err = filepath.Rel(root, file); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// parse reads a file: a sentence that says which rule is broken; lines "fails: COMMAND", each
// followed by "says: TEXT"; and for each change "--- PATH", the text that is replaced, "+++",
// and the text that replaces it, which may be empty.
func parse(text string) (*mutant, error) {
	head, changes, _ := strings.Cut(text, "\n--- ")
	m := &mutant{}
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		if command, ok := strings.CutPrefix(line, "fails: "); ok {
			m.finds = append(m.finds, find{command: command})
		} else if says, ok := strings.CutPrefix(line, "says: "); ok && len(m.finds) > 0 {
			m.finds[len(m.finds)-1].says = says
		} else if line != "" && len(m.finds) == 0 {
			m.rule = strings.TrimSpace(m.rule + " " + line)
		}
	}
	for change := range strings.SplitSeq(changes, "\n--- ") {
		path, texts, _ := strings.Cut(change, "\n")
		before, after, ok := strings.Cut("\n"+strings.TrimRight(texts, "\n")+"\n", "\n+++\n")
		if !ok {
			return nil, fmt.Errorf("the change of %q has no line +++", path)
		}
		m.edits = append(m.edits, edit{path, strings.TrimPrefix(before, "\n"), strings.TrimSuffix(after, "\n")})
	}
	for _, f := range m.finds {
		if f.says == "" {
			return nil, fmt.Errorf("no line says: follows %q", f.command)
		}
	}
	if m.rule == "" || len(m.finds) == 0 {
		return nil, errors.New("want a sentence that names the rule, and the command that must fail")
	}
	return m, nil
}

// apply makes the changes to copies of the files.
func (m *mutant) apply(root string) error {
	m.source = map[string]string{}
	for _, e := range m.edits {
		text, read := m.source[e.path]
		if !read {
			b, err := os.ReadFile(filepath.Join(root, e.path))
			if err != nil {
				return err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return fmt.Errorf("the text to be replaced stands %d times in %s, want once:\n%s", n, e.path, e.old)
		}
		m.source[e.path] = strings.Replace(text, e.old, e.new, 1)
	}
	return nil
}

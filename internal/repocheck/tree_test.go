// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// A tree is a checkout, or a small tree that breaks each rule.
type tree struct {
	fs.FS
	text  map[string]string // of all but pictures, by path
	files []*goFile
}

// A goFile is one Go source file. Its path is slash-separated and relative to
// the tree's root, as are all paths here.
type goFile struct {
	path   string
	fset   *token.FileSet
	syntax *ast.File
}

// load reads the tree. A file that does not parse is an error: a check that
// skips what it cannot read would pass it.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{FS: fsys, text: map[string]string{}}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		base := d.Name()
		if err != nil || d.IsDir() {
			if name != "." && (strings.ContainsAny(base[:1], "._") || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return err
		}
		if !strings.Contains(" .go .md .txt .tla .yml .yaml .work .mod  ", " "+path.Ext(base)+" ") {
			return nil
		}
		source, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		t.text[name] = string(source)
		if path.Ext(base) == ".go" {
			f := &goFile{path: name, fset: token.NewFileSet()}
			if f.syntax, err = parser.ParseFile(f.fset, name, source, parser.SkipObjectResolution); err != nil {
				return err
			}
			t.files = append(t.files, f)
		}
		return nil
	})
	return t, err
}

// names returns the files whose text was read and whose names have one of the endings.
func (t *tree) names(endings ...string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.text)), func(name string) bool {
		return !slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(name, e) })
	})
}

// readerFiles are the pages and help texts that people read.
func (t *tree) readerFiles() []string {
	return slices.DeleteFunc(t.names(".md", ".txt"), func(file string) bool {
		if path.Ext(file) == ".txt" {
			return path.Base(path.Dir(file)) != "help"
		}
		return path.Dir(file) != "." && !strings.HasPrefix(file, "docs/")
	})
}

func (f *goFile) dir() string            { return path.Dir(f.path) }
func (f *goFile) test() bool             { return strings.HasSuffix(f.path, "_test.go") }
func (f *goFile) line(pos token.Pos) int { return f.fset.Position(pos).Line }

// imports yields what the file imports, each with its line.
func (f *goFile) imports(yield func(line int, importPath string) bool) {
	for _, spec := range f.syntax.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil && !yield(f.line(spec.Pos()), p) {
			return
		}
	}
}

// within reports whether a directory is another one or lies below it. Here "." is the root
// package alone.
func within(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

// A report collects what breaks a rule, in the form "file:line: what".
type report []string

func (r *report) add(file string, line int, format string, args ...any) {
	*r = append(*r, fmt.Sprintf("%s:%d: %s", file, line, fmt.Sprintf(format, args...)))
}

// checks are the rules.
var checks = map[string]func(*tree) report{
	"Imports": checkImports, "Purity": checkPurity, "Links": checkLinks, "Snippets": checkSnippets,
	"Commands": checkCommands, "Tests": checkNamedTests, "Words": checkWords,
}

// TestRepository has the repository keep each rule.
func TestRepository(t *testing.T) {
	repo, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if _, checkout := repo.text["go.work"]; !checkout && os.Getenv("TENURE_REQUIRE_ENGINES") == "" {
		t.Skip("not a checkout: the root module alone, as the go command downloads it, has not the other modules")
	}
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			for _, problem := range check(repo) {
				t.Error(problem)
			}
		})
	}
}

// TestEachRuleCanBreak has each check find what is wrong in a small tree, and nothing else: a
// check that cannot fail says nothing.
func TestEachRuleCanBreak(t *testing.T) {
	text, err := os.ReadFile("testdata/broken.txt")
	if err != nil {
		t.Fatal(err)
	}
	files, want := fstest.MapFS{}, map[string][]string{}
	for _, part := range strings.Split(string(text), "\n-- ")[1:] {
		name, content, _ := strings.Cut(part, " --\n")
		if check, found := strings.CutPrefix(name, "found by "); found {
			want[check] = strings.Split(strings.TrimSpace(content), "\n")
			continue
		}
		files[name] = &fstest.MapFile{Data: []byte(content)}
	}
	small, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range checks {
		if got := check(small); want[name] == nil || !slices.EqualFunc(got, want[name], strings.HasPrefix) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want[name], "\n"))
		}
	}
}

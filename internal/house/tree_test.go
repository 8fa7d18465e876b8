// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

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
	"sync"
	"testing"
	"testing/fstest"
)

// A tree is a checkout, or a small one that breaks a rule.
type tree struct {
	fs.FS
	text  map[string]string // of all but pictures, by path
	files []*goFile
	work  []byte // go.work
}

// A goFile is one Go source file. Its path is slash-separated and relative to
// the tree's root, as are all paths here.
type goFile struct {
	path   string
	source []byte
	fset   *token.FileSet
	syntax *ast.File
}

// checkout is the tree of this repository, read once.
var checkout = sync.OnceValues(func() (*tree, error) { return load(os.DirFS("../..")) })

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
		if !slices.Contains([]string{".go", ".md", ".txt", ".tla", ".yml", ".yaml", ".work", ""}, path.Ext(base)) {
			return nil
		}
		source, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		t.text[name] = string(source)
		if name == "go.work" {
			t.work = source
		}
		if path.Ext(base) == ".go" {
			f := &goFile{path: name, source: source, fset: token.NewFileSet()}
			if f.syntax, err = parser.ParseFile(f.fset, name, source, parser.SkipObjectResolution); err != nil {
				return err
			}
			t.files = append(t.files, f)
		}
		return nil
	})
	return t, err
}

// names returns the files of which there is text and whose names end in one of the endings.
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

// A report collects what breaks a rule, in the form "file:line: what".
type report []string

func (r *report) add(file string, line int, format string, args ...any) {
	*r = append(*r, fmt.Sprintf("%s:%d: %s", file, line, fmt.Sprintf(format, args...)))
}

// hold fails the test for each problem that the check finds in the checkout.
func hold(t *testing.T, check func(*tree) report) {
	t.Helper()
	repo, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	if repo.work == nil && os.Getenv("TENURE_REQUIRE_ENGINES") == "" {
		t.Skip("not a checkout: the root module alone, as the go command downloads it, has not the other modules")
	}
	for _, problem := range check(repo) {
		t.Error(problem)
	}
}

// find runs the check on a small tree, because a check that cannot fail says nothing. It must
// report the wanted problems, by the beginning of each, and no others.
func find(t *testing.T, check func(*tree) report, files map[string]string, want ...string) {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	small, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	if got := check(small); !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%q: got %q, want %q", files, got, want)
	}
}

// within reports whether a directory is another one or lies below it. Here "." is the root
// package alone.
func within(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

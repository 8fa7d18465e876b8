// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// rootModule is the path of the root module. The path of every other module is
// this one and the module's directory.
const rootModule = "github.com/tenurelock/tenure"

// A tree is a checkout, or a part of one, as the checks see it.
type tree struct {
	modules []*modFile // by directory; the root's first
	work    *modFile   // go.work, nil if there is none
	files   []*goFile  // by path
}

// A goFile is one Go source file. Its path is slash-separated and relative to
// the tree's root, as are all paths here.
type goFile struct {
	path   string
	source []byte
	fset   *token.FileSet
	syntax *ast.File
}

// load reads the tree. A file that does not parse is an error: a check that
// skips what it cannot read would pass it.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if name != "." && ignoredByGo(base) {
				return fs.SkipDir
			}
			return nil
		}
		switch {
		case base == "go.mod":
			m, err := readModFile(fsys, name)
			if err != nil {
				return err
			}
			t.modules = append(t.modules, m)
		case name == "go.work":
			t.work, err = readModFile(fsys, name)
			return err
		case strings.HasSuffix(base, ".go"):
			f, err := readGoFile(fsys, name)
			if err != nil {
				return err
			}
			t.files = append(t.files, f)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(t.modules, func(a, b *modFile) int { return strings.Compare(a.dir(), b.dir()) })
	return t, nil
}

// ignoredByGo reports whether the pattern ./... leaves out directories of the
// name.
func ignoredByGo(name string) bool {
	return name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

func readGoFile(fsys fs.FS, name string) (*goFile, error) {
	source, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &goFile{path: name, source: source, fset: fset, syntax: syntax}, nil
}

// dir is the directory of the file: "." for the root.
func (f *goFile) dir() string { return path.Dir(f.path) }

// test reports whether only go test compiles the file.
func (f *goFile) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// imports returns the paths that the file imports, each with its line.
func (f *goFile) imports() []located {
	var list []located
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			p = spec.Path.Value // the parser lets nothing else through
		}
		list = append(list, located{text: p, line: f.line(spec.Pos())})
	}
	return list
}

func (f *goFile) line(pos token.Pos) int { return f.fset.Position(pos).Line }

// A located text is a word of a file and its line.
type located struct {
	text string
	line int
}

// A report collects what breaks a rule, in the form "file:line: what".
type report []string

func (r *report) add(file string, line int, format string, args ...any) {
	*r = append(*r, fmt.Sprintf("%s:%d: %s", file, line, fmt.Sprintf(format, args...)))
}

// within reports whether directory dir is top or lies below it. Below "." lie
// the directories of the whole tree, but here "." is the root package alone.
func within(dir, top string) bool {
	return dir == top || strings.HasPrefix(dir, top+"/")
}

// ours returns the directory of a package of this repository, and false for
// the packages of others.
func ours(importPath string) (dir string, ok bool) {
	if importPath == rootModule {
		return ".", true
	}
	return strings.CutPrefix(importPath, rootModule+"/")
}

// standard reports whether the package is in the standard library: the first
// element of all other paths is a host's name, with a dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

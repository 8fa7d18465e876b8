// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
)

// layered are the packages whose files stand in layers: a file uses what those below
// it declare, and no file is below itself. So a stranger can read them one after the
// other, and a change below is a question to everything above, and to nothing else.
var layered = []string{".", "internal/shell", "fence"}

// checkCircles reports files of a layered package that use each other in a circle.
func checkCircles(t *tree) []string {
	var problems []string
	for _, dir := range layered {
		for _, circle := range circles(usesOf(t, dir)) {
			problems = append(problems, fmt.Sprintf("%s: the files use each other in a circle: %s; move what is used to a file below both",
				dir, strings.Join(circle, " ")))
		}
	}
	return problems
}

// usesOf returns which files of a package use what which others of it declare. Tests
// are left out.
func usesOf(t *tree, dir string) map[string][]string {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, f := range t.files {
		if f.dir() != dir || strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		// Once more: the positions of all must be told apart.
		syntax, err := parser.ParseFile(fset, path.Base(f.path), f.source, parser.SkipObjectResolution)
		if err == nil {
			files = append(files, syntax)
		}
	}
	// What other packages declare stays unknown: only the package's own names matter.
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	pkg, _ := config.Check(dir, fset, files, &info)

	uses := map[string]map[string]bool{}
	for id, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() {
			continue
		}
		from, to := fset.Position(id.Pos()).Filename, fset.Position(object.Pos()).Filename
		if uses[from] == nil {
			uses[from] = map[string]bool{}
		}
		uses[from][to] = true
	}
	sorted := map[string][]string{}
	for from, to := range uses {
		sorted[from] = slices.Sorted(maps.Keys(to))
	}
	return sorted
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not looked at") }

// circles returns the groups of more than one that can be reached from each other.
func circles(uses map[string][]string) (found [][]string) {
	reach := map[string]map[string]bool{}
	for from := range uses {
		seen := map[string]bool{}
		for next := slices.Clone(uses[from]); len(next) > 0; {
			to := next[len(next)-1]
			next = next[:len(next)-1]
			if !seen[to] {
				seen[to] = true
				next = append(next, uses[to]...)
			}
		}
		reach[from] = seen
	}
	for _, from := range slices.Sorted(maps.Keys(reach)) {
		circle := []string{from}
		for _, to := range slices.Sorted(maps.Keys(reach[from])) {
			if to != from && reach[to][from] {
				circle = append(circle, to)
			}
		}
		if len(circle) > 1 && slices.Min(circle) == from {
			found = append(found, circle)
		}
	}
	return found
}

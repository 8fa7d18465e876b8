// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"go/ast"
	"slices"
	"strings"
)

// header is what every Go file says about its licence, before its package
// clause, without the comment marks.
var header = [2]string{
	"SPDX-FileCopyrightText: The Tenure Authors",
	"SPDX-License-Identifier: Apache-2.0",
}

// checkHeaders finds the files without the two lines of the header. Other
// comments, such as build constraints, may stand before and after. The header
// must not be part of the package's doc comment, where readers would see it.
func checkHeaders(t *tree) []string {
	var r report
	for _, f := range t.files {
		packageLine := f.line(f.syntax.Package)
		lines := strings.Split(string(f.source), "\n")[:packageLine-1]
		found := false
		for i := range len(lines) - 1 {
			if lines[i] == "// "+header[0] && lines[i+1] == "// "+header[1] {
				found = true
			}
		}
		switch {
		case !found:
			r.add(f.path, 1, "no licence header: want the comment lines %q and %q above the package clause", header[0], header[1])
		case f.syntax.Doc != nil && strings.Contains(f.syntax.Doc.Text(), header[1]):
			r.add(f.path, f.line(f.syntax.Doc.Pos()), "the licence header is part of the package comment: want an empty line below it")
		}
	}
	return r
}

// maxLines is the length above which a file holds more than one concept.
const maxLines = 800

// checkLengths finds the files with too many lines.
func checkLengths(t *tree) []string {
	var r report
	for _, f := range t.files {
		n := bytes.Count(f.source, []byte("\n"))
		if len(f.source) > 0 && f.source[len(f.source)-1] != '\n' {
			n++
		}
		if n > maxLines {
			r.add(f.path, maxLines+1, "%d lines, more than %d: split it by concept", n, maxLines)
		}
	}
	return r
}

// checkSleeps finds tests that sleep in real time: they are slow, and fail on a
// slow machine. In a bubble of testing/synctest a sleep takes no time, so the
// files that make bubbles, or have their package make them, are left alone; and
// chaos tests wait for real processes. Code outside of tests is golangci-lint's
// (forbidigo).
func checkSleeps(t *tree) []string {
	var r report
	makers := bubbleMakers(t)
	for _, f := range t.files {
		if !f.test() || strings.Contains(f.path, "chaos") || bubbles(f) || callsAny(f.syntax, makers[f.dir()]) {
			continue
		}
		for _, use := range uses(f, "time") {
			if use.text == "Sleep" {
				r.add(f.path, use.line, "time.Sleep in a test: use a bubble of testing/synctest, or wait for the event itself")
			}
		}
	}
	return r
}

// bubbles reports whether the file runs tests in bubbles: those of the standard
// library, or those that rapid makes with it (rapid.SyncTest).
func bubbles(f *goFile) bool {
	return slices.ContainsFunc(f.imports(), func(imp located) bool { return imp.text == "testing/synctest" }) ||
		slices.ContainsFunc(uses(f, "pgregory.net/rapid"), func(use located) bool { return use.text == "SyncTest" })
}

// bubbleMakers returns, by folder, the functions of its tests that run a test in a
// bubble: those that get a function and call synctest.Test, and those that get one
// and call one of the first.
func bubbleMakers(t *tree) map[string][]string {
	makers := map[string][]string{}
	for found := true; found; {
		found = false
		for _, f := range t.files {
			for _, d := range f.syntax.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || !f.test() || fn.Recv != nil || fn.Body == nil || !getsFunc(fn) || slices.Contains(makers[f.dir()], fn.Name.Name) {
					continue
				}
				if callsAny(fn.Body, makers[f.dir()]) || slices.ContainsFunc(uses(f, "testing/synctest"), func(use located) bool {
					return use.text == "Test" && f.line(fn.Pos()) <= use.line && use.line <= f.line(fn.End())
				}) {
					makers[f.dir()] = append(makers[f.dir()], fn.Name.Name)
					found = true
				}
			}
		}
	}
	return makers
}

func getsFunc(fn *ast.FuncDecl) bool {
	return slices.ContainsFunc(fn.Type.Params.List, func(p *ast.Field) bool { _, ok := p.Type.(*ast.FuncType); return ok })
}

// callsAny reports whether the code calls one of the functions of its package.
func callsAny(code ast.Node, names []string) (found bool) {
	ast.Inspect(code, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			name, ok := call.Fun.(*ast.Ident)
			found = found || ok && slices.Contains(names, name.Name)
		}
		return !found
	})
	return found
}

// uses returns the names that the file takes from the package, called or not:
// to store time.Now in a variable is to read the clock later. A dot import
// counts as the use of the name ".".
func uses(f *goFile, importPath string) []located {
	var names []string // by which the file knows the package
	var found []located
	for i, imp := range f.imports() {
		if imp.text != importPath {
			continue
		}
		switch name := f.syntax.Imports[i].Name; {
		case name == nil:
			names = append(names, importPath[strings.LastIndex(importPath, "/")+1:])
		case name.Name == ".":
			found = append(found, located{".", imp.line})
		default:
			names = append(names, name.Name)
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok && slices.Contains(names, pkg.Name) {
				found = append(found, located{sel.Sel.Name, f.line(sel.Pos())})
			}
		}
		return true
	})
	return found
}

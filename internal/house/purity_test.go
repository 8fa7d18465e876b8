// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"slices"
	"testing"
)

// pure is the directory of the rules of the protocol as state machines. They
// are functions of state, time and event: the simulator and the model replay
// them, which a clock, a goroutine or a file would make impossible.
const pure = "internal/protocol"

// impure are the packages, with all below them, that bring the outer world in.
var impure = []string{"context", "log", "net", "os", "runtime", "sync", "syscall"}

// readsTime are the names of package time that read the clock or start a timer.
// Durations and given times are values like others. To store time.Now in a variable is to
// read the clock later.
var readsTime = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// checkPurity finds what makes the pure core depend on more than its arguments.
// Its tests may do as they like.
func checkPurity(t *tree) (r report) {
	for _, f := range t.files {
		if f.test() || !within(f.dir(), pure) {
			continue
		}
		for line, imp := range f.imports {
			if slices.ContainsFunc(impure, func(p string) bool { return within(imp, p) }) {
				r.add(f.path, line, "import of %s in the pure core: let the caller do it, as an action", imp)
			}
		}
		for _, spec := range f.syntax.Imports {
			if spec.Name != nil && spec.Path.Value == `"time"` {
				r.add(f.path, f.line(spec.Pos()), "time has another name in the pure core: that hides what reads the clock")
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				r.add(f.path, f.line(n.Pos()), "go statement in the pure core: the shell owns all goroutines")
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(readsTime, n.Sel.Name) {
					r.add(f.path, f.line(n.Pos()), "time.%s in the pure core: take now as an argument", n.Sel.Name)
				}
			}
			return true
		})
	}
	return r
}

func TestPurity(t *testing.T) {
	hold(t, checkPurity)
	find(t, checkPurity, map[string]string{
		pure + "/a.go":      "package x\nimport \"time\"\nvar d time.Duration",
		pure + "/a_test.go": "package x\nimport \"os\"",
		pure + "/b.go":      "package x\nimport \"time\"\nvar now = time.Now",
		pure + "/c/c.go":    "package x\nimport \"os/signal\"",
		pure + "/d.go":      "package x\nimport now \"time\"",
		pure + "/e.go":      "package x\nfunc f() { go f() }",
		"x.go":              "package x\nimport \"os\"",
	}, pure+"/b.go:3: time.Now", pure+"/c/c.go:2: import of os/signal", pure+"/d.go:2: time has", pure+"/e.go:2: go")
}

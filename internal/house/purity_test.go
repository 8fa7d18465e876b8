// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"slices"
)

// pure is the directory of the rules of the protocol as state machines. They
// are functions of state, time and event: the simulator and the model replay
// them, which a clock, a goroutine or a file would make impossible.
const pure = "internal/protocol"

// impure are the packages, with all below them, that bring the outer world in.
var impure = []string{"context", "log", "net", "os", "runtime", "sync", "syscall"}

// readsTime are the names of package time that read the clock or start a timer.
// Durations and given times are values like others.
var readsTime = []string{
	"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until",
}

// checkPurity finds what makes the pure core depend on more than its arguments.
// Its tests may do as they like.
func checkPurity(t *tree) []string {
	var r report
	for _, f := range t.files {
		if f.test() || !within(f.dir(), pure) {
			continue
		}
		for _, imp := range f.imports() {
			if slices.ContainsFunc(impure, func(p string) bool { return within(imp.text, p) }) {
				r.add(f.path, imp.line, "import of %s in the pure core: let the caller do it, as an action", imp.text)
			}
		}
		for _, use := range uses(f, "time") {
			switch {
			case use.text == ".":
				r.add(f.path, use.line, "dot import of time in the pure core: it hides who reads the clock")
			case slices.Contains(readsTime, use.text):
				r.add(f.path, use.line, "time.%s in the pure core: take now as an argument", use.text)
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				r.add(f.path, f.line(g.Pos()), "go statement in the pure core: the shell owns all goroutines")
			}
			return true
		})
	}
	return r
}

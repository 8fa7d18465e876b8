// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// derivedNames is where all stands that is put behind a name to make that of another lock,
// so that no two kinds of lock share one, and so that rights cover each.
const derivedNames = "internal/text/derived.go"

// derives matches a text that makes such a name.
var derives = regexp.MustCompile(`^(%[sv])?:[a-z][a-z-]+(/.*)?$`)

// otherColons are the directories and files in which such texts are words of an engine.
var otherColons = []string{"dynamostore", "zkstore", "cmd/internal/doctor", "cmd/internal/cli/policydynamodb.go"}

// checkNames finds what makes names of locks elsewhere. Tests may write what they expect.
func checkNames(t *tree) []string {
	var r report
	for _, f := range t.files {
		if f.test() || f.path == derivedNames || slices.ContainsFunc(otherColons, func(top string) bool { return within(f.path, top) }) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if s, err := strconv.Unquote(lit.Value); err == nil && derives.MatchString(s) {
				r.add(f.path, f.line(lit.Pos()), "%q makes the name of a lock: put it into %s, where it is seen that no other kind has it", s, derivedNames)
			}
			return true
		})
	}
	return r
}

// checkTypeNames finds formats with the name of a type of Go, which tells a user nothing: an
// error says what was wrong, which rule it broke, and what to do. The programs of evidence
// have it for those who read their tables.
func checkTypeNames(t *tree) []string {
	var r report
	for _, f := range t.files {
		if f.test() || within(f.path, "evidence") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && typeName.MatchString(lit.Value) {
				r.add(f.path, f.line(lit.Pos()), "%%T names a type of Go: say what the value is to the user")
			}
			return true
		})
	}
	return r
}

var typeName = regexp.MustCompile(`(^|[^%])(%%)*%[-+# 0-9.]*T`)

func TestTypeNames(t *testing.T) {
	file := func(path, text string) map[string]string {
		return map[string]string{path: spdx + "package tasks\n\nvar err = fmt.Errorf(" + text + ", x)\n"}
	}
	testCheck(t, checkTypeNames, []badTree{
		{"a type", file("tasks/x.go", `"x is %T"`), []string{"tasks/x.go:6: "}},
		{"with a flag", file("tasks/x.go", `"100%%%-10T"`), []string{"tasks/x.go:6: "}},
		{"other texts", file("tasks/x.go", `"%t %%T 100%, T"`), nil},
		{"a test", file("tasks/x_test.go", `"%T"`), nil},
		{"evidence", file("evidence/peers/x.go", `"%T"`), nil},
	})
}

func TestNames(t *testing.T) {
	file := func(literal string) map[string]string {
		return map[string]string{"tasks/x.go": spdx + "package tasks\n\nfunc name(s string) string { return s + " + literal + " }\n"}
	}
	const there = "tasks/x.go:6: "
	testCheck(t, checkNames, []badTree{
		{"a suffix", file(`":line"`), []string{there}},
		{"an infix", file(`":slot/" + s`), []string{there}},
		{"a format", file(`fmt.Sprintf("%s:slot/%d", s, 1)`), []string{there}},
		{"a raw string", file("`:gate-line`"), []string{there}},
		{"other texts", file(`": no lock" + ":" + "://" + ":8080" + "a:b" + ": "`), nil},
		{"the list", map[string]string{derivedNames: spdx + "package text\n\nconst Suffix = \":line\"\n"}, nil},
		{"a test", map[string]string{"tasks/x_test.go": spdx + "package tasks\n\nconst name = \"x\" + \":line\"\n"}, nil},
		{"an engine's word", map[string]string{"dynamostore/x.go": spdx + "package dynamostore\n\nconst value = \":line\"\n"}, nil},
	})
}

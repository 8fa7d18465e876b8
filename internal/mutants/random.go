// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The packages whose code is changed at random, and the tests that should find it.
var randomly = map[string]string{
	"internal/protocol": "ulimit -v 8000000; go test -failfast -timeout 15m ./internal/protocol ./internal/sim",
	"rwlock":            "ulimit -v 8000000; go test -short -failfast -timeout 5m ./rwlock",
	"once":              "ulimit -v 8000000; go test -short -failfast -timeout 5m ./once",
	"semaphore":         "ulimit -v 8000000; go test -short -failfast -timeout 5m ./semaphore",
}

// random returns n changes of a package's code, which a seed has chosen. Some do not compile,
// and some change nothing that matters: the reader of the list of survivors judges.
func random(folder string, n int, seed uint64) ([]*mutant, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []*mutant
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files := token.NewFileSet()
		tree, err := parser.ParseFile(files, path, source, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			for _, c := range changes(n) {
				from, to := files.Position(c.at.Pos()), files.Position(c.at.End())
				text := c.text(string(source[from.Offset:to.Offset]))
				all = append(all, &mutant{
					name:   fmt.Sprintf("%s:%d", path, from.Line),
					rule:   fmt.Sprintf("%s: %s", c.what, strings.Join(strings.Fields(text), " ")),
					finds:  []find{{command: randomly[folder]}},
					source: map[string]string{path: string(source[:from.Offset]) + text + string(source[to.Offset:])},
				})
			}
			return true
		})
	}
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))], nil
}

// change is what an operator makes of a node.
type change struct {
	at   ast.Node
	what string
	text func(was string) string
}

// changes are what the operators make of a node.
func changes(n ast.Node) (list []change) {
	to := func(at ast.Node, what, before, after string) {
		list = append(list, change{at, what, func(was string) string { return before + was + after }})
	}
	switch n := n.(type) {
	case *ast.IfStmt:
		if b, ok := n.Cond.(*ast.BinaryExpr); ok && isErr(b) {
			to(n.Cond, "error ignored", "false && (", ")")
			return list
		}
		to(n.Cond, "condition negated", "!(", ")")
	case *ast.BlockStmt:
		for _, s := range n.List {
			switch s := s.(type) {
			case *ast.ExprStmt, *ast.IncDecStmt, *ast.AssignStmt:
				if a, ok := s.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
					continue
				}
				list = append(list, change{s, "statement dropped", func(was string) string { return "/* " + was + " */" }})
			}
		}
	case *ast.BinaryExpr:
		swap := map[token.Token]token.Token{
			token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
			token.ADD: token.SUB, token.SUB: token.ADD, token.LAND: token.LOR, token.LOR: token.LAND,
		}
		if other, ok := swap[n.Op]; ok {
			at := int(n.OpPos - n.Pos())
			list = append(list, change{n, n.Op.String() + " for " + other.String(), func(was string) string {
				return was[:at] + other.String() + was[at+len(n.Op.String()):]
			}})
		}
	case *ast.BasicLit:
		if v, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT {
			list = append(list, change{n, "off by one", func(string) string { return strconv.Itoa(v + 1) }})
		}
	case *ast.CallExpr:
		for i := range len(n.Args) - 1 {
			a, b := n.Args[i], n.Args[i+1]
			from, until := int(a.Pos()-n.Pos()), int(b.End()-n.Pos())
			endA, beginB := int(a.End()-n.Pos()), int(b.Pos()-n.Pos())
			list = append(list, change{n, "arguments swapped", func(was string) string {
				return was[:from] + was[beginB:until] + was[endA:beginB] + was[from:endA] + was[until:]
			}})
		}
	}
	return list
}

// isErr says that a condition is err != nil.
func isErr(b *ast.BinaryExpr) bool {
	x, ok := b.X.(*ast.Ident)
	return ok && x.Name == "err" && b.Op == token.NEQ
}

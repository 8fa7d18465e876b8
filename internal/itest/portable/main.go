// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command portable checks that packages of this checkout, and their tests, compile for other
// systems. It checks types alone, from source, and leaves out what other modules have in
// their functions: a compiler would take a hundred times as long for these.
//
//	portable -os darwin,windows ./... ./cmd/...
//
// It prints the errors and exits with 1 if there are any.
package main

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	systems := flag.String("os", "darwin,windows", "the systems, by GOOS, separated by commas")
	flag.Parse()
	root, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	failed := false
	for system := range strings.SplitSeq(*systems, ",") {
		ok, err := check(context.Background(), os.Stderr, root, system, flag.Args())
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", system, err)
		}
		failed = failed || !ok
	}
	if failed {
		os.Exit(1)
	}
}

// check prints what does not compile on a system, of the packages below root that the
// patterns match, and says whether all does.
func check(ctx context.Context, out io.Writer, root, system string, patterns []string) (ok bool, err error) {
	ours := func(file string) bool { return strings.HasPrefix(file, root+string(filepath.Separator)) }
	config := &packages.Config{
		Context: ctx, Dir: root, Tests: true,
		Env: append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0"),
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes,
		ParseFile: func(set *token.FileSet, name string, src []byte) (*ast.File, error) {
			file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
			if file == nil || ours(name) {
				return file, err
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					f.Body = nil
				}
			}
			return file, err
		},
	}
	loaded, err := packages.Load(config, patterns...)
	if err != nil {
		return false, err
	}
	checked, said := 0, map[string]bool{}
	packages.Visit(loaded, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			// Without their functions other modules have imports that are not used.
			file, _, _ := strings.Cut(e.Pos, ":")
			if text := fmt.Sprintf("%s: %v", system, e); !said[text] && (ours(file) || e.Kind == packages.ListError) {
				said[text] = true
				_, _ = fmt.Fprintln(out, text)
			}
		}
		if len(p.CompiledGoFiles) > 0 && ours(p.CompiledGoFiles[0]) {
			checked++
		}
	})
	if checked == 0 {
		return false, fmt.Errorf("no package below %s matches %q", root, patterns)
	}
	return len(said) == 0, nil
}

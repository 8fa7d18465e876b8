// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

// checkout is the tree of this repository, read once.
var checkout = sync.OnceValues(func() (*tree, error) { return load(os.DirFS("../..")) })

// TestCheckout holds the repository to each rule.
func TestCheckout(t *testing.T) {
	repo, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	if repo.work == nil && os.Getenv("TENURE_REQUIRE_ENGINES") == "" {
		t.Skip("not a checkout: the root module alone, as the go command downloads it, has neither go.work nor the other modules")
	}
	for _, rule := range []struct {
		name  string
		check func(*tree) []string
	}{
		{"imports", checkImports},
		{"modules", checkModules},
		{"headers", checkHeaders},
		{"lengths", checkLengths},
		{"purity", checkPurity},
		{"sleeps", checkSleeps},
		{"circles", checkCircles},
		{"names", checkNames},
		{"names of types", checkTypeNames},
	} {
		t.Run(rule.name, func(t *testing.T) {
			for _, problem := range rule.check(repo) {
				t.Error(problem)
			}
		})
	}
}

// TestCheckoutIsRead fails when the walk misses what the rules are about; then
// they would all pass.
func TestCheckoutIsRead(t *testing.T) {
	repo, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{".", "driver", "internal/house", pure} {
		if !slices.ContainsFunc(repo.files, func(f *goFile) bool { return f.dir() == dir }) {
			t.Errorf("no Go file seen in %s", dir)
		}
	}
}

// A bad tree is a good one with some files changed; an empty text removes the
// file. The check must report the wanted problems, in this order and no others.
type badTree struct {
	name  string
	files map[string]string
	want  []string // the beginning of each problem
}

func testCheck(t *testing.T, check func(*tree) []string, bad []badTree) {
	t.Helper()
	t.Run("good tree", func(t *testing.T) { compare(t, check, badTree{}) })
	for _, b := range bad {
		t.Run(b.name, func(t *testing.T) { compare(t, check, b) })
	}
}

func compare(t *testing.T, check func(*tree) []string, b badTree) {
	t.Helper()
	files := goodTree()
	maps.Copy(files, b.files)
	fsys := make(fstest.MapFS)
	for name, text := range files {
		if text != "" {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	repo, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	got := check(repo)
	if !slices.EqualFunc(got, b.want, strings.HasPrefix) {
		t.Errorf("got:\n\t%s\nwant lines that begin with:\n\t%s",
			strings.Join(got, "\n\t"), strings.Join(b.want, "\n\t"))
	}
}

// spdx is the head of a good file.
const spdx = "// SPDX-FileCopyrightText: The Tenure Authors\n// SPDX-License-Identifier: Apache-2.0\n\n"

// goFileOf returns a good file that imports the packages.
func goFileOf(name string, imports ...string) string {
	text := spdx + "package " + name + "\n"
	for _, p := range imports {
		text += "\nimport _ \"" + p + "\""
	}
	return text + "\n"
}

// goodTree is a small repository that keeps all rules, and comes close to the
// border of some.
func goodTree() map[string]string {
	return map[string]string{
		"go.mod": "module github.com/tenurelock/tenure\n\ngo 1.26.0\n",
		"go.work": `go 1.26.0

use (
	.
	./cmd // the command
	./internal/itest
	./sqlitestore
)

replace (
	github.com/tenurelock/tenure v0.1.0 => ./
	github.com/tenurelock/tenure/sqlitestore v0.1.0 => ./sqlitestore
)
`,
		"cmd/go.mod": `module github.com/tenurelock/tenure/cmd

go 1.26.0

require (
	example.com/other v1.2.3
	github.com/tenurelock/tenure v0.1.0
	github.com/tenurelock/tenure/sqlitestore v0.1.0
)

require example.com/more v0.0.1 // indirect
`,
		"internal/itest/go.mod": "module github.com/tenurelock/tenure/internal/itest\n\ngo 1.26.0\n\nrequire github.com/tenurelock/tenure v0.1.0\n",
		"sqlitestore/go.mod":    "module github.com/tenurelock/tenure/sqlitestore\n\ngo 1.26.0\n\nrequire github.com/tenurelock/tenure v0.1.0\n",

		"client.go":       goFileOf("tenure", "context", rootModule+"/driver", rootModule+"/internal/protocol"),
		"example_test.go": goFileOf("tenure_test", rootModule, rootModule+"/memstore", "testing"),
		"driver/store.go": "//go:build linux || !linux\n\n" + spdx + "// Package driver has a comment.\npackage driver\n\nimport _ \"errors\"\n",
		"internal/protocol/holder.go": spdx + `package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

type holder struct {
	record  driver.Record
	grantAt time.Time
	wait    time.Duration
}

func (h holder) age(now time.Time) time.Duration { return now.Sub(h.grantAt) }
`,
		"internal/protocol/holder_test.go": spdx + `package protocol

import (
	"os"
	"time"
)

var start = time.Now()

func init() { go os.Getpid() }
`,
		"internal/itest/protocol_test.go": goFileOf("itest", "example.com/check", rootModule+"/internal/protocol"),
		"memstore/memstore.go":            goFileOf("memstore", "sync", rootModule+"/driver"),
		"memstore/memstore_test.go":       goFileOf("memstore", rootModule+"/drivertest", rootModule+"/memstore"),
		"drivertest/run.go":               goFileOf("drivertest", "testing", rootModule+"/driver"),
		"sqlitestore/store.go":            goFileOf("sqlitestore", "example.com/engine", rootModule+"/driver", rootModule+"/sqlitestore/internal/schema"),
		"sqlitestore/store_test.go":       goFileOf("sqlitestore", rootModule+"/drivertest"),
		"tasks/tasks.go":                  goFileOf("tasks", rootModule),
		"cmd/tenure/main.go":              goFileOf("main", "example.com/flags", rootModule+"/sqlitestore", rootModule+"/cmd/internal/cli", rootModule+"/internal/clock"),

		// Not compiled, so free.
		"driver/testdata/x.go": "package x\nimport _ \"github.com/tenurelock/tenure/cmd\"\n",
		".bin/x.go":            "no Go at all",
		"_old/x.go":            "no Go at all",
	}
}

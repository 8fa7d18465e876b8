// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestImports(t *testing.T) {
	// one makes a tree that is bad by the imports of one file.
	one := func(name, file string, imports []string, want ...string) badTree {
		return badTree{name, map[string]string{file: goFileOf("x", imports...)}, want}
	}
	const m = rootModule
	testCheck(t, checkImports, []badTree{
		one("driver imports ours", "driver/x.go", []string{"io", m + "/internal/clock"},
			"driver/x.go:7: driver must not import github.com/tenurelock/tenure/internal/clock: see"),
		one("driver imports the root", "driver/x.go", []string{m}, "driver/x.go:6: driver must not import github.com/tenurelock/tenure:"),
		one("protocol imports a store", "internal/protocol/x.go", []string{m + "/memstore"}, "internal/protocol/x.go:6:"),
		one("protocol imports the clock", "internal/protocol/sub/x.go", []string{m + "/internal/clock"}, "internal/protocol/sub/x.go:6:"),
		one("clock imports ours", "internal/clock/x.go", []string{m + "/driver"}, "internal/clock/x.go:6:"),
		one("root imports a store", "x.go", []string{m + "/memstore"}, "x.go:6: . must not import"),
		one("root imports another module of ours", "x.go", []string{m + "/sqlitestore"}, "x.go:6:"),
		one("root imports a third party", "x.go", []string{"golang.org/x/sys/unix"},
			"x.go:6: . must not import golang.org/x/sys/unix: the root module imports the standard library alone"),
		one("root's test imports a third party", "x_test.go", []string{"example.com/cmp"}, "x_test.go:6: . must not import example.com/cmp:"),
		one("root's test imports another module of ours", "x_test.go", []string{m + "/sqlitestore"}, "x_test.go:6:"),
		one("a namesake is a third party", "x.go", []string{m + "fork/driver"}, "x.go:6: . must not import github.com/tenurelock/tenurefork/driver: the root module"),
		one("reference store imports the suite", "memstore/x.go", []string{m + "/drivertest"}, "memstore/x.go:6:"),
		one("reference store imports the root", "memstore/x.go", []string{m}, "memstore/x.go:6:"),
		one("faults import a store", "faultstore/x.go", []string{m + "/memstore"}, "faultstore/x.go:6:"),
		one("suite imports a third party", "drivertest/x.go", []string{"example.com/check"}, "drivertest/x.go:6:"),
		one("suite imports the root", "drivertest/x.go", []string{m}, "drivertest/x.go:6:"),
		one("store imports the root", "sqlitestore/x.go", []string{m}, "sqlitestore/x.go:6:"),
		one("store imports internals", "sqlitestore/x.go", []string{m + "/internal/clock"}, "sqlitestore/x.go:6:"),
		one("store's test imports internals", "sqlitestore/x_test.go", []string{m + "/internal/clock"}, "sqlitestore/x_test.go:6: sqlitestore must not import github.com/tenurelock/tenure/internal/clock: not even"),
		one("store imports a store", "pgstore/x.go", []string{m + "/sqlitestore"}, "pgstore/x.go:6:"),
		one("tasks import the contract", "tasks/x.go", []string{m + "/driver"}, "tasks/x.go:6:"),
		one("fence imports internals", "fence/x.go", []string{m + "/internal/protocol"}, "fence/x.go:6:"),
		one("semaphore imports internals", "semaphore/x.go", []string{m + "/internal/protocol"}, "semaphore/x.go:6:"),
		one("shard's test imports internals", "shard/x_test.go", []string{m + "/internal/protocol"}, "shard/x_test.go:6:"),
		one("a command is imported", "internal/itest/x.go", []string{m + "/cmd/internal/cli"},
			"internal/itest/x.go:6: internal/itest must not import github.com/tenurelock/tenure/cmd/internal/cli: nothing imports it"),
		one("a test module is imported", "cmd/tenure/x_test.go", []string{m + "/internal/itest"}, "cmd/tenure/x_test.go:6:"),
		one("evidence is imported", "cmd/tenure/x.go", []string{m + "/evidence/bed/machine"}, "cmd/tenure/x.go:6: cmd/tenure must not import github.com/tenurelock/tenure/evidence/bed/machine: nothing imports it"),
		one("evidence is imported by a test", "internal/itest/x_test.go", []string{m + "/evidence/peers"}, "internal/itest/x_test.go:6:"),
		one("evidence imports a command", "evidence/bench/x.go", []string{m + "/cmd/internal/cli"}, "evidence/bench/x.go:6:"),
		one("the bed imports those who stand on it", "evidence/bed/proc/x.go", []string{m + "/evidence/peers"}, "evidence/bed/proc/x.go:6:"),
		one("one program of the evidence imports another", "evidence/bench/x.go", []string{m + "/evidence/crowd"}, "evidence/bench/x.go:6:"),
		one("evidence without a zone", "evidence/x/x.go", nil, "evidence/x/x.go:1: no rule says what evidence/x may import"),
		one("evidence imports all else", "evidence/bench/x.go", []string{m, m + "/driver", m + "/internal/clock", "example.com/x", m + "/evidence/peers"}),
		one("a package without a zone", "util/x.go", nil, "util/x.go:1: no rule says what util may import"),
		one("import of a package without a zone", "cmd/tenure/x.go", []string{m + "/util"}, "cmd/tenure/x.go:6:"),
		{
			"build constraints hide nothing",
			map[string]string{"driver/x_plan9.go": "//go:build ignore\n\n" + goFileOf("driver", m)},
			[]string{"driver/x_plan9.go:8:"},
		},
		{
			"nor do names",
			map[string]string{"driver/x.go": spdx + "package driver\n\nimport (\n\t. \"errors\"\n\tunreal `" + m + "`\n)\n"},
			[]string{"driver/x.go:8:"},
		},
	})
}

func TestModules(t *testing.T) {
	good := goodTree()
	// edit makes a tree in which one text of a file is another.
	edit := func(name, file, old, text string, want ...string) badTree {
		if !strings.Contains(good[file], old) {
			t.Fatalf("%s: no %q in %s", name, old, file)
		}
		return badTree{name, map[string]string{file: strings.ReplaceAll(good[file], old, text)}, want}
	}
	engine := func(name, use, require string, want ...string) badTree {
		files := map[string]string{
			"k8sstore/internal/apiserver/go.mod": "module github.com/tenurelock/tenure/k8sstore/internal/apiserver\n\ngo 1.26.0\n\n" +
				"require " + require + "\n\nreplace example.com/x => example.com/x v1.0.0\n",
			"go.work": strings.Replace(good["go.work"], "\t./sqlitestore\n", "\t./sqlitestore\n"+use, 1),
		}
		return badTree{name, files, want}
	}
	testCheck(t, checkModules, []badTree{
		engine("an engine", "", "example.com/x v1.0.0"),
		engine("an engine in the workspace", "\t./k8sstore/internal/apiserver\n", "example.com/x v1.0.0", "go.work:1: uses k8sstore/internal/apiserver, which stands apart"),
		engine("an engine requires ours", "", "github.com/tenurelock/tenure v0.1.0", "k8sstore/internal/apiserver/go.mod:5: requires github.com/tenurelock/tenure, and stands apart"),
		edit("root requires", "go.mod", "go 1.26.0", "go 1.26.0\n\nrequire example.com/x v1.0.0", "go.mod:5: the root module has a require line"),
		edit("root requires in a block", "go.mod", "go 1.26.0", "go 1.26.0\n\nrequire (\n\texample.com/x v1.0.0\n)", "go.mod:6: the root module has a require line"),
		edit("root replaces", "go.mod", "go 1.26.0", "go 1.26.0\nreplace example.com/x => ../x", "go.mod:4: the root module has a replace line"),
		edit("root picks a toolchain", "go.mod", "go 1.26.0", "go 1.26.0\ntoolchain go1.26.8", "go.mod:4: the root module has a toolchain line"),
		edit("root has another go line", "go.mod", "1.26.0", "1.26.1", "go.work:1: go 1.26.0, but", "cmd/go.mod:1:", "internal/itest/go.mod:1:", "sqlitestore/go.mod:1:"),
		edit("a module has another go line", "cmd/go.mod", "go 1.26.0", "go 1.25.0", "cmd/go.mod:1: go 1.25.0, but the root module has go 1.26.0"),
		edit("the workspace has another go line", "go.work", "go 1.26.0", "go 1.27.0", "go.work:1: go 1.27.0, but"),
		edit("a module replaces", "cmd/go.mod", "require (", "replace github.com/tenurelock/tenure => ../\n\nrequire (", "cmd/go.mod:5: a replace line; it belongs into go.work"),
		edit("a module has a strange path", "sqlitestore/go.mod", "module github.com/tenurelock/tenure/sqlitestore", "module github.com/tenurelock/sqlitestore",
			"sqlitestore/go.mod:1: module github.com/tenurelock/sqlitestore; in this directory it must be github.com/tenurelock/tenure/sqlitestore"),
		edit("siblings at two versions", "sqlitestore/go.mod", "v0.1.0", "v0.2.0",
			"sqlitestore/go.mod:5: requires github.com/tenurelock/tenure v0.2.0, while siblings are required at v0.1.0",
			"go.work:1: no replace line for github.com/tenurelock/tenure v0.2.0"),
		edit("a sibling is not replaced", "go.work", "\tgithub.com/tenurelock/tenure v0.1.0 => ./\n", "",
			"go.work:1: no replace line for github.com/tenurelock/tenure v0.1.0"),
		edit("replaced at another version", "go.work", "sqlitestore v0.1.0", "sqlitestore v0.0.9",
			"go.work:12: replaces github.com/tenurelock/tenure/sqlitestore v0.0.9, which no module requires",
			"go.work:1: no replace line for github.com/tenurelock/tenure/sqlitestore v0.1.0"),
		edit("replaced at any version", "go.work", "sqlitestore v0.1.0 =>", "sqlitestore =>",
			"go.work:12: replace github.com/tenurelock/tenure/sqlitestore => ./sqlitestore: want the form",
			"go.work:1: no replace line for github.com/tenurelock/tenure/sqlitestore v0.1.0"),
		edit("replaced by another directory", "go.work", "=> ./sqlitestore", "=> ./cmd",
			"go.work:12: replaces github.com/tenurelock/tenure/sqlitestore by ./cmd; it is in ./sqlitestore"),
		edit("a stranger is replaced", "go.work", "=> ./sqlitestore", "=> ./sqlitestore\n\texample.com/x v1.0.0 => ../x",
			"go.work:13: replaces example.com/x, which is not ours"),
		edit("a module is not used", "go.work", "\t./sqlitestore\n)", ")", "go.work:1: no use line for the module in sqlitestore"),
		edit("a missing module is used", "go.work", "\t./cmd", "\t./cmd\n\t./pgstore", "go.work:1: uses pgstore, where there is no go.mod"),
		{"no workspace", map[string]string{"go.work": ""}, []string{"go.work:1: the workspace file is missing"}},
		{"no root module", map[string]string{"go.mod": ""}, []string{"go.mod:1: the root module is missing"}},
	})
}

func TestHeaders(t *testing.T) {
	first, second, _ := strings.Cut(strings.TrimSpace(spdx), "\n")
	one := func(name, text string, want ...string) badTree {
		return badTree{name, map[string]string{"driver/x.go": text}, want}
	}
	const missing, inDoc = "driver/x.go:1: no licence header", "driver/x.go:1: the licence header is part of the package comment"
	testCheck(t, checkHeaders, []badTree{
		one("none", "package driver\n", missing),
		one("half", first+"\n\npackage driver\n", missing),
		one("other half", second+"\n\npackage driver\n", missing),
		one("turned round", second+"\n"+first+"\n\npackage driver\n", missing),
		one("below the package clause", "package driver\n\n"+spdx, missing),
		one("other licence", strings.Replace(spdx, "Apache-2.0", "MIT", 1)+"package driver\n", missing),
		one("more on the line", strings.Replace(spdx, "Authors", "Authors and others", 1)+"package driver\n", missing),
		one("in the package comment", strings.TrimSpace(spdx)+"\npackage driver\n", inDoc),
		one("in the package comment, with more", strings.TrimSpace(spdx)+"\n// Package driver.\npackage driver\n", inDoc),
		one("after a build constraint", "//go:build linux\n\n"+spdx+"package driver\n"),
		one("before a build constraint", spdx+"//go:build linux\n\npackage driver\n"),
		one("after a generator's line", "// Code generated by x. DO NOT EDIT.\n\n"+spdx+"package driver\n"),
	})
}

func TestLengths(t *testing.T) {
	// Five lines and n more.
	long := func(n int) map[string]string {
		return map[string]string{"driver/x.go": goFileOf("driver") + strings.Repeat("\n", n)}
	}
	testCheck(t, checkLengths, []badTree{
		{"as long as may be", long(maxLines - 5), nil},
		{"too long", long(maxLines - 4), []string{"driver/x.go:801: 801 lines, more than 800"}},
		{
			"too long without a last line end",
			map[string]string{"driver/x.go": goFileOf("driver") + strings.Repeat("\n", maxLines-5) + "//"},
			[]string{"driver/x.go:801: 801 lines"},
		},
	})
}

func TestPurity(t *testing.T) {
	const name = "internal/protocol/x.go"
	one := func(what, imports, body string, want ...string) badTree {
		text := spdx + "package protocol\n\nimport " + imports + "\n\n" + body + "\n"
		return badTree{what, map[string]string{name: text}, want}
	}
	testCheck(t, checkPurity, []badTree{
		one("go statement", `"errors"`, "func f() {\n\tfunc() { go f() }()\n}", name+":9: go statement"),
		one("time.Now", `"time"`, "var start = time.Now()", name+":8: time.Now in the pure core"),
		one("time.Now, not called", `"time"`, "var now = time.Now", name+":8: time.Now"),
		one("time.Since", `"time"`, "func f(t time.Time) time.Duration { return time.Since(t) }", name+":8: time.Since"),
		one("time.Until", `"time"`, "func f(t time.Time) time.Duration { return time.Until(t) }", name+":8: time.Until"),
		one("time.After", `"time"`, "var c = time.After(1)", name+":8: time.After"),
		one("time.NewTimer", `"time"`, "var c = time.NewTimer(1)", name+":8: time.NewTimer"),
		one("time.AfterFunc", `"time"`, "var c = time.AfterFunc(1, nil)", name+":8: time.AfterFunc"),
		one("time.NewTicker", `"time"`, "var c = time.NewTicker(1)", name+":8: time.NewTicker"),
		one("time.Tick", `"time"`, "var c = time.Tick(1)", name+":8: time.Tick"),
		one("time.Sleep", `"time"`, "func f() { time.Sleep(1) }", name+":8: time.Sleep"),
		one("another name for time", `clock "time"`, "var start = clock.Now()", name+":8: time.Now"),
		one("no name for time", `. "time"`, "var start = Now()", name+":6: dot import of time"),
		one("os", `"os"`, "", name+":6: import of os in"),
		one("below os", `"os/signal"`, "", name+":6: import of os/signal in"),
		one("net", `"net"`, "", name+":6: import of net in"),
		one("net/http", `"net/http"`, "", name+":6: import of net/http in"),
		one("sync", `"sync"`, "", name+":6: import of sync in"),
		one("sync/atomic", `_ "sync/atomic"`, "", name+":6: import of sync/atomic in"),
		one("context", `"context"`, "", name+":6: import of context in"),
		one("runtime", `"runtime"`, "", name+":6: import of runtime in"),
		one("syscall", `"syscall"`, "", name+":6: import of syscall in"),
		one("log/slog", `"log/slog"`, "", name+":6: import of log/slog in"),
		one("another Now", `"example.com/time2"`, "var start = time2.Now()"),
		{
			"a package below",
			map[string]string{"internal/protocol/sub/x.go": goFileOf("sub", "sync")},
			[]string{"internal/protocol/sub/x.go:6: import of sync"},
		},
		{"a neighbour", map[string]string{"internal/protocols/x.go": goFileOf("sub", "sync")}, nil},
	})
}

func TestSleeps(t *testing.T) {
	sleep := "func f() { time.Sleep(1) }\n"
	const imports = "package tenure\n\nimport \"time\"\n\n"
	testCheck(t, checkSleeps, []badTree{
		{"in a test", map[string]string{"x_test.go": spdx + imports + sleep}, []string{"x_test.go:8: time.Sleep in a test"}},
		{"in a bubble", map[string]string{"x_test.go": spdx + "package tenure\n\nimport \"testing/synctest\"\n\nimport \"time\"\n\n" + sleep}, nil},
		{
			"in a bubble that another file makes",
			map[string]string{
				"x_test.go":     spdx + imports + "func TestX() { run(1, func() { time.Sleep(1) }) }\n",
				"maker_test.go": spdx + "package tenure\n\nimport \"testing/synctest\"\n\nfunc run(n int, f func()) { in(f) }\n\nfunc in(f func()) { synctest.Test(nil, f) }\n",
			},
			nil,
		},
		{
			"in a function that makes no bubble, or in one that runs a bubble of its own",
			map[string]string{
				"x_test.go":     spdx + imports + "func TestX() { run(1, func() { time.Sleep(1) }); own() }\n",
				"maker_test.go": spdx + "package tenure\n\nimport \"testing/synctest\"\n\nfunc run(n int, f func()) { f() }\n\nfunc own() { synctest.Test(nil, nil) }\n",
			},
			[]string{"x_test.go:8: time.Sleep in a test"},
		},
		{
			"in a bubble of rapid",
			map[string]string{"internal/itest/x_test.go": spdx + "package tenure\n\nimport \"pgregory.net/rapid\"\n\nimport \"time\"\n\nvar _ = rapid.SyncTest\n" + sleep},
			nil,
		},
		{
			"under rapid, in no bubble",
			map[string]string{"internal/itest/x_test.go": spdx + "package tenure\n\nimport \"pgregory.net/rapid\"\n\nimport \"time\"\n\nvar _ = rapid.Check\n" + sleep},
			[]string{"internal/itest/x_test.go:11:"},
		},
		{"among real processes", map[string]string{"evidence/chaos/x_test.go": spdx + imports + sleep}, nil},
		{"outside of tests", map[string]string{"x.go": spdx + imports + sleep}, nil},
	})
}

func TestCircles(t *testing.T) {
	testCheck(t, checkCircles, []badTree{
		{
			name: "a type and its method use each other's files",
			files: map[string]string{
				"a.go": spdx + "package tenure\n\nimport \"time\"\n\ntype A struct{ at time.Time }\n\nfunc (a A) F() { a.G() }\n",
				"b.go": spdx + "package tenure\n\nfunc (a A) G() {}\n",
			},
			want: []string{".: the files use each other in a circle: a.go b.go"},
		},
		{
			name: "a circle of three, through a field",
			files: map[string]string{
				"a.go": spdx + "package tenure\n\ntype A struct{ b B }\n",
				"b.go": spdx + "package tenure\n\ntype B struct{ f func() }\n\nvar c = n\n",
				"c.go": spdx + "package tenure\n\nvar n = A{}.b.f\n",
			},
			want: []string{".: the files use each other in a circle: a.go b.go c.go"},
		},
		{
			name: "tests may",
			files: map[string]string{
				"a.go":      spdx + "package tenure\n\nfunc f() {}\n",
				"a_test.go": spdx + "package tenure\n\nfunc g() { f() }\n",
			},
		},
	})
}

// TestLoad checks that a file that cannot be read is not passed over.
func TestLoad(t *testing.T) {
	for name, text := range map[string]string{
		"driver/x.go": "package driver\nfunc",
		"go.mod":      "module x\nrequire (\n",
	} {
		if _, err := load(fstest.MapFS{name: {Data: []byte(text)}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("load with a broken %s: error %v, want one that names the file", name, err)
		}
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/ast"
	"path"
	"slices"
	"strings"
)

// rootModule is the path of the root module. The path of every other module is
// this one and the module's directory.
const rootModule = "github.com/tenurelock/tenure"

// A zone is some directories, each with all below it, up to the next zone, and the zones that
// their code imports; "*" stands for all but the closed ones. Within its directory nothing is
// forbidden. The directory "." is the root package alone. Tests import what users import, too,
// and what tests of stores are written with.
type zone struct{ dirs, may string }

const (
	public = " . notify driver driver/objectmap driver/recordcodec driver/versioned drivertest faultstore fence " +
		"admin memstore once ready rwlock semaphore server server/access server/dashboard shard tasks tenuretest " +
		"internal/enginetest internal/enginetest/buckets internal/testutil "
	// closed directories are imported by nobody from outside of them.
	closed = "cmd test examples/failover internal/repocheck internal/itest release"
)

// zones says who may import whom: the dependencies point inwards, to driver. A directory
// without a zone is reported, so that a new package gets its rule on the day on which it is
// made. The longest directory wins.
var zones = []zone{
	// The contract of a store imports nothing of ours, the pure core only the contract's
	// records, the clock nothing.
	{"driver internal/clock", ""},
	{"driver/objectmap", "driver driver/recordcodec driver/versioned"},
	{"driver/recordcodec driver/versioned internal/protocol internal/terms internal/text internal/trace internal/enginetest", "driver"},
	{"internal/testutil", ""},
	{"internal/enginetest/buckets", ". driver driver/objectmap driver/recordcodec drivertest internal/enginetest"},
	// The simulator has the core's machines work behind a real fence.
	{"internal/sim", "driver internal/protocol internal/terms internal/trace fence"},
	{"internal", "driver internal/protocol internal/clock"},
	{"internal/engine", "driver internal internal/protocol"},
	{".", "driver internal internal/engine internal/protocol internal/terms internal/clock internal/text"},

	{"admin", ". driver internal/engine internal/protocol internal/text"},

	// A store knows the contract, not who calls it.
	{"drivertest faultstore memstore", "driver"},
	{"azblobstore gcsstore s3store", "driver driver/objectmap"},
	{"dynamostore sqlitestore", "driver driver/recordcodec"},
	{"etcdstore k8sstore mysqlstore pgstore redisstore zkstore", "driver driver/recordcodec driver/versioned"},

	// What any user could have written shows that the public API is enough.
	{"notify", ""}, // any transport can be written without us
	{"fence ready adapters/certmagic adapters/clientgo", "."},
	{"once shard", ". internal/text"},
	{"internal/slots", ". admin internal/engine internal/text"},
	{"rwlock semaphore", ". admin internal/engine internal/slots internal/text"},
	// But no public call says whether there is a bubble of testing/synctest: that is the clock's.
	{"tasks", ". once internal/clock"},
	{"tenuretest", ". driver faultstore memstore internal/clock"},
	{"server", ". driver once rwlock semaphore internal/slots server/access server/internal/remote server/internal/wire"},
	{"server/internal/wire", ""},
	{"server/internal/remote", ". driver internal/engine internal/protocol internal/slots internal/text server/internal/wire"},
	{"server/access", "driver internal/text"},
	{"server/dashboard", ". driver internal/text once server server/access server/internal/remote shard"},
	{"internal/telemetry", ". internal/protocol internal/clock"},
	{"tenureotel tenureprom", ". once shard internal/telemetry"},
	{"adapters/controllerruntime", ". adapters/clientgo k8sstore"},
	{"adapters/gocron", ". once"},
	{"adapters/recipes release internal/repocheck", ""},
	// A client of the lock service carries no engine for a store.
	{"clients/go", "driver internal/clock internal/text"},

	// The ends of the graph. What a stranger reads first has the public API alone.
	{"examples/failover", ". sqlitestore"},
	{"test/harness", "dynamostore internal/enginetest"},
	{"test/peers", ". notify driver dynamostore clients/go test/harness internal/enginetest"},
	{"cmd test internal/itest", "*"},
}

// zoneOf returns the zone of a directory, and the one of its directories in which that is.
func zoneOf(dir string) (of zone, top string) {
	for _, z := range zones {
		for d := range strings.FieldsSeq(z.dirs) {
			if within(dir, d) && len(d) > len(top) {
				of, top = z, d
			}
		}
	}
	return of, top
}

// checkImports finds the imports that zones do not allow.
func checkImports(t *tree) (r report) {
	for _, f := range t.files {
		_, top := zoneOf(f.dir())
		if top == "" {
			r.add(f.path, 1, "no rule says what %s may import; give it a zone in internal/repocheck", f.dir())
			continue
		}
		for line, imp := range f.imports {
			if why := t.forbids(f, imp); why != "" {
				r.add(f.path, line, "%s must not import %s: %s", f.dir(), imp, why)
			}
		}
	}
	return r
}

// forbids returns why the import is not allowed, or "" if it is.
func (t *tree) forbids(f *goFile, importPath string) string {
	dir, own := strings.CutPrefix(importPath, rootModule+"/")
	if importPath == rootModule {
		dir, own = ".", true
	}
	if !own {
		// The first element of a path outside of the standard library is a host's name.
		if host, _, _ := strings.Cut(importPath, "/"); !strings.Contains(host, ".") || t.nested(f.dir()) {
			return ""
		}
		return "the root module imports the standard library alone; tests that need more live in internal/itest"
	}
	from, top := zoneOf(f.dir())
	_, to := zoneOf(dir)
	has := func(list string) bool { return slices.Contains(strings.Fields(list), to) }
	for c := range strings.FieldsSeq(closed) {
		if within(to, c) && !within(top, c) {
			return "nothing imports it"
		}
	}
	switch {
	case to == "":
		return "no zone in internal/repocheck holds it"
	case to == top, from.may == "*", has(from.may), f.test() && has(public):
		return ""
	}
	return "see the zones in internal/repocheck"
}

// nested says that a directory is of a module other than the root's.
func (t *tree) nested(dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, ok := t.text[dir+"/go.mod"]; ok {
			return true
		}
	}
	return false
}

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
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				if n.Name != nil && n.Path.Value == `"time"` {
					r.add(f.path, f.line(n.Pos()), "time has another name in the pure core: that hides what reads the clock")
				}
			case *ast.GoStmt:
				r.add(f.path, f.line(n.Pos()), "go statement in the pure core: package engine owns all goroutines")
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"slices"
	"strings"
	"testing"
)

// rootModule is the path of the root module. The path of every other module is
// this one and the module's directory.
const rootModule = "github.com/tenurelock/tenure"

// A zone is a directory and all below it, up to the next zone: code that may
// import the same. Between a zone and itself nothing is forbidden. The zone "."
// is the root package alone.
type zone struct {
	dir string
	// may lists the zones whose packages the code imports; tests may import
	// those of inTests as well.
	may, inTests []string
	// any: the code may import every zone but the closed ones.
	any bool
	// others: packages of other modules than ours may be imported.
	others bool
}

// public are the packages of the root module that users import. Tests of the
// root module are written with them.
var public = []string{
	".", "bell", "driver", "driver/objectmap", "driver/recordcodec", "driver/versioned", "drivertest", "faultstore", "fence", "memstore", "once", "ready", "rwlock", "semaphore", "server", "server/access", "server/dashboard", "shard", "tasks", "tenuretest",
}

// onEngines is what tests of stores are written with.
var onEngines = append(slices.Clone(public), "internal/enginetest", "internal/enginetest/buckets", "internal/enginetest/locks")

// zones says who may import whom: the dependencies point inwards, to driver.
// A directory without a zone is reported, so that a new package gets its rule
// on the day on which it is made. The longest directory wins.
var zones = []zone{
	// The contract of a store imports nothing of ours, the pure core only the
	// contract's records, the clock nothing.
	{dir: "driver", inTests: public},
	{dir: "driver/objectmap", may: []string{"driver", "driver/recordcodec", "driver/versioned"}, inTests: append(slices.Clone(public), "internal/enginetest")},
	{dir: "driver/recordcodec", may: []string{"driver"}},
	{dir: "driver/versioned", may: []string{"driver"}, inTests: public},
	{dir: "internal/protocol", may: []string{"driver"}, inTests: []string{"memstore"}},
	{dir: "internal/clock"},
	// What text may be, one rule for all that check it.
	{dir: "internal/text", may: []string{"driver"}},
	{dir: "internal/enginetest", may: []string{"driver"}},
	{dir: "internal/enginetest/buckets", may: []string{".", "driver", "driver/objectmap", "driver/recordcodec", "drivertest", "internal/enginetest"}},
	{dir: "internal/enginetest/locks", may: []string{".", "driver"}},
	{dir: "internal/trace", may: []string{"driver"}},
	// The simulator has the core's machines work behind a real fence.
	{dir: "internal/sim", may: []string{"driver", "internal/protocol", "internal/trace", "fence"}},
	{dir: "internal", may: []string{"driver", "internal", "internal/protocol", "internal/clock"}, inTests: public},
	{
		dir: ".", may: []string{"driver", "internal", "internal/protocol", "internal/clock", "internal/text"},
		inTests: public,
	},

	// A store knows the contract, not who calls it.
	{dir: "drivertest", may: []string{"driver"}, inTests: public},
	{dir: "faultstore", may: []string{"driver"}, inTests: public},
	{dir: "memstore", may: []string{"driver"}, inTests: public},
	{dir: "azblobstore", may: []string{"driver", "driver/objectmap"}, inTests: onEngines, others: true},
	{dir: "dynamostore", may: []string{"driver", "driver/recordcodec"}, inTests: onEngines, others: true},
	{dir: "etcdstore", may: []string{"driver", "driver/recordcodec", "driver/versioned"}, inTests: onEngines, others: true},
	{dir: "gcsstore", may: []string{"driver", "driver/objectmap"}, inTests: onEngines, others: true},
	{dir: "k8sstore", may: []string{"driver", "driver/recordcodec", "driver/versioned"}, inTests: onEngines, others: true},
	{dir: "pgstore", may: []string{"driver", "driver/recordcodec"}, inTests: onEngines, others: true},
	{dir: "s3store", may: []string{"driver", "driver/objectmap"}, inTests: onEngines, others: true},
	{dir: "sqlitestore", may: []string{"driver"}, inTests: onEngines, others: true},
	{dir: "zkstore", may: []string{"driver", "driver/recordcodec", "driver/versioned"}, inTests: onEngines, others: true},

	// What any user could have written shows that the public API is enough.
	{dir: "bell", inTests: public}, // any transport can be written without us
	{dir: "fence", may: []string{"."}, inTests: public},
	{dir: "once", may: []string{".", "internal/text"}, inTests: public},
	// What these two share stands on the public API as well.
	{dir: "internal/slots", may: []string{".", "internal/text"}, inTests: public},
	{dir: "rwlock", may: []string{".", "internal/slots", "internal/text"}, inTests: public},
	{dir: "semaphore", may: []string{".", "internal/slots", "internal/text"}, inTests: public},
	{dir: "shard", may: []string{".", "internal/text"}, inTests: public},
	// But no public call says whether there is a bubble of testing/synctest: that is the
	// clock's.
	{dir: "ready", may: []string{"."}, inTests: public},
	{dir: "tasks", may: []string{".", "once", "internal/clock"}, inTests: public},
	{dir: "tenuretest", may: []string{".", "driver", "faultstore", "memstore", "internal/clock"}, inTests: public},
	{dir: "server", may: []string{".", "driver", "once", "server/access"}, inTests: public},
	{dir: "server/access", may: []string{"driver", "internal/text"}, inTests: public},
	{dir: "server/dashboard", may: []string{".", "driver", "internal/text", "once", "server", "server/access", "shard"}, inTests: public},
	// What the events mean to metrics is in one place for both.
	{dir: "internal/telemetry", may: []string{".", "internal/protocol"}, inTests: public},
	{dir: "tenureotel", may: []string{".", "shard", "internal/telemetry"}, inTests: public, others: true},
	{dir: "tenureprom", may: []string{".", "once", "shard", "internal/telemetry"}, inTests: public, others: true},

	// What lets other libraries stand on the locks.
	{dir: "adapters/certmagic", may: []string{"."}, inTests: public, others: true},
	{dir: "adapters/clientgo", may: []string{"."}, inTests: public, others: true},
	{dir: "adapters/controllerruntime", may: []string{".", "adapters/clientgo"}, inTests: append(slices.Clone(onEngines), "k8sstore"), others: true},
	{dir: "adapters/gocron", may: []string{".", "once"}, inTests: public, others: true},
	{dir: "adapters/recipes", inTests: public, others: true},

	// The evidence: the bed that all of its programs stand on, the processes of lock
	// clients, and the programs, which may import all but the commands.
	{dir: "evidence/bed", may: []string{"dynamostore"}, others: true},
	{dir: "evidence", any: true, others: true},
	{dir: "evidence/peers", may: []string{".", "bell", "driver", "dynamostore", "evidence/bed", "internal/enginetest"}, inTests: onEngines, others: true},

	// What a stranger reads first has the public API alone.
	{dir: "examples/failover", may: []string{".", "sqlitestore"}},

	// The ends of the graph.
	{dir: "cmd", any: true, others: true},
	{dir: "internal/house"},
	{dir: "internal/itest", any: true, others: true},
	// It builds of the tags what users install, and compiles nothing of ours.
	{dir: "release", others: true},
}

// closed directories are imported by nobody from outside of them.
var closed = []string{"cmd", "evidence", "examples/failover", "internal/house", "internal/itest", "release"}

// zoneOf returns the zone of the directory, nil if it has none.
func zoneOf(dir string) *zone {
	var best *zone
	for i, z := range zones {
		if within(dir, z.dir) && (best == nil || len(z.dir) > len(best.dir)) {
			best = &zones[i]
		}
	}
	return best
}

// checkImports finds the imports that zones do not allow.
func checkImports(t *tree) (r report) {
	for _, f := range t.files {
		from := zoneOf(f.dir())
		if from == nil {
			r.add(f.path, 1, "no rule says what %s may import; give it a zone in internal/house", f.dir())
			continue
		}
		for line, imp := range f.imports {
			if why := from.forbids(imp, f.test()); why != "" {
				r.add(f.path, line, "%s must not import %s: %s", f.dir(), imp, why)
			}
		}
	}
	return r
}

// forbids returns why the import is not allowed, or "" if it is.
func (z *zone) forbids(importPath string, test bool) string {
	dir := "."
	if importPath != rootModule {
		var own bool
		if dir, own = strings.CutPrefix(importPath, rootModule+"/"); !own {
			// The first element of a path outside of the standard library is a host's name.
			if host, _, _ := strings.Cut(importPath, "/"); z.others || !strings.Contains(host, ".") {
				return ""
			}
			return "the root module imports the standard library alone; tests that need more live in internal/itest"
		}
	}
	to := zoneOf(dir)
	switch {
	case to == nil:
		return "no zone in internal/house holds it"
	case to.dir == z.dir:
		return ""
	case slices.ContainsFunc(closed, func(c string) bool { return within(to.dir, c) && !within(z.dir, c) }):
		return "nothing imports it"
	case z.any, slices.Contains(z.may, to.dir), test && slices.Contains(z.inTests, to.dir):
		return ""
	}
	return "see the zones in internal/house"
}

func TestImports(t *testing.T) {
	hold(t, checkImports)
	const m = rootModule
	for _, bad := range []struct {
		file, imports string
		want          string // "" if it is allowed
	}{
		{"x.go", m + "/driver", ""},
		{"memstore/x_test.go", m + "/drivertest", ""},
		{"sqlitestore/x.go", "example.com/engine", ""},
		{"evidence/bench/x.go", m + "/internal/clock", ""},
		{"driver/x_plan9.go", m + "/internal/clock", "driver must not import " + m + "/internal/clock: see"},
		{"internal/protocol/sub/x.go", m + "/memstore", "internal/protocol/sub must not"},
		{"x_test.go", "example.com/cmp", ". must not import example.com/cmp: the root module imports the standard library alone"},
		{"x.go", m + "fork/driver", ". must not import " + m + "fork/driver: the root module"},
		{"x_test.go", m + "/sqlitestore", ". must not"},
		{"memstore/x.go", m + "/drivertest", "memstore must not"},
		{"sqlitestore/x_test.go", m + "/internal/clock", "sqlitestore must not"},
		{"fence/x.go", m + "/internal/protocol", "fence must not"},
		{"internal/itest/x.go", m + "/cmd/internal/cli", "internal/itest must not import " + m + "/cmd/internal/cli: nothing imports it"},
		{"util/x.go", "os", "no rule says what util may import"},
		{"cmd/x.go", m + "/util", "cmd must not import " + m + "/util: no zone"},
	} {
		want := []string{bad.file + ":1: " + bad.want}
		find(t, checkImports, map[string]string{bad.file: "package x; import _ `" + bad.imports + "`"}, want[:min(len(bad.want), 1)]...)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	coordination "k8s.io/api/coordination/v1"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/peers"
)

func TestMain(m *testing.M) {
	proc.Play(roles) // this binary is the program that the harness starts
	os.Exit(m.Run())
}

// throw throws some faults at one client, on the engine that the environment names. The harness may
// be changed before.
func throw(t *testing.T, in table, id string, want map[string]verdict, change func(*harness)) {
	t.Helper()
	chosen := pick(in.columns, id)
	if c := chosen[0]; c.engine != nil {
		kind := c.engine.kind()
		enginetest.Shared(t, kind.Variable, kind.Name)
	}
	thrown := pick(in.rows, strings.Join(slices.Collect(maps.Keys(want)), ","))
	r := &harness{say: t.Logf}
	r.Run(func() { r.throw(t, thrown, chosen, want, change) })
}

func (r *harness) throw(t *testing.T, thrown []row, chosen []column, want map[string]verdict, change func(*harness)) {
	t.Helper()
	err := must.Try(func() { r.build(t.Context(), thrown, chosen) })
	if errors.Is(err, peers.ErrNoToolchain) {
		enginetest.Missing(t, "a client's toolchain", "scripts/setup installs it: "+err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	var wg sync.WaitGroup
	for _, row := range thrown {
		wg.Go(func() {
			var found cell
			err := must.Try(func() { found = r.cell(t.Context(), row, chosen[0]) })
			t.Logf("%s, %s: %s: %s", row.id, chosen[0].id, found.Verdict, found.Seen)
			if err != nil || found.Verdict != want[row.id] {
				t.Errorf("%s, %s: %s, %s, %v; want %s", row.id, chosen[0].id, found.Verdict, found.Seen, err, want[row.id])
			}
		})
	}
	wg.Wait()
}

// TestRows throws some faults at Tenure, and at libraries that do not pass all of them: a row
// that cannot fail would show nothing.
func TestRows(t *testing.T) {
	for id, want := range map[string]map[string]verdict{
		"tenure": {
			"lost-acquire": passed, "stopped": passed, "close-waiting": passed, endAtWorkRow: passed, "tokens": passed,
		},
		"dynamolock": {
			"lost-acquire": failed, "stopped": passed, "close-waiting": failed, endAtWorkRow: failed, "tokens": failed,
		},
		"etcd":      {"lost-acquire": passed, endAtWorkRow: failed},
		"client-go": {"lost-acquire": passed, endAtWorkRow: failed, "dead-try": none},
		"river": {
			"lost-acquire": failed, "close-waiting": passed, "tokens": passed,
			manyRow: none, endAtWorkRow: none, "dead-try": none,
		},
		"tenure-postgres":  {"lost-acquire": passed, "tokens": passed},
		"tenure-etcd":      {"lost-acquire": passed, "tokens": passed},
		"tenure-zookeeper": {"lost-acquire": passed, "tokens": passed},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			throw(t, libraryTable, id, want, nil)
		})
	}
}

// slowEngine are the faults that Tenure must pass on engines that take minutes to build.
var slowEngine = map[string]verdict{
	"lost-acquire": passed, "lost-heartbeat": passed, "lost-cut": passed, "black-hole": passed, "stopped": passed,
	"close-waiting": passed, "dead-try": passed, endAtWorkRow: passed, "tokens": passed,
}

func TestKubernetes(t *testing.T) { throw(t, libraryTable, "tenure-kubernetes", slowEngine, nil) }

func TestVersitygw(t *testing.T) { throw(t, libraryTable, "tenure-bucket", slowEngine, nil) }

// TestServiceRows throws some faults at clients of the service, each at another language.
func TestServiceRows(t *testing.T) {
	for id, row := range map[string]string{
		"typescript-1": suspendRow, "java-3": "lost-cut", "java-1": "close-waiting",
		"python-3": "bad-gateway", "typescript-3": "twice", "python-1": "step-down",
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			throw(t, serviceTable, id, map[string]verdict{row: passed}, nil)
		})
	}
}

// TestBrokenClient: a client that breaks a rule, here by counting its lease by a clock that stops
// still in a suspend, does not pass the row that is about it.
func TestBrokenClient(t *testing.T) {
	throw(t, serviceTable, "python-1", map[string]verdict{suspendRow: failed}, func(r *harness) {
		args := r.programs["python-1"].Command.Args
		r.programs["python-1"].Command.Args = append([]string{args[0], "-c", `import runpy, sys, time
from tenurelock import client
client.system_clock = lambda: time.monotonic_ns
runpy.run_path(sys.argv[1], run_name="__main__")`}, args[1:]...)
	})
}

// TestJudge: a client that believes for an instant during another's term does not pass.
func TestJudge(t *testing.T) {
	for want, figures := range map[string][]float64{
		"pass: told 10 ms to 2.00 s before (2 runs)":   {10, 2000},
		"fail: told 1.0 ms to 2.0 ms late (2 runs)":    {-1, -2},
		"fail: told up to 1.50 s late, in 1 of 3 runs": {5, -1500, 20},
	} {
		if c := margins(figures); string(c.Verdict)+": "+c.Seen != want {
			t.Errorf("%v: %s: %s; want %s", figures, c.Verdict, c.Seen, want)
		}
	}
	for want, seen := range map[string][]uint64{
		"pass: rises: 1, 2, 9":                     {1, 2, 9},
		"fail: has a token at 2 of 3 grants: 1, 2": {1, 2},
		"fail: does not rise: 1, 2, 2":             {1, 2, 2},
		"fail: has no token":                       {},
	} {
		if c := rises(3, seen); string(c.Verdict)+": "+c.Seen != want {
			t.Errorf("%v: %s: %s; want %s", seen, c.Verdict, c.Seen, want)
		}
	}
	if c := beliefs([]float64{0, 0}); c.Verdict != passed {
		t.Errorf("no client believed: %+v", c)
	}
	if c := beliefs([]float64{0, 0.5}); c.Verdict != failed {
		t.Errorf("one believed: %+v", c)
	}
}

// TestPage holds the page to the runs that it shows, and to the rows that there are.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../" + libraryTable.Page)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []table{libraryTable, serviceTable, redisTable} {
		r := &report{}
		if err := in.Read(r); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(in.complete(r), in.Check(in.markdown(r))); err != nil {
			t.Error(err)
		}
		for _, row := range in.rows {
			if n := strings.Count(string(text), "- **"+row.title+"**: "); n != 1 {
				t.Errorf("the page says %d times how %q is made", n, row.title)
			}
		}
		// A run that lacks something, or that a client of Tenure has not passed, must not be shown.
		row, other := in.rows[0].id, in.rows[1].id
		last := in.columns[len(in.columns)-1]
		if !last.ours {
			last = in.columns[0]
		}
		delete(r.Cells[row], in.columns[0].id)
		r.Cells[other][last.id] = cell{Verdict: failed, Seen: "believed"}
		r.Cells["former"] = nil
		err := in.complete(r)
		for _, want := range []string{
			row + " was not looked at for " + in.columns[0].id, last.title + " does not pass " + other + ": believed",
			"no row former",
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		}
	}
	for _, of := range []losses{redisLosses, postgresLosses} {
		found := &lossReport{}
		if err := of.Read(found); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(found.complete(), of.Check(found.markdown())); err != nil {
			t.Error(err)
		}
	}
}

// TestLeaseAPI is about the check on which all elections on leases rest.
func TestLeaseAPI(t *testing.T) {
	api := &leaseAPI{leases: map[string]coordination.Lease{}}
	for i, c := range []struct {
		method, version string
		want            int
	}{
		{http.MethodPut, "", http.StatusNotFound},
		{http.MethodPost, "", http.StatusCreated},
		{http.MethodPost, "", http.StatusConflict},
		{http.MethodPut, "1", http.StatusOK},
		{http.MethodPut, "1", http.StatusConflict},
		{http.MethodPut, "2", http.StatusOK},
	} {
		body := strings.NewReader(`{"metadata":{"name":"a","resourceVersion":"` + c.version + `"}}`)
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, httptest.NewRequest(c.method, "/leases/a", body))
		if answer.Code != c.want {
			t.Errorf("%d, %s of version %q: %d; want %d", i, c.method, c.version, answer.Code, c.want)
		}
	}
}

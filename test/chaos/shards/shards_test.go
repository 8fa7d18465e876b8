// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shards

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/test/bed/page"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/chaos/trial"
)

func TestMain(m *testing.M) {
	proc.Play(Roles) // this binary is the program that the tests start
	os.Exit(m.Run())
}

// TestShards makes a quick run of all scenes, with processes that are killed.
func TestShards(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a minute")
	}
	t.Parallel()
	e := enginetest.FullDynamoDB(t)
	to := filepath.Join(t.TempDir(), "shards.json")
	s := &Settings{engine: e.URL, parts: partSQLite + "," + partDynamo, toJSON: to}
	if err := s.measure(t.Context(), quick, io.Discard, t.Logf); err != nil {
		t.Fatal(err)
	}
	all, err := earlier(to)
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Stores) != 2 {
		t.Fatalf("%d stores", len(all.Stores))
	}
	for _, f := range all.Stores {
		if f.Steady.Reads <= 0 || f.Steady.Writes <= 0 || f.Tenures < quick.Partitions ||
			len(f.Changes) != quick.Kills+6 || f.Fence.Refused == 0 {
			t.Errorf("%s: %+v", f.Store, f)
		}
		for _, c := range f.Changes {
			if c.Took <= 0 || (c.Lease <= 0 || c.Partitions == 0) && c.Moves == 0 {
				t.Errorf("%s: %+v", f.Store, c)
			}
		}
	}
}

// What the judge says of a log, and what the fence did.
func TestTake(t *testing.T) {
	l := &trial.Log{
		Holds: []trial.Hold{
			{Lock: "p", Owner: "a", Token: 1, Begin: 10, Last: 21, Killed: true}, {
				Lock: "p", Owner: "b",
				Token: 2, Begin: 20, Last: 30,
			},
		},
		Effects: []trial.Effect{
			{Lock: "p", Owner: "b", Token: 2, Checked: 22, Came: 23, Entered: 24, Left: 25},
			{Lock: "p", Owner: "a", Token: 1, Checked: 12, Came: 26, Left: 27, Refused: true},
			{Lock: "p", Owner: "a", Token: 1, Checked: 12, Came: 28, Entered: 29, Left: 30},
			{Lock: "p", Owner: "c", Token: 2, Checked: 22, Came: 31, Entered: 32, Left: 33},
		},
	}
	f := &finding{}
	f.take(l)
	if f.Tenures != 2 || len(f.OwnedTwice) != 1 || f.Fence.Accepted != 3 || f.Fence.Refused != 1 ||
		len(f.Fence.Late) != 1 || len(f.Missed) != 1 {
		t.Errorf("%+v", f)
	}
}

func goodFinding() *finding {
	return &finding{
		Store: "a store",
		Changes: []change{
			{What: killOfWorker + " (1)", Expected: 5, Took: 6},
			{What: plannedLeave, Gaps: stretch{N: 10, Max: 0.5}},
			{What: oneComes, Moves: 100, Share: 100},
			{What: rollingRestart, Most: 2},
		},
		Fence: fenced{Accepted: 10, Refused: 1},
	}
}

func TestJudge(t *testing.T) {
	good := goodFinding()
	if good.judge(full); good.Missed != nil {
		t.Errorf("all is well, and missed: %v", good.Missed)
	}
	for want, spoil := range map[string]func(*finding){
		"owned twice":         func(f *finding) { f.OwnedTwice = []string{"partition 1"} },
		"stale writes":        func(f *finding) { f.Fence.Late = []string{"partition 1"} },
		"it was not tried":    func(f *finding) { f.Fence.Refused = 0 },
		"sessions of living":  func(f *finding) { f.Lost = []string{"worker-1"} },
		"SIGKILL of a worker": func(f *finding) { f.Changes[0].Took = 8 },
		"a planned leave":     func(f *finding) { f.Changes[1].Gaps.Max = 1 },
		"a rolling restart":   func(f *finding) { f.Changes[3].Most = mostMoves + 1 },
		"that came moved":     func(f *finding) { f.Changes[2].Moves = 120 },
	} {
		f := goodFinding()
		spoil(f)
		f.judge(full)
		if len(f.Missed) != 1 || !strings.Contains(f.Missed[0], want) {
			t.Errorf("%s: missed %v", want, f.Missed)
		}
		f.Missed = nil
		safety := want == "owned twice" || want == "stale writes" || want == "it was not tried"
		if f.judge(quick); safety != (len(f.Missed) == 1) {
			t.Errorf("%s: a quick run missed %v", want, f.Missed)
		}
	}
}

// TestPage holds the page to the run that it shows.
func TestPage(t *testing.T) {
	r, err := earlier("results.json")
	if err != nil {
		t.Fatal(err)
	}
	if r.Setting.Quick || len(r.Stores) == 0 {
		t.Error("results.json is of no full run")
	}
	if err := page.Check("../../../docs/evidence/performance.md", r.markdown(), command); err != nil {
		t.Errorf("make shards writes both: %v", err)
	}
}

// A run of one part leaves what was found of the others.
func TestPagePart(t *testing.T) {
	to := filepath.Join(t.TempDir(), "shards.json")
	r := &results{Setting: size{Workers: 20, Partitions: 2000}}
	r.put(goodFinding())
	other := goodFinding()
	other.Store, other.Watch = "another store", true
	r.put(other)
	if err := page.WriteJSON(to, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| a store | another store |", "2,000", "605", "SIGKILL of a worker (1)"} {
		if tables := r.markdown(); !strings.Contains(tables, want) {
			t.Errorf("the page has no %q:\n%s", want, tables)
		}
	}
	again, err := earlier(to)
	if err != nil {
		t.Fatal(err)
	}
	if again.put(goodFinding()); len(again.Stores) != 2 || again.Stores[1].Store != "another store" {
		t.Errorf("%+v", again.Stores)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestMain(m *testing.M) {
	proc.Play(roles) // this binary is the program that the tests start
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
	r := &rig{engine: e.URL, name: "DynamoDB", size: quick, say: t.Logf}
	var tables strings.Builder
	if err := r.measure(t.Context(), partSQLite+","+partDynamo, to, "", &tables); err != nil {
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
		switch {
		case f.Lone.Partitions != quick.partitions, f.Lone.Rate <= 0, f.Steady.Reads <= 0, f.Steady.Writes <= 0, f.Tenures < quick.partitions,
			len(f.Recoveries) != quick.kills+2, f.Roll.Moves < quick.partitions, f.Fence.Refused == 0:
			t.Errorf("%s: %+v", f.Store, f)
		}
		for _, r := range f.Recoveries {
			if r.First < r.Closed || r.First <= 0 || r.Took < r.First || r.Lease <= 0 || r.Partitions == 0 {
				t.Errorf("%s: %+v", f.Store, r)
			}
		}
	}
}

func TestOwnedTwice(t *testing.T) {
	for name, c := range map[string]struct {
		all  []tenureOf
		want string
	}{
		"one after the other": {[]tenureOf{{"a", 1, 1, 10, 20}, {"b", 1, 2, 20, 30}, {"a", 2, 1, 10, 90}}, ""},
		"two at once":         {[]tenureOf{{"b", 1, 2, 20, 30}, {"a", 1, 1, 10, 21}}, "a passed its Check under token 1"},
		"another in between":  {[]tenureOf{{"a", 1, 1, 10, 50}, {"b", 1, 2, 60, 70}, {"c", 1, 3, 65, 90}}, "b passed its Check under token 2"},
		"a token before":      {[]tenureOf{{"a", 1, 1, 10, 90}, {"b", 1, 2, 11, 12}, {"c", 1, 3, 80, 95}}, "a passed its Check under token 1"},
		"one token":           {[]tenureOf{{"a", 1, 1, 10, 20}, {"b", 1, 1, 30, 40}}, "both had token 1"},
	} {
		found := strings.Join(ownedTwice(c.all), "; ")
		if c.want == "" && found != "" || !strings.Contains(found, c.want) {
			t.Errorf("%s: found %q, want %q", name, found, c.want)
		}
	}
}

func TestClaimLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := createLog(path)
	if err != nil {
		t.Fatal(err)
	}
	l.beat(7)
	if _, err := l.open(0, 1, 100); err != nil {
		t.Fatal(err)
	}
	s, err := l.open(1999, 12, 200)
	if err != nil {
		t.Fatal(err)
	}
	s.passed(300)
	all, beat, err := readLog(path, "w") // as it is read of who was killed
	if err != nil {
		t.Fatal(err)
	}
	if want := []tenureOf{{"w", 0, 1, 100, 100}, {"w", 1999, 12, 200, 300}}; beat != 7 || !reflect.DeepEqual(all, want) {
		t.Errorf("beat %d, %+v", beat, all)
	}
}

// What the resource counts does not rest on the gate before it.
func TestGuarded(t *testing.T) {
	g := newGuarded()
	defer g.Close()
	for _, token := range []uint64{2, 2, 1} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		fence.SetHeader(r.Header, fence.Fixed("bench:part/1", token))
		g.write(httptest.NewRecorder(), r)
	}
	if f := g.found(); f.Accepted != 3 || len(f.Late) != 1 {
		t.Errorf("past the gate: %+v", f)
	}
	for _, token := range []uint64{3, 2} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		fence.SetHeader(r.Header, fence.Fixed("bench:part/1", token))
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	if f := g.found(); f.Accepted != 4 || len(f.Late) != 1 || f.Refused != 1 {
		t.Errorf("through the gate: %+v", f)
	}
}

func goodFinding() *finding {
	return &finding{
		Store:      "a store",
		Recoveries: []recovery{{What: killOfWorker, Expected: 5, Took: 6}},
		Leave:      moving{Gaps: stretch{N: 10, Max: 0.5}},
		Join:       moving{Moves: 100, Share: 100},
		Roll:       moving{Most: 2},
		Lone:       lone{Expected: 6, Took: 7, Ratio: 7. / 6},
		Fence:      fenced{Accepted: 10, Refused: 1},
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
		"SIGKILL of a worker": func(f *finding) { f.Recoveries[0].Took = 8 },
		"a worker with":       func(f *finding) { f.Lone.Took = 10 },
		"a planned leave":     func(f *finding) { f.Leave.Gaps.Max = 1 },
		"a rolling restart":   func(f *finding) { f.Roll.Most = mostMoves + 1 },
		"that came moved":     func(f *finding) { f.Join.Moves = 120 },
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
	if r.Quick || len(r.Stores) == 0 {
		t.Error("results.json is of no full run")
	}
	if err := page.Check("../../docs/evidence/performance.md", r.markdown(), command); err != nil {
		t.Errorf("make shards writes both: %v", err)
	}
}

// A run of one part leaves what was found of the others.
func TestPagePart(t *testing.T) {
	to := filepath.Join(t.TempDir(), "shards.json")
	r := &results{Setting: setting{Workers: 20, Partitions: 2000}}
	r.put(goodFinding())
	other := goodFinding()
	other.Store, other.Watch = "another store", true
	r.put(other)
	var tables strings.Builder
	if err := r.write(&tables, to, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| a store | another store |", "2,000", "605", "SIGKILL of a worker (1)"} {
		if !strings.Contains(tables.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, tables.String())
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

func TestLinesLogged(t *testing.T) {
	const out = "=== RUN   TestTable\n    scale_test.go:25: \n        event | moves\n          one joins | 97\n    scale_test.go:26: 100 moves\n" +
		"--- PASS: TestTable (0.02s)\nPASS\nok  \tgithub.com/tenurelock/tenure/shard\t0.1s\n"
	if got, want := linesLogged(out), []string{"event | moves", "  one joins | 97", "100 moves"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

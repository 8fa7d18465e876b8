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

	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestShards makes a quick run of all scenes, with processes that are killed.
func TestShards(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a minute")
	}
	t.Parallel()
	if os.Getenv(shardEnv) != "" {
		t.Fatal("TestMain does not know that this process is a worker")
	}
	e := enginetest.FullDynamoDB(t)
	to := filepath.Join(t.TempDir(), "shards.json")
	r := &rig{engine: e.URL, db: connect(e.URL), report: &report{Quick: true, Engine: "DynamoDB"}, say: t.Logf}
	var page strings.Builder
	if err := shards(t.Context(), r, partSQLite+","+partDynamo, to, "", &page); err != nil {
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
		case f.Lone.Partitions != quickShards.partitions, f.Lone.Rate <= 0, f.Steady.Reads <= 0, f.Steady.Writes <= 0, f.Tenures < quickShards.partitions,
			len(f.Recoveries) != quickShards.kills+2, f.Roll.Moves < quickShards.partitions, f.Fence.Refused == 0:
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
	g, err := newGuarded()
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
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

func goodShards() *shardFound {
	return &shardFound{
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
	good := goodShards()
	if good.judge(fullShards); good.Missed != nil {
		t.Errorf("all is well, and missed: %v", good.Missed)
	}
	for want, spoil := range map[string]func(*shardFound){
		"owned twice":         func(f *shardFound) { f.OwnedTwice = []string{"partition 1"} },
		"stale writes":        func(f *shardFound) { f.Fence.Late = []string{"partition 1"} },
		"it was not tried":    func(f *shardFound) { f.Fence.Refused = 0 },
		"sessions of living":  func(f *shardFound) { f.Lost = []string{"worker-1"} },
		"SIGKILL of a worker": func(f *shardFound) { f.Recoveries[0].Took = 8 },
		"a worker with":       func(f *shardFound) { f.Lone.Took = 10 },
		"a planned leave":     func(f *shardFound) { f.Leave.Gaps.Max = 1 },
		"a rolling restart":   func(f *shardFound) { f.Roll.Most = mostMoves + 1 },
		"that came moved":     func(f *shardFound) { f.Join.Moves = 120 },
	} {
		f := goodShards()
		spoil(f)
		f.judge(fullShards)
		if len(f.Missed) != 1 || !strings.Contains(f.Missed[0], want) {
			t.Errorf("%s: missed %v", want, f.Missed)
		}
		f.Missed = nil
		safety := want == "owned twice" || want == "stale writes" || want == "it was not tried"
		if f.judge(quickShards); safety != (len(f.Missed) == 1) {
			t.Errorf("%s: a quick run missed %v", want, f.Missed)
		}
	}
}

// A run of one part leaves what was found of the others.
func TestShardsPage(t *testing.T) {
	to := filepath.Join(t.TempDir(), "shards.json")
	r := &shardReport{Setting: shardSetting{Workers: 20, Partitions: 2000}}
	r.put(goodShards())
	other := goodShards()
	other.Store, other.Watch = "another store", true
	r.put(other)
	var page strings.Builder
	if err := r.write(&page, to, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| a store | another store |", "2,000", "605", "SIGKILL of a worker (1)"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, page.String())
		}
	}
	again, err := earlier(to)
	if err != nil {
		t.Fatal(err)
	}
	if again.put(goodShards()); len(again.Stores) != 2 || again.Stores[1].Store != "another store" {
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

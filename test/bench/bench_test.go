// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/test/bed/gate"
	"github.com/tenurelock/tenure/test/bed/must"
	"github.com/tenurelock/tenure/test/bed/page"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/serve"
)

func TestMain(m *testing.M) {
	proc.Play(serve.Roles) // this binary is the program that the benchmark starts
	os.Exit(m.Run())
}

// TestQuick makes a quick run beside the clients of DynamoDB, and looks at what was counted:
// times mean nothing on a busy machine. What other parts have found stays.
func TestQuick(t *testing.T) {
	t.Parallel()
	e := enginetest.FullDynamoDB(t)
	clients := strings.Join(clientNames, ",")
	switch _, err := peers.Make(t.Context(), peers.Java); {
	case errors.Is(err, peers.ErrNoToolchain) && os.Getenv(enginetest.Required) == "":
		t.Logf("without the Java client: %v", err)
		clients = tenureName + "," + dynamolockName
	case err != nil:
		t.Fatal(err)
	}
	dir := t.TempDir()
	found, tables := filepath.Join(dir, "results.json"), filepath.Join(dir, "page.md")
	for file, text := range map[string]string{
		found:  `{"load": {"setting": "of another run"}}`,
		tables: "# Before\n" + page.BeginMark("make bench") + "what was there\n<!-- to here -->\nAfter.\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-quick", "-engine", e.URL, "-clients", clients, "-json", found, "-markdown", tables, "bench"}
	if err := measure(t.Context(), args, t.Output(), t.Output()); err != nil {
		t.Fatal(err)
	}
	all := parsed(t, found, tables, "bench")
	if all["load"] == nil || all["load"].Setting != "of another run" {
		t.Error("what another part found is gone")
	}
	for _, r := range all["bench"].Rows {
		if len(r.Values) == 0 {
			t.Errorf("%s: nothing was found", r.What)
		}
	}
	checkCounts(t, all["bench"], quick.counted)
}

// parsed returns what was found, of which a page must be made.
func parsed(t *testing.T, found, tables string, names ...string) map[string]*part {
	t.Helper()
	all := map[string]*part{}
	if err := page.ReadJSON(found, &all); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := all[name].markdown(name)
		if err == nil {
			err = page.Check(tables, text, command(name))
		}
		if err != nil {
			t.Error(err)
		}
	}
	return all
}

// checkCounts holds Tenure to what docs/evidence/performance.md says, and to be better than the
// others where they are not the best possible; and sessions to one write a heartbeat period,
// however many locks are held, and to cost as much as one lock.
func checkCounts(t *testing.T, p *part, monthOf time.Duration) {
	t.Helper()
	for what, w := range map[string]struct {
		requests, write, read float64
		lessThanPeers         bool
	}{
		takeFree:     {1, 1, 0, true},
		takeReleased: {1, 1, 0, true},
		tryHeld:      {1, 0, 1, false},
		oneHeartbeat: {1, 1, 0, false},
		releaseOne:   {1, 1, 0, false},
		takeHistory:  {3, 3, 0, false},
		takeShared:   {2, 4, 2, false},
	} {
		ours := p.row(what).Values[tenureName].Used
		if ours == nil || ours.Requests != w.requests || ours.WriteUnits != w.write || ours.ReadUnits != w.read {
			t.Errorf("%s: %+v; want %v requests, %v and %v units", what, ours, w.requests, w.write, w.read)
			continue
		}
		for name, v := range p.row(what).Values {
			if w.lessThanPeers && name != tenureName && v.Used.Requests <= ours.Requests {
				t.Errorf("%s: %v requests, and %s has %v", what, ours.Requests, name, v.Used.Requests)
			}
		}
	}
	for _, r := range p.Of(crowded) {
		h := r.Values[tenureName].Held
		if h == nil {
			continue
		}
		beats := h.Used.WriteUnits*h.Periods >= h.Periods-1-edges && h.Used.ReadUnits == 0
		if missed := h.missed(); missed != nil || !beats || h.LockHeap <= 0 || h.CPUMinute <= 0 {
			t.Errorf("%s: %+v; %v", r.What, h, missed)
		}
	}
	one, many := p.row(standings[0].what).Values[tenureName].Used, p.row(standings[1].what).Values[tenureName].Used
	cut := edges / monthOf.Seconds()
	if one == nil || many == nil || math.Abs(many.WriteUnits-one.WriteUnits) > 0.3*one.WriteUnits+cut {
		t.Errorf("one lock uses %+v in a second, and a session %+v", one, many)
	}
}

// TestMissed spoils each figure that must be as it is.
func TestMissed(t *testing.T) {
	for want, spoil := range map[string]func(*holding){
		"":              func(*holding) {},
		"heartbeat pe":  func(h *holding) { h.Used.WriteUnits = 1.1 },
		"1 locks lost":  func(h *holding) { h.Lost = 1 },
		"50 goroutines": func(h *holding) { h.Goroutines = mostGoroutines },
	} {
		h := &holding{Locks: 100, Periods: 50.2, Goroutines: 7, Used: gate.Usage{WriteUnits: 1}}
		spoil(h)
		if missed := strings.Join(h.missed(), "; "); (missed == "") != (want == "") || !strings.Contains(missed, want) {
			t.Errorf("missed %q, want %q", missed, want)
		}
	}
}

// TestQuickOthers makes quick runs of the other parts, and of what `make sessions` does, and looks
// for texts in their pages.
func TestQuickOthers(t *testing.T) {
	for name, run := range map[string]struct{ args, texts []string }{
		"session": {
			[]string{"-engine", enginetest.FullDynamoDB(t).URL, "-steps", "session", "-locks", "200", "-hold", "2s", "bench"},
			[]string{"| Tenure, 200 locks | 0 |"},
		},
		"load": {[]string{"load"}, []string{
			pairsRow(1), contended, handedOver, beats, batches, memory, processor, onEtcd, onSQLite, gateway, "not be: 0.",
		}},
		"native": {[]string{"native"}, []string{"| etcd | `concurrency.Mutex` | **"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if enginetest.Program(t, "etcd", "etcd"); name == "native" {
				enginetest.Shared(t, enginetest.Etcd, "etcd")
			}
			var out strings.Builder
			if err := measure(t.Context(), append([]string{"-quick"}, run.args...), &out, t.Output()); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			for _, text := range run.texts {
				if !strings.Contains(out.String(), text) {
					t.Errorf("it does not say %q:\n%s", text, &out)
				}
			}
		})
	}
}

// TestPage holds the page to the runs that it shows, and these to be whole.
func TestPage(t *testing.T) {
	all := parsed(t, "results.json", "../../docs/evidence/performance.md", "bench", "native", "load")
	checkCounts(t, all["bench"], full.counted)
	for name, p := range all {
		if p.Quick || len(p.Wrong) > 0 {
			t.Errorf("%s: results.json is of a quick run, or has what must not be: %v", name, p.Wrong)
		}
	}
	for _, row := range all["native"].Engines() {
		if row[3] == none {
			t.Errorf("%s was not looked at: %q", row[0], row)
		}
	}
	for _, what := range []string{pairsRow(64), contended, handedOver, beats, memory, processor} {
		for _, who := range []string{gateway, oneLease, onEtcd, onSQLite} {
			if all["load"].row(what).Values[who].Spread == nil {
				t.Errorf("%s: nothing of %s", what, who)
			}
		}
	}
}

// TestWrongIsSeen makes each mistake that is taken down, with a service that grants what is held,
// or gives an old number, or forgets a lock.
func TestWrongIsSeen(t *testing.T) {
	for wrong, careless := range map[string]struct{ grants, repeats, forgets bool }{
		"":                    {},
		"has not released it": {grants: true},
		"has not risen":       {repeats: true},
		"was refused":         {forgets: true},
	} {
		var mu sync.Mutex
		var number atomic.Uint64
		c := caller{
			acquire: func(context.Context, string) *heldLock {
				if !careless.grants {
					mu.Lock()
				}
				if careless.repeats {
					return &heldLock{number: 7}
				}
				return &heldLock{number: number.Add(1)}
			},
			release: func(context.Context, *heldLock) {
				if !careless.grants {
					mu.Unlock()
				}
			},
			beat: func(_ context.Context, all []*heldLock) int {
				if careless.forgets {
					must.Do(errLost)
				}
				return len(all)
			},
		}
		l := &load{part: &part{}, serviceSize: serviceSize{beating: 1, length: time.Millisecond}}
		p := &peer{open: func(context.Context) caller { return c }}
		err := must.Try(func() {
			l.pairs(t.Context(), "", p, 4, 1, 200*time.Millisecond)
			l.beating(t.Context(), beats, p, p.open, 1)
		})
		if err != nil && !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		if all := strings.Join(l.Wrong, "; "); (all != "") != (wrong != "") || !strings.Contains(all, wrong) {
			t.Errorf("%q, want %q", all, wrong)
		}
	}
}

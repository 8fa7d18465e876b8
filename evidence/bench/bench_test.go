// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/keepers"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestMain(m *testing.M) {
	proc.Play(roles) // this binary is the program that the benchmark starts
	os.Exit(m.Run())
}

// TestQuick makes a quick run, and looks at what was counted: times mean nothing
// on a busy machine.
func TestQuick(t *testing.T) {
	t.Parallel()
	e := enginetest.FullDynamoDB(t)
	clients := strings.Join(clientNames, ",")
	switch _, err := peers.BuildJava(t.Context()); {
	case errors.Is(err, peers.ErrNoToolchain) && os.Getenv(enginetest.Required) == "":
		t.Logf("without the Java client: %v", err)
		clients = tenureName + "," + dynamolockName
	case err != nil:
		t.Fatal(err)
	}
	dir := t.TempDir()
	found, tables := filepath.Join(dir, "bench.json"), filepath.Join(dir, "page.md")
	write(t, tables, "# Before\n"+page.BeginMark(command)+"what was there\n<!-- to here -->\nAfter.\n")
	if err := run(t.Context(), []string{"-quick", "-engine", e.URL, "-clients", clients, "-json", found, "-markdown", tables}, t.Output(), t.Output()); err != nil {
		t.Fatal(err)
	}

	var r report
	if err := page.ReadJSON(found, &r); err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, tables), "# Before\n"+page.BeginMark(command)+"\n"+r.markdown()+"\n<!-- to here -->\nAfter.\n"; got != want {
		t.Errorf("the page is not made of the JSON:\n%s\nwant:\n%s", got, want)
	}
	checkCounts(t, &r)
	checkSessions(t, &r)
	for _, s := range steps {
		rows := 0
		for _, row := range r.Rows {
			if row.Step == s.name {
				rows++
			}
		}
		if rows == 0 {
			t.Errorf("step %s found nothing", s.name)
		}
	}
}

// checkCounts holds Tenure to what docs/evidence/performance.md says, and to be better
// than the others where they are not the best possible.
func checkCounts(t *testing.T, r *report) {
	t.Helper()
	want := map[string]struct {
		requests      float64
		operation     string
		write, read   float64
		lessThanPeers bool
	}{
		takeFree:     {1, "UpdateItem", 1, 0, true},
		takeReleased: {1, "UpdateItem", 1, 0, true},
		tryHeld:      {1, "GetItem", 0, 1, false},
		oneHeartbeat: {1, "UpdateItem", 1, 0, false},
		releaseOne:   {1, "UpdateItem", 1, 0, false},
		takeHistory:  {3, "", 3, 0, false},
		takeShared:   {2, "", 4, 2, false},
	}
	for _, row := range r.Rows {
		w, found := want[row.What]
		if !found {
			continue
		}
		delete(want, row.What)
		ours := row.Values[tenureName].Used
		if ours == nil {
			t.Errorf("%s: nothing was counted", row.What)
			continue
		}
		if ours.Requests != w.requests || ours.WriteUnits != w.write || ours.ReadUnits != w.read || w.operation != "" && ours.ByOperation[w.operation] != w.requests {
			t.Errorf("%s: %+v; want %v requests, %v and %v units", row.What, *ours, w.requests, w.write, w.read)
		}
		for name, v := range row.Values {
			if w.lessThanPeers && name != tenureName && v.Used.Requests <= ours.Requests {
				t.Errorf("%s: %v requests, and %s has %v", row.What, ours.Requests, name, v.Used.Requests)
			}
		}
	}
	for what := range want {
		t.Errorf("%s: no such row", what)
	}
}

// checkSessions holds sessions to one write a heartbeat period, however many locks
// are held, and to cost as much as one lock.
func checkSessions(t *testing.T, r *report) {
	t.Helper()
	month := map[string]float64{} // write units by what and times
	for _, row := range r.Rows {
		v := row.Values[tenureName]
		switch {
		case row.Kind == monthly:
			month[row.What] = v.Used.WriteUnits
		case row.Kind == crowded && v.Held != nil:
			h := v.Held
			if writes := h.Holding.WriteUnits * h.Periods; math.Abs(writes-h.Periods) > 1+keepers.Edges || h.Holding.ReadUnits > 0 {
				t.Errorf("%s: %.0f writes in %.1f heartbeat periods: %+v", row.What, writes, h.Periods, h.Holding)
			}
			if h.Hold.Lost > 0 || h.Hold.Goroutines >= keepers.MostGoroutines || h.Closing.WriteUnits > h.Closable() {
				t.Errorf("%s: %v", row.What, h.Missed())
			}
			if a := h.Acquiring.ByOperation["UpdateItem"]; a < float64(h.Locks) || h.PerLock(h.Acquire.Heap) <= 0 || h.Hold.CPU <= 0 {
				t.Errorf("%s: taken with %v writes, %d bytes of heap, %v s of a processor", row.What, a, h.Acquire.Heap, h.Hold.CPU)
			}
		}
	}
	edges := 1 / quick.counted.Seconds() // a heartbeat more, or less, in what was counted
	for what, units := range month {
		rest, one := strings.CutPrefix(what, standings[0].what)
		if many := month[standings[1].what+rest]; one && math.Abs(many-units) > 0.3*units+edges {
			t.Errorf("%s: %v write units a second, and for a session %v", what, units, many)
		}
	}
}

// TestPage holds the page to the run that it shows.
func TestPage(t *testing.T) {
	var r report
	if err := page.ReadJSON("results.json", &r); err != nil {
		t.Fatal(err)
	}
	if r.Quick {
		t.Error("results.json is of a quick run")
	}
	if err := page.Check("../../docs/evidence/performance.md", r.markdown(), command); err != nil {
		t.Errorf("make bench writes both: %v", err)
	}
	checkCounts(t, &r)
	checkSessions(t, &r)
}

func TestSpread(t *testing.T) {
	s := newSpread([]float64{3, 1, 2, 4})
	if *s != (spread{Runs: 4, Median: 2.5, Min: 1, Max: 4, P99: 4}) {
		t.Errorf("%+v", *s)
	}
	var many []float64
	for i := range 200 {
		many = append(many, float64(i+1))
	}
	if s := newSpread(many); s.P99 != 198 || s.Median != 100.5 {
		t.Errorf("%+v", *s)
	}
}

func TestRefusals(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "page.md")
	write(t, empty, "# No place\n")
	for want, args := range map[string][]string{
		"there is no step":   {"-steps", "single,nonsense"},
		"there is no engine": {"-engine", ""},
	} {
		if err := run(t.Context(), args, t.Output(), t.Output()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %q", args, err, want)
		}
	}
	if _, err := build(t.Context(), []string{"nonsense"}); err == nil || !strings.Contains(err.Error(), "there is no client") {
		t.Errorf("unknown client: %v", err)
	}
	if err := (&report{}).write(t.Output(), "", empty); err == nil || !strings.Contains(err.Error(), "no place") {
		t.Errorf("page without marks: %v", err)
	}
	if read(t, empty) != "# No place\n" {
		t.Error("the page was changed")
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

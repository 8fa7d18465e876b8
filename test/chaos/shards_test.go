// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/test/harness/must"
)

// TestShards makes a quick run of all scenes, with processes that are killed.
func TestShards(t *testing.T) {
	newPlan(t, "dynoxide", time.Second)
	var all *results
	if err := must.Try(func() {
		all = measureShards(t.Context(), []string{fileEngine, "dynoxide"}, quick, t.Logf)
		must.Do(all.missed())
	}); err != nil {
		t.Fatal(err)
	}
	for _, f := range all.Stores {
		if f.Terms < quick.Partitions ||
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

func TestJudgeShards(t *testing.T) {
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

func TestClassify(t *testing.T) {
	prev := held("k", "v1")
	prev.Token, prev.Data, prev.Requests = 4, []byte("x"), []driver.Request{{ID: "q1"}}
	for _, tc := range []struct {
		want   faultstore.Op
		change func(*driver.Record)
	}{
		{faultstore.OpHeartbeat, func(r *driver.Record) { r.Beat = "v2" }},
		{faultstore.OpSetData, func(r *driver.Record) { r.Data = []byte("y") }},
		{faultstore.OpHeartbeat, func(r *driver.Record) { r.Requests = nil }},
		{faultstore.OpRequest, func(r *driver.Record) { r.Requests, r.Data = append(r.Requests, driver.Request{ID: "q2"}), nil }},
		{faultstore.OpReserve, func(r *driver.Record) { r.State, r.Data = driver.Reserved, nil }},
		{faultstore.OpRelease, func(r *driver.Record) { r.State, r.Data = driver.Released, nil }},
		{faultstore.OpClose, func(r *driver.Record) { r.State, r.Data = driver.Closed, nil }},
		{faultstore.OpTakeover, func(r *driver.Record) { r.Token, r.State = 5, driver.Released }},
	} {
		next := prev.Clone()
		tc.change(&next)
		if got := faultstore.Classify(prev, next); got != tc.want {
			t.Errorf("Classify = %q, want %q", got, tc.want)
		}
	}
}

// outcomes makes n reads of key and returns the numbers of those that failed.
func outcomes(t *testing.T, f *fixture, key string, n int) []int {
	t.Helper()
	var failed []int
	for i := 1; i <= n; i++ {
		_, err := f.Get(t.Context(), key, driver.Strong)
		if errors.Is(err, faultstore.ErrInjected) {
			failed = append(failed, i)
		}
	}
	return failed
}

func TestRuleConditions(t *testing.T) {
	for _, tc := range []struct {
		name string
		rule faultstore.Rule
		want []int // of five reads of "k"
	}{
		{"all", faultstore.Rule{}, []int{1, 2, 3, 4, 5}},
		{"nth", faultstore.Rule{Skip: 2, Count: 1}, []int{3}},
		{"other op", faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClaim}}, nil},
		{"one of the ops", faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClaim, faultstore.OpGet}, Count: 2}, []int{1, 2}},
		{"other key", faultstore.Rule{Key: "x"}, nil},
		{"key", faultstore.Rule{Key: "k", Skip: 4}, []int{5}},
		{"func", faultstore.Rule{Match: func(c faultstore.Call) bool { return c.N%2 == 0 }}, []int{2, 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			defer f.Close()
			tc.rule.Fault = faultstore.LoseRequest()
			remove := f.Inject(tc.rule)
			if got := outcomes(t, f, "k", 5); !slices.Equal(got, tc.want) {
				t.Errorf("calls %v failed, want %v", got, tc.want)
			}
			remove()
			if got := outcomes(t, f, "k", 5); got != nil {
				t.Errorf("calls %v failed without the rule", got)
			}
		})
	}
}

func TestRulesInOrder(t *testing.T) {
	f := newFixture(t)
	defer f.Close()
	first, second := errors.New("first"), errors.New("second")
	f.Inject(
		faultstore.Rule{Count: 1, Fault: faultstore.Fault{Effect: faultstore.RequestLost, Err: first}},
		faultstore.Rule{Decide: func(c faultstore.Call) faultstore.Fault {
			if f.Count(c.Op) == 2 { // calls the store, which it may
				return faultstore.Fault{Effect: faultstore.RequestLost, Err: second}
			}
			return faultstore.Fault{}
		}},
	)
	for i, want := range []error{first, second, nil} {
		if _, err := f.Get(t.Context(), "k", driver.Strong); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i+1, err, want)
		}
	}
}

func TestProbabilityIsSeeded(t *testing.T) {
	run := func(seed uint64) []int {
		s := faultstore.New(memstore.New(), &faultstore.Options{Seed: seed})
		defer s.Close()
		s.Inject(faultstore.Rule{Probability: 0.3, Fault: faultstore.LoseRequest()})
		return outcomes(t, &fixture{Store: s}, "k", 1000)
	}
	a, b, c := run(1), run(1), run(2)
	if !slices.Equal(a, b) {
		t.Error("the same seed gave other faults")
	}
	if slices.Equal(a, c) {
		t.Error("another seed gave the same faults")
	}
	if len(a) < 200 || len(a) > 400 {
		t.Errorf("%d faults of 1000 calls with probability 0.3", len(a))
	}
}

func TestLog(t *testing.T) {
	f := newFixture(t)
	defer f.Close()
	ctx := t.Context()
	f.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Count: 1, Fault: faultstore.LoseReply()})
	next := heartbeat(f.rec, "v2")
	_, _ = f.Swap(ctx, f.rec, next) // the log has their results
	_, _ = f.Swap(ctx, next, release(next, "v3"))
	_, _ = f.List(ctx, "", "")
	var got []string
	for _, l := range f.Log() {
		got = append(got, l.String())
	}
	want := []string{`heartbeat "k" #1: injected fault`, `release "k" #1: ok`, `list "" #1: ok`}
	if !slices.Equal(got, want) {
		t.Errorf("log %q, want %q", got, want)
	}
	if got := fmt.Sprint(f.Count(), f.Count(faultstore.OpRelease, faultstore.OpList)); got != "3 2" {
		t.Errorf("counts %s, want 3 2", got)
	}
	f.ResetLog()
	if f.Count() != 0 || len(f.Log()) != 0 {
		t.Error("ResetLog left something")
	}
}

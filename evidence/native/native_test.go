// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/tenurelock/tenure/evidence/bed/page"
)

// TestPage holds the page to the run that it shows.
func TestPage(t *testing.T) {
	r := &report{}
	if err := page.ReadJSON("results.json", r); err != nil {
		t.Fatal(err)
	}
	for _, e := range engines {
		if r.of(e, "AcquireRelease", e.native, "/goroutines=32") == nil {
			t.Errorf("%s was not looked at", e.name)
		}
		if e.name != "postgres" && r.of(e, "FailOver", e.native, "") == nil {
			t.Errorf("no holder of %s was killed", e.name)
		}
	}
	if err := page.Check("../../docs/evidence/performance.md", r.markdown(), command); err != nil {
		t.Error(err)
	}
}

func TestRead(t *testing.T) {
	r := &report{Figures: map[string][]float64{}}
	r.read("./etcdstore", []byte("goos: linux\n"+
		"BenchmarkAcquireRelease/tenure/goroutines=1-2         \t     200\t   2000000 ns/op\n"+
		"BenchmarkAcquireRelease/mutex/goroutines=1            \t     200\t   1000000 ns/op\n"+
		"BenchmarkHandOver/tenure-2                            \t     200\t      4106 µs-median\n"+
		"BenchmarkHandOver/mutex-2                             \t     200\t      2053 µs-median\n"+
		"BenchmarkFailOver/tenure-2                            \t       1\t   4853372 µs-failover\n"+
		"BenchmarkFailOver/mutex-2                             \t       1\t   4853372 µs-failover\nPASS\n"))
	text := r.markdown()
	for _, want := range []string{
		"| etcd | `concurrency.Mutex` | **500**, 1000 | – | **4.11**, 2.05 | **4.85**, 4.85 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestNoEngine(t *testing.T) {
	for _, e := range engines {
		t.Setenv(e.needs, "")
	}
	if err := run(t.Context(), nil, nil, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "scripts/engines") {
		t.Errorf("%v", err)
	}
}

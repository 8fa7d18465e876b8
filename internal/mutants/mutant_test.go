// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestMutantsStand: what each mutant replaces stands in the code, once. `make mutants` runs
// them.
func TestMutantsStand(t *testing.T) {
	all, err := load("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d mutants", len(all))
	for _, m := range all {
		for path, text := range m.source {
			if text == "" {
				t.Errorf("%s leaves nothing of %s", m.name, path)
			}
		}
	}
}

// TestRandom: each operator finds places.
func TestRandom(t *testing.T) {
	all, err := random("../../once", 1<<20, 1)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, m := range all {
		what, _, _ := strings.Cut(m.rule, ":")
		seen[what]++
	}
	for _, what := range []string{
		"condition negated", "error ignored", "statement dropped", "arguments swapped", "off by one", "< for <=", "&& for ||", "+ for -",
	} {
		if seen[what] == 0 {
			t.Errorf("no place for %q; there are %v", what, seen)
		}
	}
	t.Logf("%d places", len(all))
}

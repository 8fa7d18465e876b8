// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

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

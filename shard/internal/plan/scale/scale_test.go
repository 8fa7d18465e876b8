// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"os"
	"strings"
	"testing"
)

// TENURE_SCALE=1 prints the table for 1,000 workers and 100,000 partitions, which
// takes minutes. Without it the group has 40 and 4,000.
func TestTable(t *testing.T) {
	workers, partitions := 40, 4_000
	if os.Getenv("TENURE_SCALE") != "" {
		workers, partitions = 1_000, 100_000
	}
	var table strings.Builder
	if err := printTable(&table, workers, partitions); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	for _, r := range ours(40, 4_000) {
		if r.Moves > r.Due || r.Often > 2 {
			t.Errorf("%s: %d moves where %d would do, one partition moves %d times", r.Event, r.Moves, r.Due, r.Often)
		}
		if r.Worst > 1.0625+0.01 {
			t.Errorf("%s: the fullest has %.3f of its share", r.Event, r.Worst)
		}
	}
	for _, r := range byTaker(40, 4_000) {
		if r.Moves < r.Due/4 || r.After > 1.05 {
			t.Errorf("%s: the taker is not modelled well: %+v", r.Event, r)
		}
	}
}

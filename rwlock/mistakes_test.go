// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package rwlock_test

import (
	"testing"

	"github.com/tenurelock/tenure/rwlock"
)

// mostSeeds is within how many random schedules each mistake must be found.
const mostSeeds = 300

// TestEachMistakeIsFound makes each mistake, and runs random schedules until they find it.
func TestEachMistakeIsFound(t *testing.T) {
	for _, m := range rwlock.Mistakes() {
		t.Run(m.String(), func(t *testing.T) {
			defer rwlock.Make(m)()
			for seed := range mostSeeds {
				if r := schedule(t, uint64(seed)); r.found != "" {
					t.Logf("seed %d: %s", seed, r.found)
					return
				}
			}
			t.Errorf("not found in %d schedules", mostSeeds)
		})
	}
}

// TestWaitingForFreeSlotsIsFound makes the mistake that keeps a writer out for ever.
func TestWaitingForFreeSlotsIsFound(t *testing.T) {
	defer rwlock.Make(rwlock.WaitsForFree)()
	onStage(t, func(t *testing.T, s *stage) {
		if took := besideReadersThatTurnBack(t, s); took < 10*lease {
			t.Errorf("the writer came after %v", took)
		}
	})
}

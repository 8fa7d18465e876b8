// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package rwlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure/rwlock"
)

// mostSeeds is within how many random schedules each mistake must be found. Nearly always 50
// are enough.
const mostSeeds = 300

// TestEachMistakeIsFound makes each mistake that is not rare, and runs random schedules until
// they find it.
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

// TestRareMistakesAreFound makes the mistakes that random schedules seldom find, each in a
// scene that shows it.
func TestRareMistakesAreFound(t *testing.T) {
	for m, scene := range map[rwlock.Mistake]func(t *testing.T, s *stage) (found bool){
		// It keeps a writer out for ever.
		rwlock.WaitsForFree: func(t *testing.T, s *stage) bool { return besideReadersThatTurnBack(t, s) >= 10*lease },

		rwlock.GateReleasedFirst: besideTheNext,
		rwlock.DowngradeBelieves: besideTheNext,
		rwlock.WriterNotWaited:   besideASilentWriter,
	} {
		t.Run(m.String(), func(t *testing.T) {
			defer rwlock.Make(m)()
			onStage(t, func(t *testing.T, s *stage) {
				if !scene(t, s) {
					t.Error("not found")
				}
			})
		})
	}
}

func besideTheNext(t *testing.T, s *stage) bool {
	t.Helper()
	beside, _ := downgradeWhoseGateIsTaken(t, s)
	return beside
}

func besideASilentWriter(t *testing.T, s *stage) bool {
	t.Helper()
	w, r := s.process("w"), s.process("r")
	written, err := w.AcquireWrite(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.client.Partition()
	for {
		time.Sleep(refresh)
		switch _, err := r.TryAcquireRead(t.Context(), nil); {
		case err == nil:
			return written.Check() == nil
		case !errors.Is(err, rwlock.ErrBusy):
			t.Fatal(err)
		}
	}
}

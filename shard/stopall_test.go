// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard"
)

// stopAll stops workers at once, and returns how long it takes until the last one
// has gone. None may say that it left early.
func (s *stage) stopAll(workers ...*worker) time.Duration {
	s.t.Helper()
	begun := time.Now()
	for _, w := range workers {
		w.stop()
	}
	for _, w := range workers {
		if err := w.quit(); err != nil {
			s.t.Errorf("%s: %v", w.owner, err)
		}
	}
	return time.Since(begun)
}

// free fails the test if somebody has a partition, or one is kept for somebody.
func (s *stage) free(partitions int) {
	s.t.Helper()
	for id := range partitions {
		st, err := s.looker().Status(s.t.Context(), shard.LockName(name, fmt.Sprint(id)))
		if err != nil || st.Held || st.ReservedFor != "" {
			s.t.Errorf("partition %d: held %v by %s, reserved for %q, %v", id, st.Held, st.Owner, st.ReservedFor, err)
		}
	}
}

// looker returns a client that only looks.
func (s *stage) looker() *tenure.Client {
	if s.looks == nil {
		s.looks = s.make("looker").client
	}
	return s.looks
}

// staggered starts workers that do not look at the same moment.
func (s *stage) staggered(n int, edit ...func(*shard.Options)) []*worker {
	workers := make([]*worker, n)
	for i := range workers {
		workers[i] = s.worker(fmt.Sprintf("w%d", i), edit...)
		time.Sleep(rand.N(refresh))
	}
	return workers
}

// All workers of a group that are stopped at once are gone within a look, and the
// time that the slowest handler takes: nobody waits for one that leaves, and nothing
// is kept for one. Who comes back finds everything free.
func TestAllAreStoppedAtOnce(t *testing.T) {
	runs := 40
	if testing.Short() {
		runs = 8
	}
	const partitions = 8
	for _, n := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprintf("%d workers", n), func(t *testing.T) {
			var worst, back time.Duration
			for run := range runs {
				onStage(t, shard.Options{Partitions: partitions}, func(t *testing.T, s *stage) {
					s.blind = run%2 == 1
					workers := s.staggered(n)
					s.settle(n, partitions)
					time.Sleep(rand.N(5 * refresh))
					slowest := time.Duration(0)
					for _, w := range workers {
						w.drain.Store(int64(rand.N(3 * refresh)))
						slowest = max(slowest, time.Duration(w.drain.Load()))
					}
					took := s.stopAll(workers...) - slowest
					if worst = max(worst, took); took > refresh {
						t.Errorf("run %d: gone %v after the slowest handler, want %v at most", run, took, refresh)
					}
					s.free(partitions)
					for i := range n {
						s.worker(fmt.Sprintf("again%d", i))
					}
					took = s.until("all are owned again", lease, func() bool { _, all := s.owned(); return all == partitions })
					if back = max(back, took); took > 5*refresh {
						t.Errorf("run %d: owned again after %v", run, took)
					}
				})
			}
			t.Logf("gone after %v at most, beside the slowest handler; owned again after %v", worst, back)
		})
	}
}

// So it is for many workers, whose number does not count.
func TestManyAreStoppedAtOnce(t *testing.T) {
	for _, n := range []int{4, 20, 100} {
		if n > 20 && testing.Short() {
			continue
		}
		t.Run(fmt.Sprintf("%d workers", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				partitions := 10 * n
				s := newStage(t, shard.Options{Partitions: partitions, Plans: &shard.Plans{}})
				s.light = true
				workers := s.staggered(n)
				s.settle(n, partitions)
				for _, w := range workers {
					w.drain.Store(int64(100 * time.Millisecond))
				}
				took := s.stopAll(workers...)
				t.Logf("%d workers with %d partitions are gone after %v", n, partitions, took)
				if took > refresh+100*time.Millisecond {
					t.Errorf("gone after %v", took)
				}
				s.free(partitions)
			})
		})
	}
}

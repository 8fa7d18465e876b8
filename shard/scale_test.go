// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/shard"
)

// Many workers come at once, crash, leave, and come. The environment variable
// TENURE_SHARD_SCALE, "1000x100000" say, sets how many workers and partitions there are.
func TestManyWorkers(t *testing.T) {
	n, partitions := 50, 5000 // more of each than follow their session in one step
	if size := os.Getenv("TENURE_SHARD_SCALE"); size != "" {
		if _, err := fmt.Sscanf(size, "%dx%d", &n, &partitions); err != nil {
			t.Fatalf("TENURE_SHARD_SCALE %q: %v", size, err)
		}
	} else if testing.Short() {
		t.Skip("takes long: make nightly-engines runs it")
	}
	onWorld(t, shard.Options{Partitions: partitions, Plans: &shard.Plans{}}, func(t *testing.T, s *world) {
		workers := s.come(n, atOnce)
		t.Logf("%d workers with %d partitions have all as planned after %v", n, partitions, s.settle(n, partitions))
		s.reset()

		share := workers[n/2].Stats().Held
		workers[n/2].crash()
		took := s.all(partitions, silence+5*refresh)
		all, most := s.moves()
		t.Logf("one with %d crashes: all are owned after %v, settled %v later; %d moves, %d of one at most", share, took, s.settle(n-1, partitions), all, most)
		if most > 1 || all > share {
			t.Errorf("%d moves, %d of one partition, after a crash of a worker with %d", all, most, share)
		}
		s.reset()

		share = workers[1].Stats().Held
		workers[1].drain.Store(int64(100 * time.Millisecond))
		begun := time.Now()
		testutil.Want(t, workers[1].quit(), nil)
		left := time.Since(begun)
		s.settle(n-2, partitions)
		all, most = s.moves()
		gap := s.gap(refresh + refresh/2)
		t.Logf("one with %d leaves in %v: %d moves, %d of one at most, the longest gap is %v", share, left, all, most, gap)
		s.reset()

		w := s.worker("new")
		took = s.settle(n-1, partitions)
		all, most = s.moves()
		gap = s.gap(time.Minute)
		t.Logf("one comes, and has its %d after %v: %d moves, %d of one at most, the longest gap is %v", w.Stats().Held, took, all, most, gap)
		if most > 1 || all > partitions/(n-1)*3/2 {
			t.Errorf("%d moves, %d of one partition, for a worker with %d", all, most, w.Stats().Held)
		}
	})
}

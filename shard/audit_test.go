// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/shard"
)

var errThere = errors.New("no answer")

// The partitions of a dead worker are found by the others though the coordinator does
// nothing: it lives, and cannot read what the group is.
func TestCoordinatorThatDoesNothing(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 40}, func(t *testing.T, s *world) {
		const workers = 5
		s.come(workers, func() { time.Sleep(2 * refresh) })
		s.settle(workers, 40)
		time.Sleep(lease)
		if !s.workers[0].Stats().Coordinator {
			t.Fatal("another one coordinates")
		}
		s.workers[0].client.Faults().Inject(faultstore.Rule{
			Key: shard.SpecName(name), Fault: faultstore.Fault{Effect: faultstore.Refused, Err: driver.NotApplied(errThere)},
		})
		time.Sleep(lease)
		s.workers[3].crash()
		took := s.all(40, 20*lease)
		t.Logf("after %v", took)
	})
}

// A partition that its planned owner gives up is found by another worker two leases after
// that has looked at it, and they look at all of them one after the other.
func TestAuditFindsEach(t *testing.T) {
	const partitions, workers, failing = 120, 5, 20 // so few that owners do not come back before
	onWorld(t, shard.Options{Partitions: partitions}, func(t *testing.T, s *world) {
		var mu sync.Mutex
		at := map[string]string{}    // the worker that has a partition
		fails := map[string]string{} // partitions, by the worker that fails
		given, runs := map[string]time.Time{}, map[string]int{}
		fail := make(chan struct{})
		var sum, longest time.Duration
		handler := func(w *worker) shard.Handler {
			return func(ctx context.Context, p *shard.Partition) error {
				mu.Lock()
				if by, ill := fails[p.ID()]; ill && by != w.owner {
					took := time.Since(given[p.ID()])
					sum, longest = sum+took, max(longest, took)
					delete(fails, p.ID())
				}
				at[p.ID()] = w.owner
				mu.Unlock()
				select {
				case <-ctx.Done():
					return nil
				case <-fail:
				}
				mu.Lock()
				if fails[p.ID()] == w.owner {
					defer mu.Unlock()
					if runs[p.ID()]++; runs[p.ID()] <= 5 { // then it is given up for the first time
						given[p.ID()] = time.Now()
					}
					return errThere
				}
				mu.Unlock()
				<-ctx.Done()
				return nil
			}
		}
		for i := range workers {
			w := s.make(fmt.Sprint("w", i))
			w.start(handler(w))
		}
		s.settle(workers, partitions)
		mu.Lock()
		for i := range failing {
			id := fmt.Sprint(i * partitions / failing)
			fails[id] = at[id]
		}
		mu.Unlock()
		close(fail)
		s.until("all are found", time.Hour, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(fails) == 0
		})
		t.Logf("after %v in the mean, %v at most", sum/failing, longest)
		// Each of them looks at two in four refresh periods, and passes over its own. The
		// workers are not equally spaced, and the next one may be the owner.
		const once = partitions * 4 / (2 * workers) * refresh
		if most := 3*lease + 2*once; longest > most {
			t.Errorf("one was found after %v, more than %v", longest, most)
		}
	})
}

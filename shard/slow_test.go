// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/shard"
)

// slow has each write of the workers that come take so long, one after the other.
func (s *world) slow(write time.Duration) {
	var busy time.Time // until when the store writes
	s.faults = append(s.faults, faultstore.Rule{
		Match: func(c faultstore.Call) bool { return c.Op.IsWrite() },
		Decide: func(faultstore.Call) faultstore.Fault {
			s.mu.Lock()
			defer s.mu.Unlock()
			if now := time.Now(); busy.Before(now) {
				busy = now
			}
			busy = busy.Add(write)
			return faultstore.Slow(time.Until(busy), 0)
		},
	})
}

// idle fails the test if a goroutine is in the package: all workers have ended.
func (s *world) idle() {
	s.t.Helper()
	stacks := make([]byte, 1<<22)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		for line := range strings.Lines(stack) {
			if strings.HasPrefix(line, "github.com/tenurelock/tenure/shard.(*worker)") || strings.HasPrefix(line, "github.com/tenurelock/tenure/shard.(*coordinator)") {
				s.t.Errorf("it goes on:\n%s", stack)
				return
			}
		}
	}
}

// When Run has returned nothing of it goes on: no preparation of the user's, no claim,
// no handler, and nothing that is done about one.
func TestNothingGoesOnAfterRun(t *testing.T) {
	t.Run("a preparation", func(t *testing.T) {
		onWorld(t, shard.Options{Partitions: 10, LeaveTimeout: -1}, func(t *testing.T, s *world) {
			var preparing, prepared atomic.Int64
			s.worker("a")
			s.settle(1, 10)
			b := s.worker("b", func(o *shard.Options) {
				o.Prepare = func(ctx context.Context, _ string) error {
					preparing.Add(1)
					<-ctx.Done()
					time.Sleep(5 * time.Second) // it puts things away
					prepared.Add(1)
					return nil
				}
			})
			s.until("b prepares", lease, func() bool { return preparing.Load() > 0 })
			_ = b.quit() // it has nothing
			if n, all := prepared.Load(), preparing.Load(); n != all {
				t.Errorf("%d of %d preparations have ended", n, all)
			}
		})
	})
	t.Run("claims and moves", func(t *testing.T) {
		for range 20 {
			onWorld(t, shard.Options{Partitions: 60, LeaveTimeout: -1}, func(t *testing.T, s *world) {
				s.slow(20 * time.Millisecond)
				s.come(3, func() {
					s.drains(refresh)
					time.Sleep(rand.N(2 * refresh))
				})
				time.Sleep(rand.N(3 * refresh))
				for _, w := range s.workers {
					w.stop()
				}
				for _, w := range s.workers {
					_ = w.quit() // it may have had something yet
				}
				s.idle()
				if at := s.at(); len(at) > 0 {
					t.Errorf("handlers are at work: %v", at)
				}
			})
		}
	})
}

// While all workers are well, none claims another's partition, however slow that one
// is.
func TestNobodyAdoptsInACalmGroup(t *testing.T) {
	const n, partitions = 10, 400
	onWorld(t, shard.Options{Partitions: partitions, Audit: 20}, func(t *testing.T, s *world) {
		s.slow(20 * time.Millisecond)
		s.come(n, atOnce)
		s.settle(n, partitions)
		s.worker("new")
		s.settle(n+1, partitions)
		_ = s.workers[3].quit()
		s.settle(n, partitions)
		time.Sleep(3 * lease)
		for _, w := range s.workers {
			if k := len(w.of(shard.EventAdopted)); k > 0 {
				t.Errorf("%s has adopted %d partitions", w.owner, k)
			}
		}
	})
}

// Many workers that fill a group on a store which is too slow for all of their
// claims at once keep their sessions: their heartbeats must get through.
func TestFillOnASlowStore(t *testing.T) {
	enginetest.MakeVerify(t)
	const n, partitions = 20, 2000
	onWorld(t, shard.Options{Partitions: partitions}, func(t *testing.T, s *world) {
		const write = 20 * time.Millisecond
		s.slow(write)
		s.come(n, atOnce)
		took := s.settle(n, partitions)
		lost := 0
		for _, w := range s.workers {
			lost += len(w.of(shard.EventLost))
		}
		if most := 3 * partitions * write; lost > 0 || took > most {
			t.Errorf("all were owned after %v, and %d sessions were lost; writes take %v", took, lost, partitions*write)
		}
	})
}

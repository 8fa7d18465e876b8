// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/shard"
)

// orphan applies a claim of a worker's session that the worker does not know: it comes
// late, when the worker has given the lock back.
func (s *world) orphan(w *worker, lock string) {
	s.t.Helper()
	st, err := w.client.Status(s.t.Context(), shard.MemberName(name, w.Stats().Place))
	if err != nil || st.Session == "" {
		s.t.Fatalf("the session of %s: %q, %v", w.owner, st.Session, err)
	}
	rec := driver.Record{
		Key: lock, Version: "late " + lock, Beat: "late " + lock, Owner: w.owner, Lease: lease, State: driver.Held, Session: st.Session,
	}
	if strings.HasPrefix(lock, strings.TrimSuffix(st.Name, fmt.Sprint(w.Stats().Place))) {
		rec.Data = st.Data // of a place
	}
	_, _, err = s.Store().Claim(s.t.Context(), rec)
	if err != nil {
		s.t.Fatal(err)
	}
}

// A partition that is held in the name of the worker's own session, without the worker
// knowing of it, is the worker's after its next poll: the session lives, and no other
// worker would ever ask about it.
func TestOrphanedClaim(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 3}, func(t *testing.T, s *world) {
		a := s.worker("a")
		s.settle(1, 3)
		s.orphan(a, shard.LockName(name, "3"))
		testutil.Want(t, a.Resize(t.Context(), 4), nil)
		took := s.settle(1, 4)
		if most := 4 * refresh; took > most {
			t.Errorf("it took %v, want %v at most", took, most)
		}
		for _, e := range a.of(shard.EventError) {
			t.Errorf("error: %v", e.Err)
		}
	})
}

// The lock of the coordinator can be such a lock. Every other worker sees a living
// session that has it, and would wait for ever.
func TestOrphanedClaimOfTheCoordinator(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 6}, func(t *testing.T, s *world) {
		a := s.worker("a")
		s.settle(1, 6)
		why := &tenure.StepDownOptions{Reason: "to see what follows"}
		testutil.Want(t, a.client.StepDown(t.Context(), shard.CoordinatorLockName(name), why), nil)
		s.until("nobody leads", lease, func() bool {
			st, err := a.client.Status(t.Context(), shard.CoordinatorLockName(name))
			return err == nil && st.State == tenure.StateReleased
		})
		s.orphan(a, shard.CoordinatorLockName(name))
		s.worker("b")
		took := s.settle(2, 6)
		if most := 2 * lease; took > most {
			t.Errorf("it took %v, want %v at most", took, most)
		}
	})
}

// A partition that is held in the name of another worker's session, without that
// worker knowing of it, is given up when it is asked for, like a known one.
func TestOrphanedClaimOfAnotherWorker(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 6}, func(t *testing.T, s *world) {
		a, b := s.worker("a"), s.worker("b")
		s.settle(2, 6)
		for i := range 8 {
			s.orphan([]*worker{a, b}[i/4], shard.LockName(name, fmt.Sprint(6+i)))
		}
		testutil.Want(t, a.Resize(t.Context(), 14), nil)
		took := s.settle(2, 14)
		if most := 2 * lease; took > most {
			t.Errorf("it took %v, want %v at most", took, most)
		}
	})
}

// A second place of a worker is given up, though nobody asks for it: the plan would give it
// partitions that nobody claims.
func TestOrphanedPlace(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 6, Audit: -1}, func(t *testing.T, s *world) {
		a, b := s.worker("a"), s.worker("b")
		s.settle(2, 6)
		for _, w := range []*worker{a, b} {
			s.orphan(w, shard.MemberName(name, 2+w.Stats().Place))
		}
		time.Sleep(5 * refresh)
		if took := s.settle(2, 6); took > lease {
			t.Errorf("it took %v, want %v at most", took, lease)
		}
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tenuretest"
)

// world fails the test when the work for a slot is begun more often than it may be.
type world struct {
	*tenuretest.World
	t         *testing.T
	born      time.Time
	twice     bool // a slot may be begun again
	unordered bool // it may be begun after a later one

	mu      sync.Mutex
	starts  map[int64]int // by slot
	last    int64
	periods periods
}

func newWorld(t *testing.T, w *tenuretest.World) *world {
	s := &world{World: w, t: t, born: time.Now(), starts: map[int64]int{}, last: math.MinInt64}
	s.Observe(s.note)
	return s
}

// work returns work that is counted.
func (s *world) work(work once.Work) once.Work {
	return func(ctx context.Context, turn *once.Turn) error {
		slot := turn.Slot()
		s.mu.Lock()
		if turn.Attempt() == 1 {
			if s.starts[slot]++; s.starts[slot] > 1 && !s.twice {
				s.t.Errorf("slot %d was begun %d times", slot, s.starts[slot])
			}
			if slot < s.last && !s.twice && !s.unordered {
				s.t.Errorf("slot %d was begun after slot %d", slot, s.last)
			}
			s.last = slot
		}
		s.mu.Unlock()
		if err := turn.Check(); err != nil {
			s.t.Errorf("%s begins slot %d: %v", turn.Owner(), slot, err)
		}
		if work == nil {
			return nil
		}
		return work(ctx, turn)
	}
}

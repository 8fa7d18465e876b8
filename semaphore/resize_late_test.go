// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/semaphore"
)

// A holder that renews at the last moment, while the answer to a look at it is on its way, has
// not left when Resize returns: no refused write tells of it.
func TestResizeWaitsForOneThatRenewsAtTheLastMoment(t *testing.T) {
	const rounds = 120
	late := func(o *tenure.Options) {
		o.Grace, o.MaxClockDrift = 100*time.Millisecond, 0.0001
		o.RefreshPeriod, o.RequestTimeout = lease/5, 2900*time.Millisecond // few looks
	}
	renewed := 0
	for step := range rounds {
		onStage(t, 2, func(t *testing.T, s *stage) {
			p, operator := s.process("p", 2, late), s.process("operator", 2, late)
			var gone *semaphore.Lease // the one that is, when there is one slot
			for range 2 {
				l, err := p.Acquire(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if l.Slot() == 1 {
					gone = l
				} else {
					defer func() { _ = l.Release(t.Context()) }()
				}
			}
			time.Sleep(2*refresh + time.Duration(step)*23*time.Millisecond) // somewhere between two heartbeats
			var healed atomic.Bool
			p.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Key: gone.Name(), Decide: func(faultstore.Call) faultstore.Fault {
				switch { // one is let through
				case healed.Load():
					return faultstore.BlackHole()
				case gone.Remaining() > 250*time.Millisecond:
					return faultstore.Refuse()
				}
				healed.Store(true)
				return faultstore.Fault{}
			}})
			operator.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Decide: func(faultstore.Call) faultstore.Fault {
				if gone.Remaining() < 3*time.Second && !healed.Load() {
					return faultstore.Slow(0, 2800*time.Millisecond)
				}
				return faultstore.Fault{}
			}})
			if err := operator.Resize(t.Context(), 1, &semaphore.ResizeOptions{Wait: true}); err != nil {
				t.Fatal(err)
			}
			if gone.Check() == nil {
				t.Errorf("slot 1 is held %v before its deadline, and Resize has returned", gone.Remaining())
			}
			if healed.Load() {
				renewed++
			}
			_ = gone.Release(t.Context()) // it was lost
		})
	}
	if renewed < rounds/3 {
		t.Errorf("the holder renewed at the last moment in %d of %d rounds", renewed, rounds)
	}
}

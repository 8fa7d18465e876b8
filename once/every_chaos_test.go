// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tenuretest"
)

// Three hosts with clocks that are wrong by 8 %, killed, cut off, slow and stepped at
// random: periods are never too near, and as long as a process is alive they come.
func TestEveryThroughFaults(t *testing.T) {
	enginetest.MakeVerify(t)
	seeds := 10
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { everyThroughFaults(t, uint64(seed)) })
		})
	}
}

func everyThroughFaults(t *testing.T, seed uint64) {
	const period = 2 * time.Minute
	s := newWorld(t, tenuretest.New(t, quiet))
	s.unordered = true // a run may begin after a later period was begun elsewhere: the claims are what is ordered
	long := 6 * time.Hour
	if testing.Short() {
		long = 2 * time.Hour
	}
	until := time.Now().Add(long)
	var all sync.WaitGroup
	for i, rate := range []float64{1.08, 0.92, 1} {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		var turn sync.Mutex // the work draws too
		some := func(d time.Duration) time.Duration {
			turn.Lock()
			defer turn.Unlock()
			return time.Duration(random.Int64N(int64(d)))
		}
		all.Go(func() {
			for until.After(time.Now()) {
				h := s.host(fmt.Sprintf("host-%d", i))
				h.SetRate(rate)
				slow := rand.New(rand.NewPCG(seed, uint64(i)+100))
				var mu sync.Mutex
				h.Faults().Inject(faultstore.Rule{Decide: func(faultstore.Call) faultstore.Fault {
					mu.Lock()
					defer mu.Unlock()
					switch slow.IntN(20) {
					case 0:
						return faultstore.LoseReply()
					case 1:
						return faultstore.LateAfterError(time.Duration(slow.Int64N(int64(20 * time.Second))))
					}
					return faultstore.Slow(time.Duration(slow.Int64N(int64(700*time.Millisecond))), time.Duration(slow.Int64N(int64(700*time.Millisecond))))
				}})
				stop := h.lives(period, nil, func(ctx context.Context, turn *once.Turn) error {
					return takes(some(20*time.Second))(ctx, turn)
				})
				for range 3 {
					time.Sleep(some(10 * time.Minute))
					switch some(3) {
					case 0:
						h.Partition()
						time.Sleep(some(time.Minute))
						h.Heal()
					case 1:
						h.Step(some(5 * time.Minute))
					}
				}
				h.Partition()
				stop()
				h.Kill()
				time.Sleep(some(10 * time.Minute))
			}
		})
	}
	all.Wait()
	s.spaced(period * 100 / 108)
	at := s.begun()
	if least := int(long/period) / 3; len(at) < least {
		t.Errorf("%d periods in %v", len(at), long)
	}
	for n, times := range s.starts {
		if times > 1 {
			t.Errorf("period %d was run %d times", n, times)
		}
	}
	var longest time.Duration
	for i := 1; i < len(at); i++ {
		longest = max(longest, at[i]-at[i-1])
	}
	t.Logf("%d periods begun, %d run; the longest took %v", len(at), len(s.starts), longest)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/shard"
)

// times runs f in worlds of their own. In every other world no hint arrives.
func times(t *testing.T, n int, options shard.Options, f func(s *world, run int)) {
	t.Helper()
	if testing.Short() {
		n = max(2, n/5)
	}
	for run := range n {
		onWorld(t, options, func(t *testing.T, s *world) {
			s.blind = run%2 == 1
			f(s, run)
		})
		if t.Failed() {
			t.Fatalf("in run %d", run)
		}
	}
}

// drains has the handlers of all workers take some time to stop, and returns the longest.
func (s *world) drains(most time.Duration) (slowest time.Duration) {
	for _, w := range s.workers {
		w.drain.Store(int64(rand.N(most)))
		slowest = max(slowest, time.Duration(w.drain.Load()))
	}
	return slowest
}

// stopAll stops workers at once, and returns how long it takes until the last one has gone.
// None may say that it left early.
func (s *world) stopAll(workers ...*worker) time.Duration {
	s.t.Helper()
	begun := time.Now()
	for _, w := range workers {
		w.stop()
	}
	for _, w := range workers {
		testutil.Want(s.t, w.quit(), nil)
	}
	return time.Since(begun)
}

// free fails the test if a partition is owned or reserved.
func (s *world) free(partitions int) {
	s.t.Helper()
	for id := range partitions {
		st, err := s.workers[0].client.Status(s.t.Context(), shard.LockName(name, fmt.Sprint(id)))
		if err != nil || st.Held || st.ReservedFor != "" {
			s.t.Errorf("partition %d: held %v by %s, reserved for %q, %v", id, st.Held, st.Owner, st.ReservedFor, err)
		}
	}
}

// All workers of a group that are stopped at once, or between two polls, are gone after
// one poll and the time of the slowest handler: no worker waits for a leaving one, and
// nothing is reserved for one. Their number, zones and weights do not matter. A worker
// that comes back finds everything free.
func TestAllAreStoppedAtOnce(t *testing.T) {
	enginetest.MakeVerify(t)
	const partitions = 24
	zones := map[string]string{}
	for i := range partitions {
		zones[fmt.Sprint(i)] = string(rune('a' + i%2))
	}
	mixed := func(o *shard.Options) {
		o.Zone, o.Weight = string(rune('a'+rand.N(2))), float64(1+rand.N(4))
	}
	for _, c := range []struct {
		runs, workers int
		drain, apart  time.Duration // how long a handler takes, and the time between two stops, at most
		zones         map[string]string
	}{
		{runs: 40, workers: 1, drain: 3 * refresh},
		{runs: 40, workers: 2, drain: 3 * refresh},
		{runs: 40, workers: 3, drain: 10 * time.Second, zones: zones},
		{runs: 40, workers: 5, drain: 3 * refresh},
		{runs: 10, workers: 20, drain: refresh},
		{runs: 60, workers: 4, drain: time.Nanosecond, apart: refresh / 4},
	} {
		t.Run(fmt.Sprintf("%d workers", c.workers), func(t *testing.T) {
			times(t, c.runs, shard.Options{Partitions: partitions, Zones: c.zones, Plans: &shard.Plans{}}, func(s *world, _ int) {
				edit := func(*shard.Options) {}
				if c.zones != nil {
					edit = mixed
				}
				workers := s.come(c.workers, linger, edit)
				s.settle(c.workers, partitions)
				time.Sleep(rand.N(5 * refresh))
				slowest := s.drains(c.drain)
				rand.Shuffle(c.workers, func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
				for _, w := range workers {
					if c.apart > 0 {
						w.stop()
						time.Sleep(rand.N(c.apart))
					}
				}
				if took := s.stopAll(workers...) - slowest; took > refresh {
					s.t.Errorf("gone %v after the slowest handler, want %v at most", took, refresh)
				}
				s.free(partitions)
				for i := range min(c.workers, 5) {
					s.worker(fmt.Sprintf("again%d", i))
				}
				if took := s.all(partitions, lease); took > 5*refresh {
					s.t.Errorf("owned again after %v", took)
				}
			})
		})
	}
}

// While partitions move, too: a requested partition is not reserved for a worker that has
// gone.
func TestAllAreStoppedWhilePartitionsMove(t *testing.T) {
	enginetest.MakeVerify(t)
	const partitions = 48
	for name, edit := range map[string]func(*shard.Options){
		"nothing more": func(*shard.Options) {},
		"a limit":      func(o *shard.Options) { o.Max = 40 },
		"preparations": func(o *shard.Options) {
			o.Prepare = func(ctx context.Context, _ string) error {
				select {
				case <-time.After(rand.N(refresh)):
				case <-ctx.Done():
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			moved := 0
			times(t, 40, shard.Options{Partitions: partitions}, func(s *world, _ int) {
				s.come(2, linger, edit)
				s.settle(2, partitions)
				for _, owner := range []string{"x", "y", "z"} {
					s.worker(owner, edit)
				}
				slowest := s.drains(refresh)
				time.Sleep(2*refresh + rand.N(4*refresh)) // the new ones are planned for by then, or nearly
				for _, w := range s.workers {
					moved += w.Stats().MovingIn
				}
				if took := s.stopAll(s.workers...) - slowest; took > refresh {
					s.t.Errorf("gone %v after the slowest handler", took)
				}
				s.free(partitions)
			})
			if moved == 0 && !testing.Short() {
				t.Error("nothing moved")
			}
		})
	}
}

// If some workers stay they get all partitions, each by a hand-over to a worker that
// expects it, and no worker waits for a leaving one; whichever worker is the coordinator,
// and also if a leaving worker has missed a plan by which another one goes.
func TestSomeAreStoppedOneAfterTheOther(t *testing.T) {
	enginetest.MakeVerify(t)
	const n, partitions = 6, 48
	for _, c := range []struct {
		name   string
		runs   int
		stay   int
		apart  time.Duration
		misses bool // they are late to read the plan
		hints  bool // always
		gone   time.Duration
	}{
		{name: "all but one at once", runs: 40, stay: 1, gone: 12 * refresh},
		{name: "some one after the other", runs: 60, stay: 2, apart: refresh, hints: true, gone: 7 * refresh},
		{name: "most one after the other", runs: 60, stay: 4, apart: refresh, hints: true, gone: 7 * refresh},
		{name: "some that miss plans", runs: 60, stay: 3, apart: refresh, misses: true, hints: true, gone: 7 * refresh},
	} {
		t.Run(c.name, func(t *testing.T) {
			times(t, c.runs, shard.Options{Partitions: partitions}, func(s *world, _ int) {
				s.blind = s.blind && !c.hints
				workers := s.come(n, linger)
				s.settle(n, partitions)
				s.reset()
				rand.Shuffle(n, func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
				stopped := map[*worker]time.Time{}
				for _, w := range workers[c.stay:] {
					if c.misses {
						w.client.Faults().Inject(faultstore.Rule{
							Ops: []faultstore.Op{faultstore.OpGet}, Key: shard.MembershipName(name),
							Decide: func(faultstore.Call) faultstore.Fault { return faultstore.Slow(rand.N(refresh/2), 0) },
						})
					}
					w.stop()
					stopped[w] = time.Now()
					time.Sleep(rand.N(c.apart + 1))
				}
				for w, at := range stopped {
					if err := w.quit(); err != nil || time.Since(at) > c.gone {
						s.t.Errorf("%s is gone after %v: %v", w.owner, time.Since(at), err)
					}
				}
				s.settle(c.stay, partitions)
				most := 100 * time.Millisecond
				if s.blind {
					most = 3 * refresh / 2
				}
				s.gap(most)
			})
		})
	}
}

// A worker that dies while others leave holds these up, and the rest, for its lease at most.
// Where it comes after the coordinator that leaves, the next one knows how long it has been
// silent: a second lease is hardly ever waited for.
func TestOneDiesWhileOthersLeave(t *testing.T) {
	enginetest.MakeVerify(t)
	const n, partitions, runs = 4, 32, 40
	for _, c := range []struct {
		name  string
		stay  int // of those that live
		first bool
	}{
		{"all others", 0, false}, {"one", 2, false}, {"the coordinator", 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			late := 0
			times(t, runs, shard.Options{Partitions: partitions}, func(s *world, run int) {
				workers := s.come(n, linger)
				s.settle(n, partitions)
				s.reset()
				if !c.first {
					time.Sleep(rand.N(beat))
					rand.Shuffle(n, func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
				}
				leave, dies := workers[:1], workers[1]
				if c.stay == 0 {
					leave = append(slices.Clone(leave), workers[2:]...)
				}
				if run%2 == 0 || c.first {
					for _, w := range leave {
						w.stop()
					}
					time.Sleep(rand.N(refresh))
				}
				dies.crash()
				time.Sleep(rand.N(2 * refresh))
				if took := s.stopAll(leave...); took > silence+5*refresh {
					s.t.Errorf("gone after %v", took)
				}
				if c.stay == 0 {
					s.worker("again")
					s.all(partitions, 2*lease)
					return
				}
				s.settle(c.stay, partitions)
				if c.first {
					if s.gap(3*lease) > silence+4*refresh {
						late++
					}
					return
				}
				s.gap(silence + 6*refresh)
			})
			// Where the successor has become the coordinator before, two things are waited for.
			if late > runs/4 {
				t.Errorf("a partition had no owner for more than %v in %d of %d runs", silence+4*refresh, late, runs)
			}
		})
	}
}

// All are stopped while as many new ones come: these have all soon.
func TestAllAreReplaced(t *testing.T) {
	enginetest.MakeVerify(t)
	const n, partitions = 4, 32
	for _, before := range []time.Duration{-3 * refresh, 0, 10 * refresh} {
		t.Run(fmt.Sprintf("new ones come %v before", before), func(t *testing.T) {
			times(t, 40, shard.Options{Partitions: partitions}, func(s *world, _ int) {
				workers := s.come(n, linger)
				s.settle(n, partitions)
				s.reset()
				come := func() {
					for i := range n {
						s.worker(fmt.Sprint("new", i))
						time.Sleep(rand.N(refresh / n))
					}
				}
				if before >= 0 {
					come()
					time.Sleep(before)
				}
				took := s.stopAll(workers...)
				if before < 0 {
					time.Sleep(-before)
					come()
				}
				if settled := s.settle(n, partitions); took > 20*refresh || settled > 20*refresh {
					s.t.Errorf("gone after %v, settled %v later", took, settled)
				}
				// New ones that are planned for take over by hand-overs; others find all free.
				most := 5*refresh + max(0, -before)
				if before > 5*refresh {
					most = 3 * refresh / 2
				}
				s.gap(most)
			})
		})
	}
}

// If no worker has room for a leaving worker's partitions, it does not wait.
func TestLeaveWhereAllAreFull(t *testing.T) {
	const n, partitions, most = 4, 40, 10
	times(t, 40, shard.Options{Partitions: partitions, Max: most}, func(s *world, run int) {
		workers := s.come(n, linger)
		s.settle(n, partitions)
		begun := time.Now()
		w := workers[run%n]
		w.stop()
		var early *shard.LeftEarlyError
		if err := w.quit(); err != nil && (!errors.As(err, &early) || early.Partitions > most || !errors.Is(err, shard.ErrLeftEarly)) {
			s.t.Errorf("left with %v", err)
		}
		if took := time.Since(begun); took > 10*refresh {
			s.t.Errorf("gone after %v", took)
		}
		s.worker("again")
		s.settle(n, partitions)
	})
}

// A coordinator that cannot have the lock of the membership, because a foreign process holds
// it, goes after its time.
func TestLeaveUnderAForeignLock(t *testing.T) {
	const timeout = 2 * refresh
	onWorld(t, shard.Options{Partitions: 6, LeaveTimeout: timeout}, func(t *testing.T, s *world) {
		a, b := s.worker("a"), s.worker("b")
		s.settle(2, 6)
		other := s.Client("other")
		foreign := testutil.Go(func() error {
			_, err := other.Acquire(t.Context(), shard.MembershipName(name), nil)
			return err
		})
		first, second := a, b
		if b.Stats().Coordinator {
			first, second = b, a
		}
		first.stop()
		testutil.Want(t, <-foreign, nil)
		s.until("the other one coordinates", 10*lease, func() bool { return second.Stats().Coordinator })
		second.stop()
		select {
		case <-second.done:
		case <-time.After(timeout + refresh):
			t.Error("it has not left")
		}
	})
}

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
	"github.com/tenurelock/tenure/shard"
)

// times runs f in bubbles of their own, each on a stage with a store that can watch
// or cannot.
func times(t *testing.T, n int, options shard.Options, f func(s *stage, run int)) {
	t.Helper()
	if testing.Short() {
		n = max(2, n/5)
	}
	for run := range n {
		onStage(t, options, func(t *testing.T, s *stage) {
			s.blind = run%2 == 1
			f(s, run)
		})
		if t.Failed() {
			t.Fatalf("in run %d", run)
		}
	}
}

// Where one worker stays, it gets all, each by a hand-over; whoever the coordinator
// is.
func TestAllButOneAreStopped(t *testing.T) {
	const n, partitions = 5, 40
	var slowest, widest time.Duration
	times(t, 40, shard.Options{Partitions: partitions}, func(s *stage, run int) {
		workers := s.staggered(n)
		s.settle(n, partitions)
		s.reset()
		stays := run % n
		took := s.stopAll(slices.Delete(slices.Clone(workers), stays, stays+1)...)
		s.settle(1, partitions)
		_, gap := s.worst()
		slowest, widest = max(slowest, took), max(widest, gap)
		most := 100 * time.Millisecond
		if s.blind {
			most = 3 * refresh / 2
		}
		if gap > most || took > 12*refresh {
			s.t.Errorf("gone after %v; a partition had nobody for %v", took, gap)
		}
	})
	t.Logf("gone after %v at most; a partition had nobody for %v at most", slowest, widest)
}

// Where several leave one after the other, and some stay, plans follow each other: a
// partition is handed over to one that knows of it, and nobody waits for one that
// leaves.
func TestSomeAreStoppedOneAfterTheOther(t *testing.T) {
	someAreStopped(t, 60, func(*worker) {})
}

// One that leaves may miss a plan by which another one goes.
func TestSomeAreStoppedAndMissPlans(t *testing.T) {
	someAreStopped(t, 60, func(w *worker) {
		w.faults.Inject(faultstore.Rule{
			Ops: []faultstore.Op{faultstore.OpGet}, Key: shard.RollName(name),
			Decide: func(faultstore.Call) faultstore.Fault { return faultstore.Slow(rand.N(refresh/2), 0) },
		})
	})
}

// someAreStopped has some workers stop, and does something to each of them.
func someAreStopped(t *testing.T, runs int, do func(*worker)) {
	const n, partitions = 6, 48
	var slowest, widest time.Duration
	times(t, runs, shard.Options{Partitions: partitions}, func(s *stage, run int) {
		s.blind = false
		workers := s.staggered(n)
		s.settle(n, partitions)
		s.reset()
		rand.Shuffle(n, func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
		stopped := map[*worker]time.Time{}
		for _, w := range workers[:2+run%3] {
			do(w)
			w.stop()
			stopped[w] = time.Now()
			time.Sleep(rand.N(refresh))
		}
		for w, at := range stopped {
			if err := w.quit(); err != nil {
				s.t.Errorf("%s: %v", w.owner, err)
			}
			slowest = max(slowest, time.Since(at))
		}
		s.settle(n-len(stopped), partitions)
		_, gap := s.worst()
		if widest = max(widest, gap); gap > 100*time.Millisecond || slowest > 7*refresh {
			s.t.Errorf("gone after %v; a partition had nobody for %v", slowest, gap)
		}
	})
	t.Logf("gone after %v at most; a partition had nobody for %v at most", slowest, widest)
}

// Workers that are stopped within a look of each other are gone a look after the
// last one was.
func TestAllAreStoppedWithinALook(t *testing.T) {
	const n, partitions = 4, 16
	var worst time.Duration
	times(t, 60, shard.Options{Partitions: partitions}, func(s *stage, _ int) {
		workers := s.staggered(n)
		s.settle(n, partitions)
		rand.Shuffle(n, func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
		for _, w := range workers {
			w.stop()
			time.Sleep(rand.N(refresh) / n)
		}
		took := s.stopAll(workers...)
		if worst = max(worst, took); took > refresh {
			s.t.Errorf("gone after %v", took)
		}
		s.free(partitions)
	})
	t.Logf("gone after %v at most", worst)
}

// While partitions move, too: what was asked for is not kept for one that has gone.
func TestAllAreStoppedWhilePartitionsMove(t *testing.T) {
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
			var worst time.Duration
			moved := 0
			times(t, 40, shard.Options{Partitions: partitions}, func(s *stage, _ int) {
				s.staggered(2, edit)
				s.settle(2, partitions)
				for _, owner := range []string{"x", "y", "z"} {
					s.worker(owner, edit)
				}
				slowest := time.Duration(0)
				for _, w := range s.workers {
					w.drain.Store(int64(rand.N(refresh)))
					slowest = max(slowest, time.Duration(w.drain.Load()))
				}
				time.Sleep(2*refresh + rand.N(4*refresh)) // the new ones are on the roll by then, or nearly
				for _, w := range s.workers {
					moved += w.Stats().MovingIn
				}
				took := s.stopAll(s.workers...) - slowest
				if worst = max(worst, took); took > refresh {
					s.t.Errorf("gone %v after the slowest handler", took)
				}
				s.free(partitions)
			})
			t.Logf("gone after %v at most, beside the slowest handler; %d were moving", worst, moved)
			if moved == 0 && !testing.Short() {
				t.Error("nothing moved")
			}
		})
	}
}

// One that dies at the same moment holds up the others for its lease at most, and
// those that come back get what it had then.
func TestAllAreStoppedAndOneDies(t *testing.T) {
	const n, partitions = 4, 16
	var worst time.Duration
	times(t, 40, shard.Options{Partitions: partitions}, func(s *stage, run int) {
		workers := s.staggered(n)
		s.settle(n, partitions)
		time.Sleep(rand.N(beat))
		dies := workers[run%n]
		dies.crash()
		time.Sleep(rand.N(2 * refresh))
		took := s.stopAll(slices.DeleteFunc(slices.Clone(workers), func(w *worker) bool { return w == dies })...)
		if worst = max(worst, took); took > lease+5*refresh {
			s.t.Errorf("gone after %v", took)
		}
		s.worker("again")
		s.until("all are owned again", 2*lease, func() bool { _, all := s.owned(); return all == partitions })
	})
	t.Logf("gone after %v at most", worst)
}

// One that dies while another one leaves does not hold that up, nor the rest.
func TestOneDiesWhileOneLeaves(t *testing.T) {
	const n, partitions = 4, 32
	var worst, widest time.Duration
	times(t, 40, shard.Options{Partitions: partitions}, func(s *stage, run int) {
		workers := s.staggered(n)
		s.settle(n, partitions)
		s.reset()
		dies, leaves := workers[run%n], workers[(run+1+rand.N(n-1))%n]
		leaves.stop()
		time.Sleep(rand.N(3 * refresh))
		dies.crash()
		took := s.stopAll(leaves)
		s.settle(n-2, partitions)
		_, gap := s.worst()
		worst, widest = max(worst, took), max(widest, gap)
		if took > lease+5*refresh || gap > lease+6*refresh {
			s.t.Errorf("gone after %v; a partition had nobody for %v", took, gap)
		}
	})
	t.Logf("gone after %v at most; a partition had nobody for %v at most", worst, widest)
}

// The worker that comes after the coordinator dies while that one leaves. The next one knows
// how long it has been silent: a second lease is not waited for.
func TestSuccessorDiesWhileTheCoordinatorLeaves(t *testing.T) {
	const n, partitions, runs = 4, 32, 40
	slow := 0
	times(t, runs, shard.Options{Partitions: partitions}, func(s *stage, _ int) {
		workers := s.staggered(n)
		s.settle(n, partitions)
		s.reset()
		if !workers[0].Stats().Coordinator {
			s.t.Fatal("the first worker does not coordinate")
		}
		workers[0].stop()
		time.Sleep(rand.N(refresh))
		workers[1].crash()
		s.settle(n-2, partitions)
		if _, gap := s.worst(); gap > lease+4*refresh {
			slow++
		}
	})
	// Where the successor has become the coordinator before, two things are waited for.
	if slow > runs/4 {
		t.Errorf("a partition had nobody for more than %v in %d of %d runs", lease+4*refresh, slow, runs)
	}
}

// All are stopped while as many new ones come: these have all soon.
func TestAllAreReplaced(t *testing.T) {
	const n, partitions = 4, 32
	for _, before := range []time.Duration{-3 * refresh, 0, 10 * refresh} {
		t.Run(fmt.Sprintf("new ones come %v before", before), func(t *testing.T) {
			var worst, widest time.Duration
			times(t, 40, shard.Options{Partitions: partitions}, func(s *stage, _ int) {
				workers := s.staggered(n)
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
				begun := time.Now()
				took := s.stopAll(workers...)
				if before < 0 {
					time.Sleep(-before)
					come()
				}
				settled := s.settle(n, partitions)
				_, gap := s.worst()
				worst, widest = max(worst, time.Since(begun)), max(widest, gap)
				// New ones that are on the roll take over by hand-overs; others find all free.
				most := 5*refresh + max(0, -before)
				if before > 5*refresh {
					most = 3 * refresh / 2
				}
				if gap > most || took > 20*refresh || settled > 20*refresh {
					s.t.Errorf("gone after %v, settled %v later; a partition had nobody for %v", took, settled, gap)
				}
			})
			t.Logf("settled after %v at most; a partition had nobody for %v at most", worst, widest)
		})
	}
}

// Where nobody has room for what a worker has, it does not wait for anybody.
func TestLeaveWhereAllAreFull(t *testing.T) {
	const n, partitions, most = 4, 40, 10
	var worst time.Duration
	times(t, 40, shard.Options{Partitions: partitions, Max: most}, func(s *stage, run int) {
		workers := s.staggered(n)
		s.settle(n, partitions)
		begun := time.Now()
		w := workers[run%n]
		w.stop()
		var early *shard.LeftEarlyError
		if err := w.quit(); err != nil && (!errors.As(err, &early) || early.Partitions > most || !errors.Is(err, shard.ErrLeftEarly)) {
			s.t.Errorf("left with %v", err)
		}
		took := time.Since(begun)
		if worst = max(worst, took); took > 10*refresh {
			s.t.Errorf("gone after %v", took)
		}
		s.worker("again")
		s.settle(n, partitions)
	})
	t.Logf("gone after %v at most", worst)
}

// It matters as little that handlers take long, that workers are in zones, and have
// weights: what is stopped at once is gone when its handlers have returned.
func TestAllAreStoppedWithLongHandlers(t *testing.T) {
	const n, partitions, drain = 4, 24, 10 * time.Second
	zones := map[string]string{}
	for i := range partitions {
		zones[fmt.Sprint(i)] = string(rune('a' + i%2))
	}
	times(t, 20, shard.Options{Partitions: partitions, Zones: zones}, func(s *stage, _ int) {
		for i := range n {
			w := s.worker(fmt.Sprint("w", i), func(o *shard.Options) {
				o.Zone, o.Weight = string(rune('a'+i%2)), float64(1+i)
			})
			w.drain.Store(int64(drain))
			time.Sleep(rand.N(refresh))
		}
		s.settle(n, partitions)
		if took := s.stopAll(s.workers...) - drain; took > refresh {
			s.t.Errorf("gone %v after the handlers", took)
		}
		s.free(partitions)
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/shard"
)

// Workers that come have all partitions, each its share.
func TestWorkersShareThePartitions(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 60}, func(t *testing.T, s *world) {
		for i, owner := range []string{"a", "b", "c"} {
			s.worker(owner)
			s.settle(i+1, 60)
		}
		for _, w := range s.workers {
			if n := s.owned(w.owner); n < 19 || n > 21 {
				t.Errorf("%s has %d of 60", w.owner, n)
			}
		}
		s.gap(refresh)
	})
}

// Weights count.
func TestWeights(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 90}, func(t *testing.T, s *world) {
		s.worker("a")
		s.worker("b", func(o *shard.Options) { o.Weight = 2 })
		s.settle(2, 90)
		if n := s.owned("a"); n < 28 || n > 32 {
			t.Errorf("with weights 1 and 2: %d of 90", n)
		}
	})
}

// Partitions are worked on in their zone, while it has room, and move when their
// zones do.
func TestZones(t *testing.T) {
	zones, swapped := map[string]string{}, map[string]string{}
	for i := range 40 {
		id := fmt.Sprint(i)
		zones[id], swapped[id] = "a", "b"
		if i%2 == 1 {
			zones[id], swapped[id] = "b", "a"
		}
	}
	onWorld(t, shard.Options{Partitions: 40, Zones: zones}, func(t *testing.T, s *world) {
		for _, zone := range []string{"a", "b"} {
			for i := range 2 {
				s.worker(fmt.Sprint(zone, i), func(o *shard.Options) { o.Zone = zone })
			}
		}
		s.settle(4, 40)
		at := func(want map[string]string) (abroad int) {
			owners := s.at()
			for id, zone := range want {
				if !strings.HasPrefix(owners[id], zone) {
					abroad++
				}
			}
			return abroad
		}
		if n := at(zones); n > 0 {
			t.Errorf("%d of 40 partitions are not in their zone", n)
		}
		testutil.Want(t, s.workers[0].SetZones(t.Context(), swapped), nil)
		s.until("all have moved to their zones", 10*lease, func() bool { return at(swapped) == 0 })
		if err := s.workers[0].SetZones(t.Context(), map[string]string{"1": "a\nb"}); err == nil {
			t.Error("a zone with a control character is accepted")
		}
	})
}

// A worker that comes moves no more than its share, and each partition once.
func TestNewWorkerMovesItsShare(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 200}, func(t *testing.T, s *world) {
		s.come(9, atOnce)
		s.settle(9, 200)
		s.reset()
		w := s.worker("new")
		took := s.settle(10, 200)
		share := w.Stats().Planned
		if share > 24 {
			t.Errorf("the tenth worker is to have %d of 200", share)
		}
		if all, most := s.moves(); all > share || most > 1 {
			t.Errorf("%d moves, %d of one partition, of 200 by the tenth worker", all, most)
		}
		s.gap(refresh)
		t.Logf("200 partitions, 9 workers and a tenth: settled after %v", took)
	})
}

// The partitions of a worker that has crashed are owned by others within its lease as the
// coordinator counts it, and four polls: the coordinator's that sees its last heartbeat,
// the coordinator's that finds it dead, another worker's at the membership, and a further
// poll if a partition is free a moment late. A poll may be late by a tenth of the refresh
// period.
func TestCrash(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 100}, func(t *testing.T, s *world) {
		workers := s.come(5, func() { s.settle(len(s.workers), 100) }) // so that the first one coordinates
		s.reset()
		workers[3].crash()
		took := s.all(100, silence+5*refresh)
		t.Logf("a worker with 20 of 100 partitions crashed: all owned after %v", took)
		s.settle(4, 100)
		if all, most := s.moves(); all > 20 || most > 1 {
			t.Errorf("%d moves, %d of one partition, after a crash of a worker with 20", all, most)
		}
	})
}

// So they are when the coordinator crashes, and another worker with it: who comes
// after the coordinator has watched the others, whatever it has audited.
func TestCoordinatorCrashes(t *testing.T) {
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprintf("with %d others", others), func(t *testing.T) {
			onWorld(t, shard.Options{Partitions: 100, Audit: -1}, func(t *testing.T, s *world) {
				workers := s.come(5, func() { s.settle(len(s.workers), 100) })
				if !workers[0].Stats().Coordinator {
					t.Fatal("the first one does not coordinate")
				}
				workers[0].crash()
				if others > 0 {
					workers[3].crash()
				}
				took := s.all(100, silence+6*refresh)
				t.Logf("the coordinator and %d others crashed: all owned after %v", others, took)
				s.settle(4-others, 100)
			})
		})
	}
}

// The first in line may see the death of the coordinator a heartbeat period later than
// another worker. It takes over all the same: it alone knows how long the others have been
// silent, so that another worker that died with the coordinator does not cost a second lease.
func TestCoordinatorIsTheFirstInLineWhoSeesItLate(t *testing.T) {
	steps := 8
	if testing.Short() {
		steps = 3
	}
	for step := range steps {
		onWorld(t, shard.Options{Partitions: 40, Audit: -1}, func(t *testing.T, s *world) {
			workers := s.come(5, func() { s.settle(len(s.workers), 40) })
			time.Sleep(2*lease + time.Duration(step)*beat/time.Duration(steps)) // heartbeats come in turn again
			lead, err := workers[2].client.Status(t.Context(), shard.CoordinatorLockName(name))
			if err != nil || lead.Owner != "w0" {
				t.Fatalf("%+v, %v", lead, err)
			}
			sign := func() string { return s.Record(driver.SessionKey(lead.Session)).Beat }
			for last := sign(); sign() == last; {
				time.Sleep(refresh / 20)
			}
			crashed := time.Now() // right after a heartbeat
			workers[1].client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Key: driver.SessionKey(lead.Session), Decide: func(c faultstore.Call) faultstore.Fault {
				if c.Consistency == driver.Eventual && time.Since(crashed) < beat-refresh/2 {
					return faultstore.Stale(1) // it does not see that heartbeat yet
				}
				return faultstore.Fault{}
			}})
			workers[0].crash()
			workers[3].crash()
			s.all(40, silence+beat+6*refresh)
			if len(workers[1].of(shard.EventCoordinator)) == 0 {
				t.Error("the first in line does not coordinate")
			}
		})
	}
}

// A worker that leaves hands its partitions over: no partition is without an owner for
// longer than its hand-over takes, which is at most one poll where no hints arrive; also
// where the others prepare, or have a limit: they ask the leaving worker. The last worker
// waits for no other.
func TestLeave(t *testing.T) {
	var prepared atomic.Int64
	for _, c := range []struct {
		name  string
		blind bool
		edit  func(*shard.Options)
	}{
		{"hints", false, func(*shard.Options) {}},
		{"blind", true, func(*shard.Options) {}},
		{"prepare", false, func(o *shard.Options) {
			o.Prepare = func(context.Context, string) error { prepared.Add(1); return nil }
		}},
		{"limit", false, func(o *shard.Options) { o.Max = 60 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			onWorld(t, shard.Options{Partitions: 60}, func(t *testing.T, s *world) {
				s.blind = c.blind
				a, b, last := s.worker("a"), s.worker("b", c.edit), s.worker("c", c.edit)
				s.settle(3, 60)
				for i, w := range []*worker{a, b} { // a coordinates
					w.drain.Store(int64(700 * time.Millisecond))
					s.reset()
					prepared.Store(0)
					testutil.Want(t, w.quit(), nil)
					s.settle(2-i, 60)
					most := 100 * time.Millisecond
					if c.blind {
						most = refresh + refresh/2
					}
					s.gap(most)
					moved := w.of(shard.EventMovedOut)
					if n := int(prepared.Load()); c.name == "prepare" && (n < len(moved) || len(moved) == 0) {
						t.Errorf("%d were prepared, of %d that moved", n, len(moved))
					}
					for _, e := range moved {
						if e.Peer != "b" && e.Peer != "c" {
							t.Errorf("moved out to %q", e.Peer)
						}
					}
				}
				begun := time.Now()
				if err := last.quit(); err != nil || time.Since(begun) > 4*refresh {
					t.Errorf("the last one left after %v: %v", time.Since(begun), err)
				}
				s.worker("d")
				if took := s.settle(1, 60); took > 5*refresh {
					t.Errorf("all were found after %v", took)
				}
			})
		})
	}
}

// An OnEvent that never returns holds Run up for the stop timeout and a lease, as it does
// Client.Close.
func TestRunUnderAnEventThatNeverReturns(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 4}, func(t *testing.T, s *world) {
		never := make(chan struct{})
		defer close(never)
		w := s.make("a", func(o *shard.Options) { o.OnEvent = func(shard.Event) { <-never } })
		ctx, stop := context.WithCancel(t.Context())
		ended := testutil.Go(func() error {
			return w.Run(ctx, func(ctx context.Context, _ *shard.Partition) error { <-ctx.Done(); return nil })
		})
		time.Sleep(time.Minute)
		stop()
		begun, o := time.Now(), w.client.Options()
		select {
		case err := <-ended:
			if most := o.StopTimeout + o.LeaseDuration; err == nil || !strings.Contains(err.Error(), "OnEvent") || time.Since(begun) < most {
				t.Errorf("after %v: %v; want an error that names OnEvent, after %v at the earliest", time.Since(begun), err, most)
			}
		case <-time.After(time.Hour):
			t.Error("Run has not returned in an hour")
		}
		testutil.Want(t, w.Leave(t.Context()), shard.ErrNotRunning)
	})
}

// Who leaves does not hand over before the others have seen that it leaves, and
// wait: no partition is without an owner then.
func TestLeaveWaitsForTheOthers(t *testing.T) {
	const n, partitions = 12, 120
	onWorld(t, shard.Options{Partitions: partitions}, func(t *testing.T, s *world) {
		workers := s.come(n, linger) // they do not poll all at once
		s.settle(n, partitions)
		for i := range 4 { // each without a drain
			s.reset()
			testutil.Want(t, workers[i].quit(), nil)
			s.settle(n-1-i, partitions)
			s.gap(10 * time.Millisecond)
		}
	})
}

// Who leaves hands over in portions, as many to each as it waits for: the others
// are never without more of them than that.
func TestLeaveInPortions(t *testing.T) {
	const budget = 4
	onWorld(t, shard.Options{Partitions: 80, Budget: budget}, func(t *testing.T, s *world) {
		s.blind = true
		a := s.worker("a")
		s.worker("b")
		s.settle(2, 80)
		s.reset()
		go func() { _ = a.quit() }()
		fewest := 80
		for a.Stats().Held > 0 {
			fewest = min(fewest, s.owned())
			time.Sleep(refresh / 20)
		}
		s.settle(1, 80)
		if least := 80 - 3*budget; fewest < least {
			t.Errorf("only %d of 80 were at work at a time, with %d moving", fewest, budget)
		}
		s.gap(3 * refresh / 2)
	})
}

// Workers that are restarted one after the other move each partition twice at
// most: away, and back.
func TestRollingRestart(t *testing.T) {
	enginetest.MakeVerify(t)
	const n, partitions = 20, 200
	onWorld(t, shard.Options{Partitions: partitions}, func(t *testing.T, s *world) {
		workers := s.come(n, atOnce)
		s.settle(n, partitions)
		s.reset()
		for i, w := range workers {
			testutil.Want(t, w.quit(), nil)
			s.worker(fmt.Sprintf("w%d-again", i))
			s.settle(n, partitions)
		}
		if _, most := s.moves(); most > 2 {
			t.Errorf("a partition moved %d times", most)
		}
		s.gap(refresh)
	})
}

// A worker that has more weight than others comes back to what it had, too, and
// nothing moves between the others meanwhile.
func TestRestartOfAHeavyWorker(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 140}, func(t *testing.T, s *world) {
		var workers []*worker
		for i, weight := range []float64{1, 3, 2, 1} {
			workers = append(workers, s.worker(fmt.Sprintf("w%d", i), func(o *shard.Options) { o.Weight = weight }))
			s.settle(i+1, 140)
		}
		s.reset()
		had := workers[1].Stats().Held
		testutil.Want(t, workers[1].quit(), nil)
		s.settle(3, 140)
		time.Sleep(10 * refresh) // the membership is written without it meanwhile
		s.worker("again", func(o *shard.Options) { o.Weight = 3 })
		s.settle(4, 140)
		if all, most := s.moves(); all != 2*had || most != 2 {
			t.Errorf("%d moves, %d of one, for a restart of a worker with %d", all, most, had)
		}
	})
}

// No worker has more than its maximum. Partitions without room are reported.
func TestMax(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 50, Max: 20}, func(t *testing.T, s *world) {
		a, b := s.worker("a"), s.worker("b")
		s.settle(2, 40)
		time.Sleep(5 * lease) // no worker adopts the excess
		if s.owned("a") != 20 || s.owned("b") != 20 || s.owned() != 40 {
			t.Errorf("with 20 at most: %v", s.at())
		}
		if n := a.Stats().Unassigned; n != 10 {
			t.Errorf("%d are unassigned in the numbers", n)
		}
		for _, w := range []*worker{a, b} {
			if ev := w.of(shard.EventUnassigned); len(ev) == 0 || ev[len(ev)-1].Count != 10 {
				t.Errorf("%s got event %v", w.owner, ev)
			}
		}
		st, err := a.Status(t.Context())
		if err != nil || st.Unassigned != 10 || st.Unowned != 10 || st.Owned != 40 {
			t.Errorf("status: %d unassigned, %d unowned, %d owned, %v", st.Unassigned, st.Unowned, st.Owned, err)
		}
		s.worker("c")
		s.settle(3, 50)
		if ev := a.of(shard.EventUnassigned); ev[len(ev)-1].Count != 0 {
			t.Errorf("it got no event that all are assigned: %v", ev)
		}
	})
}

// Two full workers that are each to have what the other one has get there, and
// never have more than they may.
func TestFullWorkersSwap(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 20, Max: 10}, func(t *testing.T, s *world) {
		a := s.worker("a")
		s.until("a has ten", time.Minute, func() bool { return s.owned("a") == 10 })
		s.worker("b")
		s.settle(2, 20)
		if s.owned("a") != 10 || s.owned("b") != 10 {
			t.Errorf("%v", s.at())
		}
		if n := len(a.of(shard.EventDropped)); n > 10 {
			t.Errorf("%d were dropped", n)
		}
	})
}

// Partitions are added and taken away while all are at work.
func TestResize(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 20}, func(t *testing.T, s *world) {
		a, b := s.worker("a"), s.worker("b")
		s.settle(2, 20)
		s.reset()
		testutil.Want(t, a.Resize(t.Context(), 50), nil)
		s.all(50, 5*refresh)
		s.settle(2, 50)
		testutil.Want(t, b.Resize(t.Context(), 10), nil)
		s.all(10, 5*refresh)
		s.settle(2, 10)
		testutil.Want(t, b.SetPartitions(t.Context(), []string{"x", "y", "3"}), nil)
		s.settle(2, 3)
		for _, id := range []string{"x", "y", "3"} {
			if owners := s.at(); owners[id] == "" {
				t.Errorf("at work: %v", owners)
			}
		}
	})
}

// A call that changes the partitions ends a request timeout after its context, whatever the
// store does.
func TestResizeEndsWithItsContext(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 2}, func(t *testing.T, s *world) {
		a := s.make("a")
		a.client.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Op != faultstore.OpClaim }, Fault: faultstore.BlackHole(),
		})
		ctx, stop := context.WithTimeout(t.Context(), refresh)
		defer stop()
		begun := time.Now()
		testutil.Want(t, a.Resize(ctx, 3), context.DeadlineExceeded)
		if took, most := time.Since(begun), refresh+a.client.Options().RequestTimeout; took > most {
			t.Errorf("it took %v, want %v at most", took, most)
		}
	})
}

// A worker that the store cannot be reached from for longer than its lease loses
// all, and joins again.
func TestSessionLost(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 20}, func(t *testing.T, s *world) {
		a, b := s.worker("a"), s.worker("b")
		s.settle(2, 20)
		for _, w := range []*worker{a, b} { // a coordinates
			w.client.Partition()
			time.Sleep(3 * lease)
			if s.owned() != 20 || s.owned(w.owner) != 0 {
				t.Errorf("while %s is cut off: %v", w.owner, s.at())
			}
			w.client.Heal()
			s.settle(2, 20)
			if len(w.of(shard.EventLost)) != 1 || len(w.of(shard.EventJoined)) != 2 {
				t.Errorf("%s got events of %d losses and %d joins", w.owner, len(w.of(shard.EventLost)), len(w.of(shard.EventJoined)))
			}
		}
	})
}

func TestCallsOutOfTurn(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 2}, func(t *testing.T, s *world) {
		a := s.make("a")
		testutil.Want(t, a.Leave(t.Context()), shard.ErrNotRunning)
		if err := a.Run(t.Context(), nil); err == nil {
			t.Error("a handler of nil is run")
		}
		_, err := shard.Read(t.Context(), a.client.Client, name)
		testutil.Want(t, err, tenure.ErrNotHeld)
		a.start(a.handle)
		s.settle(1, 2)
		testutil.Want(t, a.Run(t.Context(), a.handle), shard.ErrRunning)
		testutil.Want(t, a.Leave(t.Context()), nil)
		testutil.Want(t, a.quit(), nil)
		if st := a.Stats(); st.Place != -1 || st.Held != 0 {
			t.Errorf("after it has left: %+v", st)
		}
		// It can be run again, until the client is closed.
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		defer stop()
		done := testutil.Go(func() error { return a.Run(ctx, a.handle) })
		s.all(2, time.Minute)
		testutil.Want(t, a.client.Close(t.Context()), nil)
		testutil.Want(t, <-done, tenure.ErrClosed)
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/shard"
)

// The next owner of a partition finds the checkpoint of the one before, also if it was
// stored while that owner stopped.
func TestCheckpointMoves(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 8}, func(t *testing.T, s *world) {
		last := sync.Map{}
		handler := func(owner string) shard.Handler {
			return func(ctx context.Context, p *shard.Partition) error {
				found, _ := last.Load(p.ID())
				if want, _ := found.(string); string(p.Last()) != want {
					t.Errorf("%s finds checkpoint %q of partition %s, want %q", owner, p.Last(), p.ID(), want)
				}
				testutil.Want(t, p.Checkpoint(ctx, []byte("first of "+owner)), nil)
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), tenure.ErrSteppedDown) {
					return nil
				}
				data := "last of " + owner
				testutil.Want(t, p.Checkpoint(context.WithoutCancel(ctx), []byte(data)), nil)
				last.Store(p.ID(), data)
				return nil
			}
		}
		a, b := s.make("a"), s.make("b")
		a.start(handler("a"))
		s.settle(1, 8)
		b.start(handler("b"))
		s.settle(2, 8)
		testutil.Want(t, a.quit(), nil)
		s.settle(1, 8)
		if st, err := b.Status(t.Context()); err != nil || st.Partitions[0].CheckpointBytes == 0 {
			t.Errorf("%+v, %v", st.Partitions[0], err)
		}
		synctest.Wait() // for the first checkpoint of what has come just now
	})
}

// A former owner's checkpoint is refused, and the current owner's stays.
func TestCheckpointOfAFormerOwner(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 1}, func(t *testing.T, s *world) {
		a, b := s.make("a"), s.make("b")
		former := make(chan *shard.Partition, 1)
		release := make(chan struct{})
		a.start(func(ctx context.Context, p *shard.Partition) error {
			former <- p
			<-release // it ignores its end
			return nil
		})
		p := <-former
		a.crash()
		b.start(func(ctx context.Context, p *shard.Partition) error {
			testutil.Want(t, p.Checkpoint(ctx, []byte("of b")), nil)
			<-ctx.Done()
			return nil
		})
		s.until("b has it", 3*lease, func() bool { return b.Stats().Held == 1 })
		time.Sleep(refresh)
		a.client.Heal()
		if err := p.Checkpoint(t.Context(), []byte("of a")); !errors.Is(err, tenure.ErrLost) {
			t.Errorf("a former owner's checkpoint: %v", err)
		}
		if p.Check() == nil || p.Last() != nil {
			t.Errorf("a former owner may act, or has checkpoint %q", p.Last())
		}
		st, err := b.client.Status(t.Context(), shard.LockName(name, "0"))
		if err != nil || string(st.Data) != "of b" {
			t.Errorf("the checkpoint is %q, %v", st.Data, err)
		}
		close(release)
	})
}

// A checkpoint that is not confirmed is not the latest one: a handler that is run again goes on
// from the one before, and skips nothing.
func TestCheckpointThatIsNotConfirmed(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 1}, func(t *testing.T, s *world) {
		a := s.make("a")
		a.client.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return string(c.Next.Data) == "second" },
			Fault: faultstore.Refuse(),
		})
		found := make(chan string, 2)
		a.start(func(ctx context.Context, p *shard.Partition) error {
			found <- string(p.Last())
			if p.Last() != nil { // it is run again
				<-ctx.Done()
				return nil
			}
			testutil.Want(t, p.Checkpoint(ctx, []byte("first")), nil)
			short, stop := context.WithTimeout(ctx, refresh)
			defer stop()
			err := p.Checkpoint(short, []byte("second"))
			if !errors.Is(err, tenure.ErrUncertain) {
				t.Errorf("a checkpoint that the store refuses: %v", err)
			}
			return err
		})
		for _, want := range []string{"", "first"} {
			if got := <-found; got != want {
				t.Errorf("the handler finds checkpoint %q, want %q", got, want)
			}
		}
	})
}

// A handler that returns before it has to is run again; a handler that fails again and
// again gives its partition up, and others find it.
func TestHandlerEndsEarly(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 1}, func(t *testing.T, s *world) {
		a := s.make("a")
		var mu sync.Mutex
		runs, tokens := 0, map[uint64]bool{}
		fails := errors.New("it fails")
		a.start(func(ctx context.Context, p *shard.Partition) error {
			mu.Lock()
			defer mu.Unlock()
			runs++
			tokens[p.Token()] = true
			if runs <= 3 {
				return nil
			}
			return fails
		})
		s.until("it gives up", time.Minute, func() bool { return len(a.of(shard.EventDropped)) == 1 })
		mu.Lock()
		if runs != 8 || len(tokens) != 1 {
			t.Errorf("%d runs under %d tokens", runs, len(tokens))
		}
		mu.Unlock()
		if ev := a.of(shard.EventDropped)[0]; !errors.Is(ev.Err, fails) {
			t.Errorf("dropped for %v", ev.Err)
		}
		b := s.worker("b")
		s.until("b has it", 3*lease, func() bool { return b.Stats().Held == 1 })
		if n := len(a.of(shard.EventAssigned)) + len(a.of(shard.EventMovedIn)); n != 1 {
			t.Errorf("a has taken it %d times, while it keeps away", n)
		}
	})
}

// Failures with a success between them are not in a row: the worker keeps the partition.
func TestHandlerFailsNowAndThen(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 1}, func(t *testing.T, s *world) {
		a := s.make("a")
		var runs atomic.Int64
		a.start(func(context.Context, *shard.Partition) error {
			if runs.Add(1)%2 == 0 {
				return nil
			}
			return errors.New("it fails")
		})
		s.until("it has run 20 times", 10*lease, func() bool { return runs.Load() >= 20 })
		if dropped := a.of(shard.EventDropped); len(dropped) > 0 {
			t.Errorf("dropped: %v", dropped)
		}
	})
}

// A panic of a handler comes out of Run, and frees all partitions. A handler that ends
// its goroutine gives its partition up.
func TestPanic(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 4}, func(t *testing.T, s *world) {
		a := s.make("a")
		fails := errors.New("it fails")
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() {
				p, ok := recover().(*shard.Panic)
				if !ok || p.Partition != "2" || !errors.Is(p, fails) || !strings.Contains(p.Error(), "partition_test.go") {
					t.Errorf("panics with %v", p)
				}
			}()
			_ = a.Run(t.Context(), func(ctx context.Context, p *shard.Partition) error {
				if p.ID() == "1" {
					runtime.Goexit()
				}
				if p.ID() == "2" {
					time.Sleep(time.Minute)
					panic(fails)
				}
				<-ctx.Done()
				return nil
			})
		})
		wg.Wait()
		if n := len(a.of(shard.EventDropped)); n == 0 {
			t.Error("the partition whose handler ended its goroutine was not dropped")
		}
		s.worker("b")
		if took := s.settle(1, 4); took > 5*refresh {
			t.Errorf("the partitions were found after %v", took)
		}
	})
}

// A partition whose planned owner does not come is claimed by another worker, and
// moved when the planned owner can have it.
func TestThenAnyone(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 20}, func(t *testing.T, s *world) {
		a := s.worker("a")
		s.settle(1, 20)
		b := s.make("b")
		remove := b.client.Faults().Inject(faultstore.Rule{
			Ops: []faultstore.Op{faultstore.OpClaim, faultstore.OpTakeover}, Fault: faultstore.Refuse(),
			Match: func(call faultstore.Call) bool { _, _, part := shard.ParseLockName(call.Key); return part },
		})
		b.start(b.handle)
		s.until("a has all, and b is to have some", 5*time.Minute, func() bool {
			return len(b.of(shard.EventMoveFailed)) > 3 && len(a.of(shard.EventAdopted)) > 3
		})
		if b.Stats().Held != 0 {
			t.Fatalf("b has %d", b.Stats().Held)
		}
		remove()
		s.settle(2, 20)
	})
}

// Prepare runs before the former owner is asked, and an error of it puts the move
// off.
func TestPrepare(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 6}, func(t *testing.T, s *world) {
		s.worker("a")
		s.settle(1, 6)
		s.reset()
		var mu sync.Mutex
		calls := map[string]int{}
		b := s.worker("b", func(o *shard.Options) {
			o.Prepare = func(ctx context.Context, id string) error {
				time.Sleep(5 * time.Second) // it warms up
				if s.at()[id] != "a" {
					t.Errorf("partition %s is not with a while b prepares", id)
				}
				mu.Lock()
				defer mu.Unlock()
				if calls[id]++; calls[id] == 1 {
					return errors.New("not yet")
				}
				return nil
			}
		})
		s.settle(2, 6)
		if n := len(b.of(shard.EventMoveFailed)); n != 3 || len(calls) != 3 {
			t.Errorf("%d moves were put off, of %v", n, calls)
		}
		s.gap(refresh)
	})
}

// What is being prepared is not asked for when the worker is to leave.
func TestPrepareIsCalledOff(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 6}, func(t *testing.T, s *world) {
		a := s.worker("a")
		s.settle(1, 6)
		b := s.worker("b", func(o *shard.Options) {
			o.Prepare = func(ctx context.Context, _ string) error {
				<-ctx.Done()
				return nil // it ignores that
			}
		})
		s.until("b prepares", time.Minute, func() bool { return b.Stats().MovingIn == 3 })
		time.Sleep(lease)
		begun := time.Now()
		if err := b.quit(); err != nil || time.Since(begun) > 3*refresh {
			t.Errorf("left after %v: %v", time.Since(begun), err)
		}
		s.settle(1, 6)
		if n := len(a.of(shard.EventMovedOut)); n > 0 {
			t.Errorf("a was asked for %d", n)
		}
	})
}

// Who asks a worker by hand to step down from a partition gets it moved: the
// planned owner takes it back.
func TestStepDownByHand(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 4}, func(t *testing.T, s *world) {
		a := s.worker("a")
		s.settle(1, 4)
		why := &tenure.StepDownOptions{Reason: "for a test"}
		testutil.Want(t, a.client.StepDown(t.Context(), shard.LockName(name, "1"), why), nil)
		s.until("a has taken it back", 5*refresh, func() bool { return len(a.of(shard.EventAssigned)) == 5 })
		if n := len(a.of(shard.EventMovedOut)); n != 1 {
			t.Errorf("%d moved out", n)
		}
		// So with the coordinator: another worker writes the membership.
		b := s.worker("b")
		s.settle(2, 4)
		testutil.Want(t, b.client.StepDown(t.Context(), shard.CoordinatorLockName(name), why), nil)
		s.until("b coordinates", lease, func() bool { return b.Stats().Coordinator && !a.Stats().Coordinator })
		s.worker("c")
		s.settle(3, 4)
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// Processes that take a slot again the moment they have released one do not
// starve those that come now and then.
func TestNobodyStarves(t *testing.T) {
	enginetest.MakeVerify(t)
	for _, blind := range []bool{false, true} {
		t.Run(fmt.Sprintf("blind %v", blind), func(t *testing.T) {
			onWorld(t, 2, func(t *testing.T, s *world) {
				s.blind = blind
				starve(t, s)
			})
		})
	}
}

func starve(t *testing.T, s *world) {
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	var wg sync.WaitGroup
	for i := range 4 {
		p := s.process(fmt.Sprintf("greedy%d", i), 2)
		for range 2 {
			wg.Go(func() { p.work(ctx, 50*time.Millisecond) })
		}
	}
	var mu sync.Mutex
	var waits []time.Duration
	for i := range 3 {
		p := s.process(fmt.Sprintf("modest%d", i), 2)
		wg.Go(func() {
			for ctx.Err() == nil {
				begun := time.Now()
				l, err := p.Acquire(ctx, nil)
				if err != nil {
					break
				}
				p.enter(l)
				mu.Lock()
				waits = append(waits, time.Since(begun))
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
				p.release(l)
				time.Sleep(10 * time.Second)
			}
		})
	}
	wg.Wait()
	slices.Sort(waits)
	if len(waits) == 0 {
		t.Fatal("those that come now and then got nothing")
	}
	if longest := waits[len(waits)-1]; longest > 2*time.Minute {
		t.Errorf("a process waited for %v", longest)
	}
	for i := range 3 {
		if n := s.count[fmt.Sprintf("modest%d", i)]; n < 12 {
			t.Errorf("modest%d got %d slots in five minutes", i, n)
		}
	}
}

// Who waits in one process comes in its order.
func TestOrderWithinAProcess(t *testing.T) {
	onWorld(t, 1, func(t *testing.T, s *world) {
		rival := s.process("rival", 1)
		held := rival.hold(t.Context())
		p := s.process("p", 1)
		var wg sync.WaitGroup
		var order []int
		for i := range 10 {
			wg.Go(func() {
				l := p.hold(t.Context())
				order = append(order, i)
				time.Sleep(time.Second)
				p.release(l)
			})
			time.Sleep(time.Second)
		}
		begun := time.Now()
		rival.release(held)
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 10 {
			t.Errorf("order %v", order)
		}
		// A slot that this process has left is taken by its next one at once.
		if took := time.Since(begun); took > 13*time.Second {
			t.Errorf("ten holders of a second each took %v", took)
		}
	})
}

// A waiter that has crashed at the front of the line does not hold up the
// others for its lease.
func TestCrashAtTheFront(t *testing.T) {
	onWorld(t, 1, func(t *testing.T, s *world) {
		holder := s.process("holder", 1)
		held := holder.hold(t.Context())
		front := s.process("front", 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() {
			_, err := front.Acquire(ctx, nil)
			ended <- err
		}()
		time.Sleep(lease)
		if st, err := holder.Status(t.Context()); err != nil || st.Front != "front" {
			t.Errorf("status %+v, %v", st, err)
		}
		front.client.Partition()
		holder.release(held)
		begun := time.Now()
		next := s.process("next", 1)
		l := next.hold(t.Context())
		if took := time.Since(begun); took > 4*refresh {
			t.Errorf("it took %v", took)
		}
		next.release(l)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// The end of the context is honoured at once, wherever the waiter stands, and
// leaves nothing behind that holds up others.
func TestContextEndsTheWait(t *testing.T) {
	onWorld(t, 1, func(t *testing.T, s *world) {
		holder := s.process("holder", 1)
		held := holder.hold(t.Context())
		p := s.process("p", 1)
		cause := errors.New("enough")
		for i := range 20 {
			ctx, stop := context.WithTimeoutCause(t.Context(), time.Duration(i)*300*time.Millisecond, cause)
			begun := time.Now()
			errs := make(chan error, 2)
			for range 2 { // the second one waits for its turn in the process
				go func() {
					_, err := p.Acquire(ctx, nil)
					errs <- err
				}()
			}
			for range 2 {
				if err := <-errs; !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cause) {
					t.Error(err)
				}
			}
			if took := time.Since(begun) - time.Duration(i)*300*time.Millisecond; took > 10*time.Millisecond {
				t.Errorf("it took %v more", took)
			}
			stop()
		}
		holder.release(held)
		begun := time.Now()
		other := s.process("other", 1)
		other.release(other.hold(t.Context()))
		if took := time.Since(begun); took > refresh {
			t.Errorf("it took %v", took)
		}
	})
}

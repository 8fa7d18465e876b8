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
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
)

// Processes that take a slot again the moment they have released one do not
// starve those that come now and then.
func TestNobodyStarves(t *testing.T) {
	for _, blind := range []bool{false, true} {
		t.Run(fmt.Sprintf("blind %v", blind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { starve(t, blind) })
		})
	}
}

func starve(t *testing.T, blind bool) {
	s := newStage(t, 2)
	s.blind = blind
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
	t.Logf("%d waits: median %v, 99 %% %v, longest %v; slots taken: %v",
		len(waits), waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1], s)
	if longest := waits[len(waits)-1]; longest > 2*time.Minute {
		t.Errorf("somebody waited for %v", longest)
	}
	for i := range 3 {
		if n := s.count[fmt.Sprintf("modest%d", i)]; n < 12 {
			t.Errorf("modest%d got %d slots in five minutes", i, n)
		}
	}
}

// Who waits in one process comes in its order.
func TestOrderWithinAProcess(t *testing.T) {
	onStage(t, 1, func(t *testing.T, s *stage) {
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
	onStage(t, 1, func(t *testing.T, s *stage) {
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
		front.faults.SetBlackHole(true)
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
	onStage(t, 1, func(t *testing.T, s *stage) {
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

// A store that is away is asked again for StoreTimeout.
func TestStoreAway(t *testing.T) {
	onStage(t, 1, func(t *testing.T, s *stage) {
		holder, p := s.process("holder", 1), s.process("p", 1)
		held := holder.hold(t.Context())
		time.Sleep(lease)
		for _, timeout := range []time.Duration{0, time.Minute} {
			begun := time.Now()
			ended := make(chan error, 1)
			go func() {
				_, err := p.Acquire(t.Context(), &tenure.AcquireOptions{StoreTimeout: timeout})
				ended <- err
			}()
			time.Sleep(5 * time.Second)
			p.faults.SetBlackHole(true)
			err := <-ended
			took, want := time.Since(begun), max(timeout, lease)
			if err == nil || errors.Is(err, tenure.ErrHeld) || took < want || took > want+2*lease {
				t.Errorf("%v after %v", err, took)
			}
			p.faults.SetBlackHole(false)
		}
		p.faults.SetBlackHole(true)
		ended := make(chan error, 1)
		go func() {
			l, err := p.Acquire(t.Context(), &tenure.AcquireOptions{StoreTimeout: -1})
			if err == nil {
				p.enter(l)
				p.release(l)
			}
			ended <- err
		}()
		time.Sleep(10 * time.Minute)
		p.faults.SetBlackHole(false)
		holder.release(held)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A client that is closed ends the wait.
func TestClose(t *testing.T) {
	onStage(t, 1, func(t *testing.T, s *stage) {
		s.process("holder", 1).hold(t.Context())
		p := s.process("p", 1)
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := p.Acquire(t.Context(), nil)
				errs <- err
			}()
		}
		time.Sleep(lease)
		if err := p.client.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, tenure.ErrClosed) {
				t.Error(err)
			}
		}
		if _, err := p.TryAcquire(t.Context(), nil); !errors.Is(err, tenure.ErrClosed) {
			t.Error(err)
		}
		if err := p.Resize(t.Context(), 3, nil); !errors.Is(err, tenure.ErrClosed) {
			t.Error(err)
		}
	})
}

// What it costs, in requests to the store.
func TestRequests(t *testing.T) {
	reads := func(p *process) int { return p.faults.Count(faultstore.OpGet) }
	onStage(t, 5, func(t *testing.T, s *stage) {
		first := s.process("first", 5)
		first.release(first.hold(t.Context()))

		// A slot that is free.
		p := s.process("p", 5)
		count := func(what string, wantReads, wantAll int) {
			t.Helper()
			if r, all := reads(p), p.faults.Count(); r > wantReads || all > wantAll {
				t.Errorf("%s: %d requests, %d of them reads; want at most %d and %d", what, all, r, wantAll, wantReads)
			}
			p.faults.ResetLog()
		}
		p.release(p.hold(t.Context()))
		count("the first slot of a process", 3, 5)
		p.release(p.hold(t.Context()))
		count("the next slot", 2, 4)
		l, err := p.TryAcquire(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		count("a try", 1, 3)

		// Ten processes wait for a minute, with three waiters each.
		for range 5 {
			first.hold(t.Context())
		}
		var waiting []*process
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 10 {
			p := s.process(fmt.Sprintf("p%d", i), 5)
			waiting = append(waiting, p)
			for range 3 {
				wg.Go(func() {
					if _, err := p.Acquire(ctx, nil); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
			}
		}
		time.Sleep(2 * lease)
		for _, p := range waiting {
			p.faults.ResetLog()
		}
		time.Sleep(time.Minute)
		var total []int
		writes := 0
		for _, p := range waiting {
			total = append(total, p.faults.Count())
			writes += p.faults.Count() - reads(p)
		}
		slices.Sort(total)
		t.Logf("requests of 10 processes that wait for a minute: %v, %d of them writes", total, writes)
		refreshes := int(time.Minute / refresh)
		if behind := total[len(total)-2]; behind > 4*refreshes {
			t.Errorf("a process that is not at the front sends %d", behind)
		}
		if front := total[len(total)-1]; front > 7*refreshes+30 {
			t.Errorf("the one at the front sends %d", front)
		}
		if heartbeats := int(time.Minute / (lease / 5)); writes > heartbeats+2 {
			t.Errorf("%d writes", writes)
		}
		stop()
		wg.Wait()
	})
}

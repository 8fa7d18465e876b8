// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/semaphore"
)

// More slots let waiters in within a few polls, in all processes, however many they
// are.
func TestGrowingLetsWaitersIn(t *testing.T) {
	for most, blind := range map[int]bool{4: true, 60: false} {
		t.Run(fmt.Sprintf("%d slots, blind %v", most, blind), func(t *testing.T) {
			onWorld(t, 1, func(t *testing.T, s *world) {
				s.blind = blind
				grow(t, s, most)
			})
		})
	}
}

func grow(t *testing.T, s *world, most int) {
	first := s.process("first", 1)
	slots := map[int]bool{first.hold(t.Context()).Slot(): true}
	got := make(chan *semaphore.Lease)
	for i := range most - 1 {
		p := s.process(fmt.Sprintf("p%d", i), 1)
		go func() { got <- p.hold(t.Context()) }()
	}
	time.Sleep(2 * lease)
	s.allow(most)
	begun := time.Now()
	if err := s.process("operator", 7).Resize(t.Context(), most, nil); err != nil {
		t.Fatal(err)
	}
	for range most - 1 {
		l := <-got
		slots[l.Slot()] = true
		if l.Slots() != most {
			t.Errorf("admitted under %d slots", l.Slots())
		}
	}
	if len(slots) != most {
		t.Errorf("slots %v", slots)
	}
	if took := time.Since(begun); took > 2*lease {
		t.Errorf("it took %v", took)
	}
}

// Fewer slots: no process gets a removed slot, and its present holder keeps it.
func TestShrinkingTakesNobodyIn(t *testing.T) {
	onWorld(t, 4, func(t *testing.T, s *world) {
		p := s.process("p", 4)
		leases := p.holdAll(4)
		stale := s.process("stale", 4)
		if _, err := stale.TryAcquire(t.Context(), nil); !errors.Is(err, semaphore.ErrFull) {
			t.Fatal(err)
		}
		if err := s.process("operator", 1).Resize(t.Context(), 2, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lease)
		for _, l := range leases {
			if err := l.Check(); err != nil {
				t.Errorf("slot %d: %v", l.Slot(), err)
			}
		}
		st, err := stale.Status(t.Context())
		if err != nil || len(st.Held) != 4 || st.Slots != 2 {
			t.Errorf("status %+v, %v", st, err)
		}
		for _, h := range st.Held {
			if h.Gone != (h.Slot >= 2) {
				t.Errorf("slot %d: gone is %v", h.Slot, h.Gone)
			}
		}
		// The slots that are gone are left. The stale process believes in them.
		p.release(leases[2])
		p.release(leases[3])
		s.allow(2)
		if l, err := stale.TryAcquire(t.Context(), nil); !errors.Is(err, semaphore.ErrFull) {
			t.Fatalf("slot %v, error %v", l, err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if l, err := stale.Acquire(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("slot %v, error %v", l, err)
		}
		p.release(leases[0])
		p.release(leases[1])
		stale.release(stale.hold(t.Context()))
	})
}

// holding returns how many hold a slot.
func (s *world) holding() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// Resize waits for the holders of slots that are gone, and asks them to stop if
// it is told to. The others do not notice.
func TestResizeDrains(t *testing.T) {
	for _, stepDown := range []bool{false, true} {
		t.Run(fmt.Sprintf("step down %v", stepDown), func(t *testing.T) {
			onWorld(t, 3, func(t *testing.T, s *world) {
				var wg sync.WaitGroup
				var mu sync.Mutex
				ends := map[int]error{} // by slot
				for i := range 3 {
					p := s.process(fmt.Sprintf("p%d", i), 3)
					wg.Go(func() {
						_ = p.Run(t.Context(), nil, func(ctx context.Context, l *semaphore.Lease) error {
							p.enter(l)
							defer p.leave(l)
							select {
							case <-ctx.Done():
								time.Sleep(time.Second) // to put things away
							case <-time.After(2 * time.Minute):
							}
							mu.Lock()
							defer mu.Unlock()
							ends[l.Slot()] = context.Cause(ctx)
							return nil
						})
					})
				}
				time.Sleep(lease)
				operator := s.process("operator", 1)
				begun := time.Now()
				if !stepDown {
					ctx, stop := context.WithTimeout(t.Context(), lease)
					err := operator.Resize(ctx, 1, &semaphore.ResizeOptions{Wait: true})
					stop()
					var draining *semaphore.DrainingError
					if !errors.As(err, &draining) || !errors.Is(err, semaphore.ErrDraining) ||
						!errors.Is(err, context.DeadlineExceeded) || fmt.Sprint(draining.Slots) != "[1 2]" {
						t.Errorf("error %v", err)
					}
				}
				ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
				defer stop()
				err := operator.Resize(ctx, 1, &semaphore.ResizeOptions{Wait: !stepDown, StepDown: stepDown, Reason: "too many"})
				if err != nil {
					t.Error(err)
				}
				took := time.Since(begun)
				if s.holding() > 1 {
					t.Errorf("%d hold after the resize", s.holding())
				}
				wg.Wait()
				for slot, cause := range ends {
					asked := errors.Is(cause, tenure.ErrSteppedDown) && strings.Contains(cause.Error(), "too many")
					if want := stepDown && slot > 0; asked != want {
						t.Errorf("slot %d ended with %v", slot, cause)
					}
				}
				if stepDown && took > lease/2 || !stepDown && took < time.Minute {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A holder that is cut off, and whose slot an operator has revoked, may be at
// work until its lease has run out.
func TestResizeOverARevoke(t *testing.T) {
	onWorld(t, 2, func(t *testing.T, s *world) {
		p, operator := s.process("p", 2), s.process("operator", 2)
		leases := p.holdAll(2)
		p.client.Partition()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := admin.Revoke(ctx, operator.client.Client, leases[1].Name(), "it does not answer"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := leases[1].Check(); err != nil {
			t.Fatal(err)
		}
		if err := operator.Resize(t.Context(), 1, &semaphore.ResizeOptions{StepDown: true}); err != nil {
			t.Error(err)
		}
		if leases[1].Check() == nil {
			t.Error("slot 1 is held after the resize")
		}
	})
}

// The slot is granted before the shrink, and the number of slots read after it:
// the holder-to-be is not admitted, and the resize does not return before it
// has left.
func TestShrinkMeetsAnAdmission(t *testing.T) {
	onWorld(t, 2, func(t *testing.T, s *world) {
		p, operator := s.process("p", 2), s.process("operator", 2)
		operator.release(operator.holdAll(2)[1]) // the removed slot is free
		s.allow(1)
		if n, stored, err := p.Slots(t.Context()); n != 2 || !stored || err != nil {
			t.Fatal(n, err)
		}
		p.client.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Op == faultstore.OpGet && c.Key == semaphore.SizeName(name) },
			Fault: faultstore.Slow(time.Second, 0), // on its way there
		})
		ctx, stop := context.WithTimeout(t.Context(), lease)
		defer stop()
		ended := make(chan error, 1)
		go func() {
			l, err := p.Acquire(ctx, nil)
			if err == nil {
				p.enter(l)
			}
			ended <- err
		}()
		time.Sleep(500 * time.Millisecond)
		if st, err := operator.Status(t.Context()); err != nil || len(st.Held) != 2 {
			t.Fatalf("the slot is not granted: %+v, %v", st, err)
		}
		if err := operator.Resize(ctx, 1, &semaphore.ResizeOptions{Wait: true}); err != nil {
			t.Error(err)
		}
		st, err := operator.Status(t.Context())
		if err != nil || len(st.Held) != 1 {
			t.Errorf("status %+v, %v", st, err)
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A slot is given back whose holder-to-be cannot read the number of slots.
func TestSlotWithoutAnAdmissionIsGivenBack(t *testing.T) {
	onWorld(t, 1, func(t *testing.T, s *world) {
		p, other := s.process("p", 1), s.process("other", 1)
		p.release(p.hold(t.Context()))
		p.client.Faults().Inject(faultstore.Rule{Key: semaphore.SizeName(name), Fault: faultstore.Refuse()})
		ctx, stop := context.WithTimeout(t.Context(), lease)
		defer stop()
		if l, err := p.Acquire(ctx, nil); err == nil {
			t.Errorf("slot %d is held", l.Slot())
		}
		l, err := other.TryAcquire(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		other.enter(l)
		other.release(l)
	})
}

// The number goes up and down while processes that know nothing of it come and
// go: from the return of a Resize that waits on, no more than its number hold.
func TestResizeUnderContention(t *testing.T) {
	const most = 5
	onWorld(t, most, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 7 {
			p := s.process(fmt.Sprintf("p%d", i), 1+i%most, func(o *tenure.Options) { o.LeaseDuration = 5 * time.Second })
			p.client.Faults().Inject(faultstore.Rule{Decide: func(faultstore.Call) faultstore.Fault {
				return faultstore.Slow(rand.N(60*time.Millisecond), rand.N(60*time.Millisecond))
			}})
			wg.Go(func() { p.work(ctx, time.Duration(i+1)*200*time.Millisecond) })
		}
		operator := s.process("operator", 3)
		now := most
		for i := range 60 {
			next := 1 + rand.N(most)
			if next > now {
				s.allow(next)
			}
			o := &semaphore.ResizeOptions{Wait: i%2 == 0, StepDown: i%2 == 1}
			patience, end := context.WithTimeout(ctx, time.Minute)
			if err := operator.Resize(patience, next, o); err != nil {
				t.Error(err)
			}
			end()
			s.allow(next)
			time.Sleep(rand.N(10 * time.Second))
			now = next
		}
		stop()
		wg.Wait()
	})
}

// A slot that has been gone for more than one change counts until its holder has
// left: a resize that waits does not return while that is at work.
func TestShrinkTwiceOverAHolder(t *testing.T) {
	onWorld(t, 6, func(t *testing.T, s *world) {
		p, operator := s.process("p", 6), s.process("operator", 6)
		leases := p.holdAll(6)
		for _, l := range leases[:5] {
			p.release(l)
		}
		for _, slots := range []int{4, 3} {
			if err := operator.Resize(t.Context(), slots, nil); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- operator.Resize(t.Context(), 3, &semaphore.ResizeOptions{Wait: true}) }()
		time.Sleep(2 * lease)
		select {
		case err := <-ended:
			t.Fatalf("Resize returned while slot 5 is at work: %v", err)
		default:
		}
		p.release(leases[5])
		time.Sleep(2 * refresh)
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("Resize waits on")
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// A removed slot that cannot be read during a further change counts as held: a resize
// with Wait waits for its holder. The slots below it are free, so that only this one
// raises the number up to which slots are looked at.
func TestResizeOverASlotThatCannotBeRead(t *testing.T) {
	onWorld(t, 4, func(t *testing.T, s *world) {
		p, operator := s.process("p", 4), s.process("operator", 4)
		for _, l := range p.holdAll(4)[:3] {
			p.release(l)
		}
		if err := operator.Resize(t.Context(), 1, nil); err != nil {
			t.Fatal(err)
		}
		heal := operator.client.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Op == faultstore.OpGet && c.Key == semaphore.LockName(name, 3) },
			Fault: faultstore.Refuse(),
		})
		if err := operator.Resize(t.Context(), 2, nil); err != nil {
			t.Fatal(err)
		}
		heal()
		ctx, stop := context.WithTimeout(t.Context(), 2*lease)
		defer stop()
		err := operator.Resize(ctx, 1, &semaphore.ResizeOptions{Wait: true})
		var draining *semaphore.DrainingError
		if !errors.As(err, &draining) || !slices.Equal(draining.Slots, []int{3}) {
			t.Errorf("error %v while slot 3 is at work", err)
		}
	})
}

// A holder that renews at the last moment, while the answer to a read of its record is on
// its way, has not left when Resize returns: no refused write shows it.
func TestResizeWaitsForHolderThatRenewsAtTheLastMoment(t *testing.T) {
	enginetest.MakeVerify(t)
	const rounds = 120
	late := func(o *tenure.Options) {
		o.Grace, o.MaxClockDrift = 100*time.Millisecond, 0.0001
		o.RefreshPeriod, o.RequestTimeout = lease/5, 2900*time.Millisecond // few polls
	}
	renewed := 0
	for step := range rounds {
		onWorld(t, 2, func(t *testing.T, s *world) {
			p, operator := s.process("p", 2, late), s.process("operator", 2, late)
			gone := p.holdAll(2)[1]                                         // when there is one slot
			time.Sleep(2*refresh + time.Duration(step)*23*time.Millisecond) // somewhere between two heartbeats
			var healed atomic.Bool
			p.client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Key: gone.Name(), Decide: func(faultstore.Call) faultstore.Fault {
				switch { // one is let through
				case healed.Load():
					return faultstore.BlackHole()
				case gone.Remaining() > 250*time.Millisecond:
					return faultstore.Refuse()
				}
				healed.Store(true)
				return faultstore.Fault{}
			}})
			operator.client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Decide: func(faultstore.Call) faultstore.Fault {
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/semaphore"
)

// Processes want some slots: all are used, and never more; also where the store loses
// requests and replies and is slow, and where some hold under sessions that end.
func TestAtMostNHold(t *testing.T) {
	enginetest.MakeVerify(t)
	const slots = 3
	for _, how := range []string{"alone", "on a bad store", "under sessions"} {
		t.Run(how, func(t *testing.T) {
			onWorld(t, slots, func(t *testing.T, s *world) {
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
				defer stop()
				var wg sync.WaitGroup
				for i := range 6 {
					p := s.process(fmt.Sprintf("p%d", i), slots)
					took := time.Duration(i+1) * 300 * time.Millisecond
					switch {
					case how == "on a bad store":
						p.client.Faults().Inject(faultstore.Rule{Decide: badStore})
						wg.Go(func() { p.lose(ctx) })
					case how == "under sessions" && i%2 == 1:
						wg.Go(func() {
							for ctx.Err() == nil {
								session := p.underSession(slots)
								life, end := context.WithTimeout(ctx, 20*time.Second)
								var workers sync.WaitGroup
								for range 2 {
									workers.Go(func() { p.work(life, took) })
								}
								workers.Wait()
								end()
								if err := session.Close(context.WithoutCancel(ctx)); err != nil {
									t.Error(err)
								}
							}
						})
					default:
						wg.Go(func() { p.work(ctx, took) })
					}
				}
				wg.Wait()
				if s.peak != slots {
					t.Errorf("%d held at once, of %d slots", s.peak, slots)
				}
				for owner, n := range s.count {
					if n < 5 {
						t.Errorf("%s got %d slots in ten minutes", owner, n)
					}
				}
			})
		})
	}
}

// badStore loses requests and replies, and is slow.
func badStore(faultstore.Call) faultstore.Fault {
	switch rand.N(20) {
	case 0:
		return faultstore.LoseReply()
	case 1:
		return faultstore.LoseRequest()
	case 2:
		return faultstore.Late(rand.N(20 * time.Second))
	case 3:
		return faultstore.BlackHole()
	}
	return faultstore.Slow(rand.N(200*time.Millisecond), rand.N(200*time.Millisecond))
}

// lose takes slots until ctx ends, as work does, and may lose them.
func (p *process) lose(ctx context.Context) {
	for ctx.Err() == nil {
		l, err := p.Acquire(ctx, &tenure.AcquireOptions{StoreTimeout: -1})
		if err != nil {
			if ctx.Err() == nil {
				p.s.t.Error(err)
			}
			return
		}
		p.enter(l)
		select {
		case <-time.After(rand.N(20 * time.Second)):
		case <-l.Context().Done():
		}
		p.leave(l)
		_ = l.Release(ctx) // it may be lost
	}
}

// The slot of a holder that has crashed is free after its lease, for who waits
// and for who tries.
func TestCrashFreesTheSlot(t *testing.T) {
	onWorld(t, 2, func(t *testing.T, s *world) {
		a, b, c, d := s.process("a", 2), s.process("b", 2), s.process("c", 2), s.process("d", 2)
		la := a.hold(t.Context())
		b.hold(t.Context())
		if _, err := d.TryAcquire(t.Context(), nil); !errors.Is(err, semaphore.ErrFull) {
			t.Fatal(err)
		}
		a.leave(la)
		a.client.Partition()
		begun := time.Now()
		lc := c.hold(t.Context())
		if took := time.Since(begun); took < lease-5*time.Second || took > lease+3*refresh {
			t.Errorf("the slot was taken after %v", took)
		}
		if lc.Slot() != la.Slot() || lc.Token() <= la.Token() {
			t.Errorf("slot %d under token %d, after slot %d under token %d", lc.Slot(), lc.Token(), la.Slot(), la.Token())
		}
		c.leave(lc)
		c.client.Partition()
		if _, err := d.TryAcquire(t.Context(), nil); !errors.Is(err, semaphore.ErrFull) {
			t.Fatal(err)
		}
		time.Sleep(lease + time.Second)
		l, err := d.TryAcquire(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		d.enter(l)
		d.release(l)
	})
}

// Who tries and gets none is told who has them.
func TestTryAcquire(t *testing.T) {
	onWorld(t, 2, func(t *testing.T, s *world) {
		a, b := s.process("a", 2), s.process("b", 2)
		l, err := a.TryAcquire(t.Context(), &tenure.AcquireOptions{Data: []byte("a's")})
		if err != nil {
			t.Fatal(err)
		}
		other, err := b.TryAcquire(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if other.Slot() == l.Slot() {
			t.Errorf("both have slot %d", l.Slot())
		}
		for _, p := range []*process{a, b, s.process("c", 2)} {
			_, err = p.TryAcquire(t.Context(), nil)
			var full *semaphore.FullError
			if !errors.As(err, &full) || !errors.Is(err, semaphore.ErrFull) || !errors.Is(err, tenure.ErrHeld) {
				t.Fatal(err)
			}
			if full.Slots != 2 || len(full.Holders) != 2 || full.Holders[l.Slot()].Owner != "a" || full.Holders[other.Slot()].Owner != "b" {
				t.Errorf("%+v", full)
			}
			if !strings.Contains(err.Error(), `try acquire slot of "x": all 2 slots are held: slot 0 by "`) {
				t.Error(err)
			}
		}
		st, err := b.Status(t.Context())
		if err != nil || st.Slots != 2 || len(st.Held) != 2 || string(st.Held[l.Slot()].Data) != "a's" || st.Front != "" {
			t.Errorf("status %+v, %v", st, err)
		}
		if err := errors.Join(l.Release(t.Context()), other.Release(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// TestDeadlineOfAWaitTellsWhoHolds: who has the slots, in a first poll and in the line.
func TestDeadlineOfAWaitTellsWhoHolds(t *testing.T) {
	onWorld(t, 2, func(t *testing.T, s *world) {
		a, b := s.process("a", 2), s.process("b", 2)
		var held []*semaphore.Lease
		for range 2 {
			l, err := a.TryAcquire(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, l)
		}
		for _, wait := range []time.Duration{3 * refresh, 30 * refresh} {
			ctx, stop := context.WithTimeout(t.Context(), wait)
			_, err := b.Acquire(ctx, nil)
			stop()
			var full *semaphore.FullError
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, tenure.ErrHeld) || !errors.As(err, &full) {
				t.Fatal(err)
			}
			for i, h := range full.Holders {
				if h.Slot != i || h.Owner != held[i].Owner() || h.Token == 0 || h.FreeIn <= 0 {
					t.Errorf("slot %d: %+v", i, h)
				}
			}
			if full.Slots != 2 || len(full.Holders) != 2 {
				t.Errorf("%+v", full)
			}
		}
		var full *semaphore.FullError
		if _, err := b.Acquire(t.Context(), &tenure.AcquireOptions{Wait: 3 * refresh}); errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &full) {
			t.Errorf("after a wait that was bounded: %v", err)
		}
		ctx, stop := context.WithTimeout(t.Context(), refresh)
		time.AfterFunc(refresh/2, stop)
		if _, err := b.Acquire(ctx, nil); !errors.Is(err, context.Canceled) || errors.Is(err, tenure.ErrHeld) {
			t.Errorf("canceled: %v", err)
		}
		for _, l := range held {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// The lease is the slot's: its name and token fence, and its data stays there.
func TestLease(t *testing.T) {
	onWorld(t, 1, func(t *testing.T, s *world) {
		p := s.process("p", 1)
		var grant fence.Grant
		for i := range 3 {
			l, err := p.Acquire(t.Context(), &tenure.AcquireOptions{Data: fmt.Append(nil, i)})
			if err != nil {
				t.Fatal(err)
			}
			grant = l
			if grant.Name() != "x:slot/0" || l.Slot() != 0 || l.Semaphore() != "x" || l.Slots() != 1 || grant.Token() != uint64(i+1) {
				t.Errorf("%q slot %d of %q under token %d", l.Name(), l.Slot(), l.Semaphore(), l.Token())
			}
			if previous, ok := l.Previous(); ok != (i > 0) || ok && string(previous.Data) != fmt.Sprint(i-1) {
				t.Errorf("previous %+v, %v", previous, ok)
			}
			if l.Remaining() <= 0 || l.Context().Err() != nil || l.Check() != nil {
				t.Error("the lease is not good")
			}
			if err := errors.Join(l.Release(t.Context()), l.Release(t.Context())); err != nil {
				t.Error(err)
			}
			if !errors.Is(l.Check(), tenure.ErrReleased) {
				t.Error(l.Check())
			}
		}
	})
}

var errWork = errors.New("work failed")

// Run returns what work returns, and what became of the lease.
func TestRun(t *testing.T) {
	onWorld(t, 1, func(t *testing.T, s *world) {
		p := s.process("p", 1)
		err := p.Run(t.Context(), nil, func(ctx context.Context, l *semaphore.Lease) error {
			if inner, ok := tenure.FromContext(ctx); !ok || inner.Name() != l.Name() {
				t.Error("the context knows nothing of the lease")
			}
			return errWork
		})
		if err != errWork { //nolint:errorlint // as it is
			t.Error(err)
		}
		func() {
			defer func() {
				if v := recover(); v != "work" {
					t.Errorf("panic %v", v)
				}
			}()
			_ = p.Run(t.Context(), nil, func(context.Context, *semaphore.Lease) error { panic("work") })
		}()
		p.release(p.hold(t.Context()))
	})
}

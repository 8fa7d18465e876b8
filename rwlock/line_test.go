// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
)

// A semaphore of the same name is another lock. The holder of its slot gets in to write,
// although another process waits for that slot: otherwise the two would wait for each
// other.
func TestSemaphoreOfTheSameName(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		slots := func(p *process) *semaphore.Semaphore {
			sem, err := semaphore.New(p.client.Client, name, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			return sem
		}
		r, first, second := s.process("r"), s.process("first"), s.process("second")
		read := r.read(t.Context())
		slot, err := slots(first).Acquire(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			slot, err := slots(second).Acquire(t.Context(), nil)
			if err == nil {
				err = slot.Release(t.Context())
			}
			got <- err
		}()
		time.Sleep(2 * refresh) // it stands at the front of the semaphore's line
		time.AfterFunc(2*refresh, func() { r.release(read) })
		ctx, stop := context.WithTimeout(t.Context(), 6*refresh)
		defer stop()
		first.release(first.write(ctx))
		if err := slot.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

// No process depends on the line alone: neither if the writer at its front is stuck, nor
// if its record cannot be read.
func TestNoWriterDependsOnTheLine(t *testing.T) {
	for _, tc := range []struct {
		name  string
		stuck func(s *world, w *process)
	}{
		{"a process at the front is stuck", func(s *world, _ *process) {
			if _, err := s.process("stuck").client.TryAcquire(s.t.Context(), rwlock.LineName(name), nil); err != nil {
				s.t.Fatal(err)
			}
		}},
		{"no answer for its record", func(_ *world, w *process) {
			w.client.Faults().Inject(faultstore.Rule{Key: rwlock.LineName(name), Fault: faultstore.BlackHole()})
		}},
		{"errors for its record", func(_ *world, w *process) {
			w.client.Faults().Inject(faultstore.Rule{Key: rwlock.LineName(name), Fault: faultstore.Refuse()})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onWorld(t, func(t *testing.T, s *world) {
				holder, w := s.process("holder"), s.process("w")
				for range 2 { // the second time the writer knows that there is a line
					l := holder.write(t.Context())
					tc.stuck(s, w)
					tc.stuck = func(*world, *process) {}
					const work = 2 * lease
					begun := time.Now()
					time.AfterFunc(work, func() { holder.release(l) })
					ctx, stop := context.WithTimeout(t.Context(), 4*lease)
					written, err := w.AcquireWrite(ctx, &rwlock.WriteOptions{AcquireOptions: tenure.AcquireOptions{StoreTimeout: 5 * refresh}})
					stop()
					if err != nil {
						t.Fatalf("after %v: %v", time.Since(begun), err)
					}
					// Two looks at the gate, and one at the line, which gives no answer.
					if took := time.Since(begun) - work; took < 0 || took > 12*refresh+w.client.Options().RequestTimeout {
						t.Errorf("the writer began %v after the other one had left", took)
					}
					s.got(written, err)
					w.release(written)
				}
			})
		})
	}
}

// A writer that has written recently lets the writers in the line go first, unless the
// first of them is stuck.
func TestWriterThatStandsBackDependsOnNobody(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		holder, w := s.process("holder"), s.process("w")
		w.release(w.write(t.Context()))
		l := holder.write(t.Context())
		if _, err := s.process("stuck").client.TryAcquire(t.Context(), rwlock.LineName(name), nil); err != nil {
			t.Fatal(err)
		}
		const work = 2 * refresh
		begun := time.Now()
		time.AfterFunc(work, func() { holder.release(l) })
		ctx, stop := context.WithTimeout(t.Context(), 4*lease)
		defer stop()
		written, err := w.AcquireWrite(ctx, nil)
		if took := time.Since(begun) - work; err != nil || took > 12*refresh {
			t.Fatalf("the writer began %v after the other one had left: %v", took, err)
		}
		s.got(written, err)
		w.release(written)
	})
}

// A writer behind others does not take the gate while it stands open for the readers:
// only when no process has held it for the time between two polls.
func TestWriterBehindOthersLeavesTheReadersTheirTurn(t *testing.T) {
	for _, work := range []time.Duration{refresh, 7 * refresh} {
		onWorld(t, func(t *testing.T, s *world) {
			front, w := s.process("front").client, s.process("w")
			l := w.write(t.Context())
			if _, err := front.TryAcquire(t.Context(), rwlock.LineName(name), nil); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), 20*lease)
			defer stop()
			go func() {
				// Another process takes the gate again and again, as writers at the front do.
				for w.release(l); ctx.Err() == nil; time.Sleep(2 * refresh) {
					if gate, err := front.TryAcquire(ctx, rwlock.GateName(name), nil); err == nil {
						time.Sleep(work)
						_ = gate.Release(ctx)
					}
				}
			}()
			time.Sleep(refresh)
			if _, err := s.process("behind").AcquireWrite(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a writer came before those at the front, who write for %v: %v", work, err)
			}
		})
	}
}

// A writer that waits in the line learns that the store gives no answer, as one before the
// gate does.
func TestStoreTimeoutInTheLine(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		holder, front, w := s.process("holder"), s.process("front"), s.process("w")
		l := holder.write(t.Context())
		ctx, stop := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = front.AcquireWrite(ctx, nil)
		}()
		time.Sleep(3 * refresh)
		got := make(chan error, 1)
		begun := time.Now()
		time.AfterFunc(lease, w.client.Partition)
		go func() {
			_, err := w.AcquireWrite(t.Context(), nil)
			got <- err
		}()
		select {
		case err := <-got:
			if took := time.Since(begun); took < 2*lease || errors.Is(err, tenure.ErrHeld) {
				t.Errorf("after %v: %v", took, err)
			}
		case <-time.After(4 * lease):
			t.Error("the writer waits on, three leases after the store has answered last")
		}
		stop()
		<-gone
		holder.release(l)
		w.client.Heal()
	})
}

// A foreign lock with the name of the number of slots, or of the gate, is reported: no
// process reads or writes then.
func TestForeignLocks(t *testing.T) {
	for other, says := range map[string]string{rwlock.SizeName(name): `"other"`, rwlock.GateName(name): "another lock has the name"} {
		onWorld(t, func(t *testing.T, s *world) {
			p := s.process("p")
			if _, err := s.process("other").client.TryAcquire(t.Context(), other, nil); err != nil {
				t.Fatal(err)
			}
			_, err1 := p.AcquireRead(t.Context(), nil)
			_, err2 := p.AcquireWrite(t.Context(), nil)
			_, err3 := p.TryAcquireRead(t.Context(), nil)
			_, err4 := p.TryAcquireWrite(t.Context(), nil)
			for _, err := range []error{err1, err2, err3, err4} {
				if !errors.Is(err, tenure.ErrUnreadable) || errors.Is(err, tenure.ErrHeld) || !strings.Contains(err.Error(), says) {
					t.Errorf("beside a lock of the name %s: %v", other, err)
				}
			}
		})
	}
}

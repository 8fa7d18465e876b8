// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/rwlock"
)

// waits are how long it took to get a lease.
type waits struct {
	mu   sync.Mutex
	list []time.Duration
}

func (w *waits) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, d)
}

func (w *waits) longest() time.Duration { return slices.Max(append(w.list, 0)) }

func (w *waits) String() string {
	list := slices.Sorted(slices.Values(w.list))
	if len(list) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d: median %v, longest %v", len(list), list[len(list)/2], list[len(list)-1])
}

// loop acquires, works for a while, releases, and pauses, until ctx ends.
func (p *process) loop(ctx context.Context, w *waits, write bool, work, pause time.Duration) {
	for ctx.Err() == nil {
		begun := time.Now()
		acquire := func() (*rwlock.Lease, error) { return p.AcquireRead(ctx, nil) }
		if write {
			acquire = func() (*rwlock.Lease, error) { return p.AcquireWrite(ctx, nil) }
		}
		l, err := acquire()
		if err != nil {
			if ctx.Err() == nil {
				p.s.t.Error(err)
			}
			return
		}
		p.s.got(l, nil)
		w.add(time.Since(begun))
		time.Sleep(work/2 + rand.N(work/2+1))
		p.release(l)
		time.Sleep(rand.N(pause + 1))
	}
}

// Fifty processes that come and go at once, and five that write in a loop. A turn of a
// writer is the longest read, its own write, and three refresh periods: two for readers,
// and one to see that they have left. A writer gets in after two turns of each of the
// others and its own, a reader within three writers' terms and three refresh periods.
func TestNobodyStarves(t *testing.T) {
	enginetest.MakeVerify(t)
	onWorld(t, func(t *testing.T, s *world) {
		const longestRead, longestWrite = 2 * time.Second, time.Second
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
		defer stop()
		var wg sync.WaitGroup
		var readers, writers waits
		for i := range 50 {
			p := s.process(fmt.Sprint("r", i))
			wg.Go(func() { p.loop(ctx, &readers, false, longestRead, 0) })
		}
		for i := range 5 {
			p := s.process(fmt.Sprint("w", i))
			wg.Go(func() { p.loop(ctx, &writers, true, longestWrite, 0) })
		}
		wg.Wait()
		t.Logf("readers %v; writers %v", &readers, &writers)
		if most := (2*4 + 1) * (longestRead + longestWrite + 3*refresh); writers.longest() > most || len(writers.list) < 20 {
			t.Errorf("a writer waited for %v, of %v at most, or too few wrote: %v", writers.longest(), most, &writers)
		}
		if most := 3*(longestWrite+longestRead) + 3*refresh; readers.longest() > most || len(readers.list) < 500 {
			t.Errorf("a reader waited for %v, of %v at most, or too few read: %v", readers.longest(), most, &readers)
		}
	})
}

// Goroutines of one process that read without a pause share its slot, and do not keep a
// writer out for longer than the longest of them and three refresh periods.
func TestOneProcessDoesNotKeepAWriterOut(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		const longestRead = 5 * time.Second
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		var wg sync.WaitGroup
		var readers, writers waits
		p := s.process("r")
		for range 20 {
			wg.Go(func() { p.loop(ctx, &readers, false, longestRead, 0) })
		}
		w := s.process("w")
		wg.Go(func() { w.loop(ctx, &writers, true, time.Second, 10*time.Second) })
		wg.Wait()
		t.Logf("readers %v; writers %v", &readers, &writers)
		if writers.longest() > longestRead+3*refresh || len(writers.list) < 5 {
			t.Errorf("the writer waited: %v", &writers)
		}
	})
}

// One process that writes in a loop lets readers in, which cannot notify it that they
// wait. Without readers it does not pause.
func TestOneWriterDoesNotKeepReadersOut(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		var wg sync.WaitGroup
		var readers, writers, alone waits
		w := s.process("w")
		early, enough := context.WithTimeout(ctx, 10*time.Second)
		defer enough()
		w.loop(early, &alone, true, 100*time.Millisecond, 0)
		if len(alone.list) < 80 || alone.longest() > 0 {
			t.Errorf("a writer that is alone waited: %v", &alone)
		}
		wg.Go(func() { w.loop(ctx, &writers, true, time.Second, 0) })
		for i := range 3 {
			p := s.process(fmt.Sprint("r", i))
			wg.Go(func() { p.loop(ctx, &readers, false, time.Second, 20*time.Second) })
		}
		wg.Wait()
		t.Logf("readers %v; writers %v", &readers, &writers)
		if readers.longest() > 3*time.Second+3*refresh || len(readers.list) < 12 {
			t.Errorf("a reader waited: %v", &readers)
		}
	})
}

// A writer that finds a process reading waits for that term, and not until the slot is
// free: later readers turn back.
func TestWriterWaitsForTerms(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r, w := s.process("r"), s.process("w")
		l := r.read(t.Context())
		got := make(chan *rwlock.Lease)
		begun := time.Now()
		go func() { got <- w.write(t.Context()) }()
		time.Sleep(10 * refresh)
		late := s.process("late")
		_ = late.busy(late.TryAcquireRead(t.Context(), nil))
		_ = r.busy(r.TryAcquireRead(t.Context(), nil)) // no reader joins once the gate was seen shut
		r.release(l)
		written := <-got
		if took := time.Since(begun); took > 12*refresh {
			t.Errorf("the writer began %v after the reader had left", took-10*refresh)
		}
		w.release(written)
	})
}

// With StepDown the readers that are there are asked to stop.
func TestStepDownOfReaders(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r, w := s.process("r"), s.process("w")
		l, more := r.read(t.Context()), r.read(t.Context())
		go func() {
			<-l.Context().Done()
			<-more.Context().Done()
			var asked *tenure.StepDownError
			if cause := context.Cause(l.Context()); !errors.As(cause, &asked) || asked.Reason != "prices change" || l.Check() != nil {
				t.Errorf("asked by %v, check %v", cause, l.Check())
			}
			r.release(l)
			r.release(more)
		}()
		w.release(s.got(w.AcquireWrite(t.Context(), &rwlock.WriteOptions{StepDown: true, Reason: "prices change"})))
	})
}

// A crash of a reader or a writer at any of its calls holds the others up for its lease
// and one poll, and not longer.
func TestCrashAtEachCall(t *testing.T) {
	for _, write := range []bool{false, true} {
		for calls := range 14 {
			t.Run(fmt.Sprintf("write %v, after call %d", write, calls), func(t *testing.T) {
				onWorld(t, func(t *testing.T, s *world) { crashAt(t, s, write, calls) })
			})
		}
	}
}

func crashAt(t *testing.T, s *world, write bool, calls int) {
	r, w, victim := s.process("r"), s.process("w"), s.process("victim")
	first := r.read(t.Context()) // so that a writer waits with the gate in hand
	if !write {
		r.release(first)
	}
	victim.client.Faults().Inject(faultstore.Rule{Skip: calls, Fault: faultstore.BlackHole()})
	ended := make(chan *rwlock.Lease, 1)
	go func() {
		var l *rwlock.Lease
		if write {
			l, _ = victim.AcquireWrite(t.Context(), nil)
		} else {
			l, _ = victim.AcquireRead(t.Context(), nil)
		}
		ended <- l // nil if it did not get so far
	}()
	time.Sleep(2 * refresh)
	if write {
		r.release(first)
	}
	time.Sleep(5 * refresh)
	victim.client.Kill()
	l := <-ended
	begun := time.Now()
	w.release(w.write(t.Context()))
	got := r.read(t.Context())
	// Its lease counts from its last heartbeat; a crash in the line costs as much again.
	if took := time.Since(begun); took > 2*lease+10*refresh {
		t.Errorf("a writer and a reader took %v", took)
	}
	r.release(got)
	if l != nil && l.Check() == nil {
		t.Error("the victim still believes")
	}
}

// A writer that crashes while it writes holds readers up for its lease and one poll;
// their leases say that it crashed, also if another writer has come since and given up.
func TestCrashOfAWriter(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		w, r := s.process("w"), s.process("r")
		w.write(t.Context())
		w.client.Kill()
		begun := time.Now()
		got := r.read(t.Context())
		if took := time.Since(begun); took > lease+3*refresh {
			t.Errorf("the reader waited for %v", took)
		}
		last, ok := got.LastWriter()
		if !ok || last.Owner != "w" || last.End != tenure.EndReleasedDead || got.Epoch() != 1 {
			t.Errorf("last writer %+v", last)
		}
		next := s.process("next")
		_ = next.busy(next.TryAcquireWrite(t.Context(), nil))
		another := s.process("another")
		read := another.read(t.Context())
		if again, ok := read.LastWriter(); !ok || again.Owner != "w" || again.End != tenure.EndReleasedDead || read.Token() != got.Token() {
			t.Errorf("after a gate was given back the last writer is %+v", again)
		}
		another.release(read)
		r.release(got)
		repair := next.write(t.Context())
		if last, ok := repair.LastWriter(); !ok || last.Owner != "w" {
			t.Errorf("the next writer gets %+v", last)
		}
		next.release(repair)
		whole := r.read(t.Context())
		if last, _ := whole.LastWriter(); last.Owner != "next" || last.End != tenure.EndReleased {
			t.Errorf("last writer %+v", last)
		}
		r.release(whole)
	})
}

// Later holders learn that the work of a writer failed.
func TestFailedWriter(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		w, r := s.process("w"), s.process("r")
		broken := errors.New("disk full")
		if err := w.RunWrite(t.Context(), nil, func(context.Context, *rwlock.Lease) error { return broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
		err := r.RunRead(t.Context(), nil, func(_ context.Context, l *rwlock.Lease) error {
			last, ok := l.LastWriter()
			if !ok || last.End != tenure.EndFailed || last.Request == nil || last.Request.Reason != "disk full" {
				t.Errorf("last writer %+v", last)
			}
			return l.Check()
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// The end of the context is honoured at once, wherever a caller waits, and leaves
// nothing behind that holds up others.
func TestContextEndsTheWait(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r, w := s.process("r"), s.process("w")
		for _, shut := range []bool{false, true} {
			var l *rwlock.Lease
			if shut {
				l = w.write(t.Context())
			} else {
				l = r.read(t.Context())
			}
			for i := range 2 {
				p := s.process(fmt.Sprintf("waits %v %d", shut, i))
				ctx, stop := context.WithTimeout(t.Context(), time.Duration(i+1)*5*refresh)
				begun := time.Now()
				_, err := p.AcquireWrite(ctx, nil)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > time.Duration(i+1)*5*refresh+10*time.Millisecond {
					t.Errorf("after %v: %v", time.Since(begun), err)
				}
				var busy *rwlock.BusyError
				if !errors.As(err, &busy) || shut && (busy.Writer == nil || busy.Writer.Owner != "w") ||
					!shut && (len(busy.Readers) != 1 || busy.Readers[0].Owner != "r") {
					t.Errorf("it does not name the holder in the way: %v", err)
				}
				stop()
			}
			for i := range 2 {
				p := s.process(fmt.Sprintf("bounded %v %d", shut, i))
				acquire := func(o tenure.AcquireOptions) (err error) {
					if i == 0 || !shut { // who reads keeps out those who write alone
						_, err = p.AcquireWrite(t.Context(), &rwlock.WriteOptions{AcquireOptions: o})
						return err
					}
					_, err = p.AcquireRead(t.Context(), &o)
					return err
				}
				var busy *rwlock.BusyError
				if err := acquire(tenure.AcquireOptions{Wait: 5 * refresh}); !errors.As(err, &busy) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("after a wait that was bounded: %v", err)
				}
			}
			if shut {
				ctx, stop := context.WithTimeout(t.Context(), refresh)
				var busy *rwlock.BusyError
				_, err := r.AcquireRead(ctx, nil)
				if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &busy) ||
					busy.Writer == nil || busy.Writer.Owner != "w" {
					t.Error(err)
				}
				stop()
				w.release(l)
			} else {
				r.release(l)
			}
			begun := time.Now()
			w.release(w.write(t.Context()))
			r.release(r.read(t.Context()))
			if took := time.Since(begun); took > 3*refresh {
				t.Errorf("what was left behind took %v", took)
			}
		}
	})
}

// A writer that becomes a reader reads what it wrote, and lets other readers in, and no
// writer between.
func TestDowngrade(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		w, r, next := s.process("w"), s.process("r"), s.process("next")
		l := w.write(t.Context())
		got := make(chan *rwlock.Lease)
		go func() { got <- next.write(t.Context()) }()
		time.Sleep(2 * refresh)
		if err := l.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l.Writing() || l.Token() != 3 || l.Epoch() != 1 || l.Check() != nil || l.Context().Err() != nil {
			t.Errorf("token %d, check %v, context %v", l.Token(), l.Check(), l.Context().Err())
		}
		if last, ok := l.LastWriter(); !ok || last.Owner != "w" || last.End != tenure.EndReleased {
			t.Errorf("last writer %+v", last)
		}
		more := w.read(t.Context()) // joins
		other := r.read(t.Context())
		if more.Token() != 3 || other.Token() != 3 {
			t.Errorf("other readers have %d and %d", more.Token(), other.Token())
		}
		if last, ok := other.LastWriter(); !ok || last.Owner != "w" || last.End != tenure.EndReleased {
			t.Errorf("other readers get %+v", last)
		}
		if err := l.Downgrade(t.Context()); !errors.Is(err, rwlock.ErrNotWriting) {
			t.Error(err)
		}
		w.release(l)
		r.release(other)
		time.Sleep(10 * refresh)
		select {
		case <-got:
			t.Fatal("a writer came in beside a reader that was a writer")
		default:
		}
		w.release(more)
		next.release(<-got)
	})
}

// A writer whose gate is taken while it becomes a reader does not read: its data may have
// changed. None of its requests gets through but a release of its gate, until another
// process writes.
func TestDowngradeWhoseGateIsTaken(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		w, next := s.process("w"), s.process("next")
		l, err := w.AcquireWrite(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		heal := w.client.Faults().Inject(faultstore.Rule{Decide: func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.OpRelease && c.Key == rwlock.GateName(name) {
				return faultstore.Fault{}
			}
			return faultstore.BlackHole()
		}})
		said := make(chan error)
		go func() { said <- l.Downgrade(t.Context()) }()
		written := next.write(t.Context())
		heal()
		err = <-said
		if beside := l.Check() == nil && written.Check() == nil; beside || !errors.Is(err, tenure.ErrLost) {
			t.Errorf("a reader beside the next writer: %v; the downgrade: %v", beside, err)
		}
		next.release(written)
		_ = l.Release(t.Context()) // it was lost
	})
}

// Whatever is asked twice, or too late, is answered.
func TestReleaseAgain(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		p := s.process("p")
		a, b := p.read(t.Context()), p.read(t.Context())
		p.release(a)
		p.release(a)
		if err := a.Check(); !errors.Is(err, tenure.ErrReleased) || a.Remaining() != 0 || !errors.Is(context.Cause(a.Context()), tenure.ErrReleased) {
			t.Errorf("check %v after a release", err)
		}
		if b.Check() != nil || b.Context().Err() != nil || b.Remaining() == 0 {
			t.Error("another reader has lost its lease")
		}
		if st, err := p.Status(t.Context()); err != nil || len(st.Readers) != 1 {
			t.Errorf("status %+v, %v", st, err)
		}
		p.release(b)
		if err := a.Downgrade(t.Context()); !errors.Is(err, rwlock.ErrNotWriting) {
			t.Error(err)
		}
		w := p.write(t.Context())
		p.release(w)
		if err := w.Downgrade(t.Context()); !errors.Is(err, tenure.ErrReleased) {
			t.Error(err)
		}
	})
}

// A writer does not wait for later readers that turn back, though they take the slots all
// the time. It waits ten leases at most.
func TestWriterComesBesideReadersThatTurnBack(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var wg sync.WaitGroup
		for i := range 16 {
			r := s.process(fmt.Sprint("r", i))
			l := r.read(ctx)
			wg.Go(func() {
				time.Sleep(5 * refresh)
				r.release(l)
				// Its release is slow: it has the slot nearly all the time.
				r.client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpRelease}, Fault: faultstore.Slow(900*time.Millisecond, 0)})
				for ctx.Err() == nil {
					if l, err := r.TryAcquireRead(ctx, nil); err == nil {
						_ = l.Release(ctx) // before the writer came, or after
					}
				}
			})
		}
		w := s.process("w")
		time.Sleep(refresh)
		waits, enough := context.WithTimeout(ctx, 5*refresh+10*lease)
		defer enough()
		begun := time.Now()
		l, err := w.AcquireWrite(waits, nil)
		took := time.Since(begun) - 4*refresh
		if err == nil {
			w.release(l)
		}
		stop()
		wg.Wait()
		if took > 3*refresh {
			t.Errorf("the writer came after %v", took)
		}
	})
}

// A store that gives no answer for a moment, after a long wait, ends no wait.
func TestAMomentWithoutTheStore(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		holder, r, w, front := s.process("holder"), s.process("r"), s.process("w"), s.process("front")
		l := holder.write(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { front.release(front.write(t.Context())) })
		time.Sleep(refresh)
		wg.Go(func() { r.release(r.read(t.Context())) })
		wg.Go(func() { w.release(w.write(t.Context())) })
		for _, fault := range []faultstore.Fault{faultstore.LoseRequest(), faultstore.Refuse(), faultstore.BlackHole()} {
			time.Sleep(3 * lease)
			for _, p := range []*process{r, w, front} {
				defer p.client.Faults().Inject(faultstore.Rule{Fault: fault, Count: 7})()
			}
		}
		time.Sleep(lease / 2)
		holder.release(l)
		wg.Wait()
	})
}

// A reader that comes while the writer is silent, and its lease lasts, does not read beside
// it.
func TestReaderWaitsForASilentWriter(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		w, r := s.process("w"), s.process("r")
		written, err := w.AcquireWrite(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		w.client.Partition()
		for {
			time.Sleep(refresh)
			switch _, err := r.TryAcquireRead(t.Context(), nil); {
			case err == nil:
				if written.Check() == nil {
					t.Error("it reads beside a writer")
				}
				return
			case !errors.Is(err, rwlock.ErrBusy):
				t.Fatal(err)
			}
		}
	})
}

// A crashed reader is not kept alive by a living one, as in redisson#7098.
func TestCrashedReaderBesideALivingOne(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		a, b, w := s.process("a"), s.process("b"), s.process("w")
		a.read(t.Context())
		living := b.read(t.Context())
		a.client.Kill()
		got := make(chan *rwlock.Lease)
		go func() { got <- w.write(t.Context()) }()
		time.Sleep(5 * lease)
		b.release(living)
		begun := time.Now()
		w.release(<-got)
		if took := time.Since(begun); took > 2*refresh {
			t.Errorf("the writer came %v after the living reader had left", took)
		}
	})
}

// A process that loses its right while it waits gets no lock, as it did in etcd#16221.
func TestRightLostWhileWaiting(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r, w, other := s.process("r"), s.process("w"), s.process("other")
		l := r.read(t.Context())
		got := make(chan *rwlock.Lease)
		go func() { got <- w.write(t.Context()) }()
		time.Sleep(3 * refresh)
		w.client.Pause() // with the gate in hand, until it is over
		time.Sleep(2 * lease)
		r.release(l)
		written := other.write(t.Context())
		w.client.Resume()
		time.Sleep(5 * refresh)
		select {
		case <-got:
			t.Fatal("two writers")
		default:
		}
		other.release(written)
		w.release(<-got)
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/rwlock"
)

// Readers read beside each other, a writer alone, and their tokens rise in the order in
// which they exclude each other.
func TestReadersAndWriters(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		a, b, c := s.process("a"), s.process("b"), s.process("c")
		ra, rb := a.read(t.Context()), b.read(t.Context())
		if ra.Token() != 1 || rb.Token() != 1 || ra.Name() != name || ra.Writing() {
			t.Errorf("readers have %d and %d of %q", ra.Token(), rb.Token(), ra.Name())
		}
		if _, ok := ra.LastWriter(); ok {
			t.Error("a process has written")
		}
		busy := c.busy(c.TryAcquireWrite(t.Context(), nil))
		if len(busy.Readers) != 2 || busy.Writer != nil {
			t.Errorf("busy with %+v", busy)
		}
		a.release(ra)
		b.release(rb)
		w := c.write(t.Context())
		if w.Token() != 4 || w.Epoch() != 2 || !w.Writing() { // the gate was given back once
			t.Errorf("writer has %d", w.Token())
		}
		if n, ok := w.LastWriter(); ok {
			t.Errorf("%+v: a gate that was given back counts as a writer", n)
		}
		if busy := a.busy(a.TryAcquireRead(t.Context(), nil)); busy.Writer == nil || busy.Writer.Owner != "c" {
			t.Errorf("busy with %+v", busy)
		}
		if busy := a.busy(a.TryAcquireWrite(t.Context(), nil)); busy.Writer == nil || busy.Writer.Owner != "c" {
			t.Errorf("busy with %+v", busy)
		}
		if st, err := a.Status(t.Context()); err != nil || st.Writer == nil || st.Writer.Owner != "c" || st.Epoch != 2 || st.LastWriter != nil {
			t.Errorf("while c writes, the status is %+v, %v", st, err)
		}
		c.release(w)
		if st, err := a.Status(t.Context()); err != nil || st.Writer != nil || st.LastWriter == nil || st.LastWriter.Owner != "c" {
			t.Errorf("when c has written, the status is %+v, %v", st, err)
		}
		ra = a.read(t.Context())
		last, ok := ra.LastWriter()
		if ra.Token() != 5 || !ok || last.Owner != "c" || last.End != "released" || last.Token != 2 {
			t.Errorf("reader has %d, after %+v", ra.Token(), last)
		}
		if _, err := a.AcquireWrite(t.Context(), nil); !errors.Is(err, rwlock.ErrReading) {
			t.Error(err)
		}
		a.release(ra)
	})
}

// More processes read than there are slots at first: there are more then, and the writer
// waits for all of them.
func TestSlotsGrow(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		var leases []*rwlock.Lease
		var processes []*process
		for i := range 40 {
			p := s.process(fmt.Sprint("r", i))
			processes, leases = append(processes, p), append(leases, p.read(t.Context()))
		}
		w := s.process("w")
		if busy := w.busy(w.TryAcquireWrite(t.Context(), nil)); len(busy.Readers) != 40 {
			t.Errorf("%d readers are in the way", len(busy.Readers))
		}
		st, err := w.Status(t.Context())
		if err != nil || len(st.Readers) != 40 || st.Slots != 64 {
			t.Errorf("%d slots, %d readers, %v", st.Slots, len(st.Readers), err)
		}
		for i, p := range processes {
			p.release(leases[i])
		}
		w.release(w.write(t.Context()))
	})
}

// A thousand goroutines of one process that begin to read at once take one slot, and
// release it once.
func TestGoroutinesShareASlot(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		p := s.process("p")
		p.release(p.read(t.Context())) // stores the number of slots
		p.client.Faults().ResetLog()
		p.client.Slow(100 * time.Millisecond)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				l := p.read(t.Context())
				time.Sleep(refresh / 2)
				p.release(l)
			})
		}
		wg.Wait()
		if n := p.client.Faults().Count(); n != 3 {
			t.Errorf("%d calls: %v", n, p.client.Faults().Log())
		}
	})
}

// A reader that has left leaves nothing in the memory of a process that others read in.
func TestReaderThatHasLeftIsForgotten(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		p := s.process("p")
		stays := p.read(t.Context())
		left := func() weak.Pointer[rwlock.Lease] {
			l := testutil.Must(p.AcquireRead(t.Context(), nil))(t)
			p.release(l)
			return weak.Make(l)
		}()
		runtime.GC()
		if left.Value() != nil {
			t.Error("it is still in memory")
		}
		p.release(stays)
	})
}

// stepped is a clock whose holder's time can be stepped, as after a pause of the machine.
type stepped struct {
	tenure.Clock
	by atomic.Int64
}

func (c *stepped) Holder() time.Duration { return c.Clock.Holder() + time.Duration(c.by.Load()) }

// A writer whose lease ends while it takes the slot of the reader that it is to become has
// lost the lock: what has failed once stays so, and the slot is given back.
func TestDowngradeOfAGateThatIsLost(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		clock := &stepped{Clock: tenure.MonotonicClock()}
		w := s.process("w", func(o *tenure.Options) { o.Clock = clock })
		l := w.write(t.Context())
		w.client.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Key == rwlock.GateName(name) && c.Op == faultstore.OpHeartbeat },
			Fault: faultstore.BlackHole(),
		}, faultstore.Rule{
			Ops: []faultstore.Op{faultstore.OpClaim},
			Decide: func(c faultstore.Call) faultstore.Fault {
				if l.Check() == nil && l.Remaining() < 2*refresh {
					clock.by.Add(int64(3 * refresh)) // no timer has fired yet
				}
				if l.Check() == nil {
					t.Errorf("before the claim of %q the lease is good for %v: the test has lost its point", c.Key, l.Remaining())
				}
				return faultstore.Fault{}
			},
		})
		for l.Remaining() > refresh {
			time.Sleep(refresh / 10)
		}
		if err := l.Downgrade(t.Context()); !errors.Is(err, tenure.ErrLost) {
			t.Errorf("downgraded: %v", err)
		}
		if l.Check() == nil {
			t.Error("the lease had ended, and is good again")
		}
		_ = l.Release(t.Context()) // it was lost
		st, err := w.Status(t.Context())
		if err != nil || len(st.Readers) > 0 {
			t.Errorf("readers %+v, %v", st.Readers, err)
		}
	})
}

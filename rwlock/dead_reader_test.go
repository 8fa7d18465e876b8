// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/rwlock"
)

// A writer does not take a reader for dead by reads that are behind. The reader cannot renew
// until shortly before its lease is over, and then does; what the writer reads cheaply from
// then on is older than that. No refused write tells the writer.
func TestReaderIsNotDeadByAReadThatIsBehind(t *testing.T) {
	enginetest.MakeVerify(t)
	renewsAtTheLastMoment(t, func(c faultstore.Call, _ time.Duration, renewed bool) faultstore.Fault {
		if renewed && c.Consistency == driver.Eventual {
			return faultstore.Stale(1)
		}
		return faultstore.Fault{}
	}, wait)
}

func wait(p *process) *rwlock.Lease { return p.write(p.s.t.Context()) }

// So it is by a strong read whose answer is on its way while the reader renews, of a
// writer that waits, and of a writer that tries again and again.
func TestReaderIsNotDeadByAnAnswerThatIsLate(t *testing.T) {
	enginetest.MakeVerify(t)
	late := func(_ faultstore.Call, remaining time.Duration, renewed bool) faultstore.Fault {
		if remaining < 3*time.Second && !renewed {
			return faultstore.Slow(0, 2800*time.Millisecond)
		}
		return faultstore.Fault{}
	}
	renewsAtTheLastMoment(t, late, wait)
	renewsAtTheLastMoment(t, late, func(p *process) *rwlock.Lease {
		for {
			l, err := p.TryAcquireWrite(p.s.t.Context(), nil)
			if !errors.Is(err, rwlock.ErrBusy) {
				return p.s.got(l, err)
			}
			time.Sleep(refresh)
		}
	})
}

// A slot that cannot be read is not free: the writer reads it again, and waits for the reader
// that it shows then.
func TestSlotThatCannotBeReadIsNotFree(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r, w := s.process("r"), s.process("w")
		l := r.read(t.Context())
		slot, _ := l.Slot()
		refused := 0
		w.client.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Op == faultstore.OpGet && c.Key == rwlock.SlotName(name, slot) },
			Decide: func(faultstore.Call) faultstore.Fault {
				if refused++; refused%2 == 0 {
					return faultstore.Fault{}
				}
				return faultstore.Refuse()
			},
		})
		if busy := w.busy(w.TryAcquireWrite(t.Context(), nil)); len(busy.Readers) != 1 {
			t.Errorf("busy with %+v", busy)
		}
		written := make(chan *rwlock.Lease)
		go func() { written <- w.write(t.Context()) }() // fails the test if the reader may read still
		time.Sleep(lease)
		r.release(l)
		w.release(<-written)
		if refused < 4 {
			t.Errorf("the slot was read %d times: the test has lost its point", refused)
		}
	})
}

func renewsAtTheLastMoment(t *testing.T, reads func(c faultstore.Call, remaining time.Duration, renewed bool) faultstore.Fault, write func(*process) *rwlock.Lease) {
	t.Helper()
	late := func(o *tenure.Options) { o.Grace, o.MaxClockDrift = 100*time.Millisecond, 0.0001 }
	const rounds = 120
	renewed := 0
	for step := range rounds {
		onWorld(t, func(t *testing.T, s *world) {
			r, w := s.process("r", late), s.process("w", late, func(o *tenure.Options) {
				o.RefreshPeriod, o.RequestTimeout = lease/5, 2900*time.Millisecond // few polls
			})
			l := r.read(t.Context())
			time.Sleep(2*refresh + time.Duration(step)*23*time.Millisecond) // somewhere between two heartbeats
			var healed atomic.Bool
			r.client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Decide: func(faultstore.Call) faultstore.Fault {
				switch { // one is let through, at the last moment
				case healed.Load():
					return faultstore.BlackHole()
				case l.Remaining() > 250*time.Millisecond:
					return faultstore.Refuse()
				}
				healed.Store(true)
				return faultstore.Fault{}
			}})
			w.client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Decide: func(c faultstore.Call) faultstore.Fault {
				return reads(c, l.Remaining(), healed.Load())
			}})
			written := write(w) // fails the test if the reader may read still
			if healed.Load() {
				renewed++
			}
			w.release(written)
			_ = l.Release(t.Context()) // it was lost
		})
	}
	if renewed < rounds/3 {
		t.Errorf("the reader renewed at the last moment in %d of %d rounds", renewed, rounds)
	}
}

// A reader whose slot was revoked may be at work until it hears of it, or its lease is over.
// Until then the slot is reserved without an owner: neither held nor free. A writer waits
// for it, whether the slot was revoked before the writer came or while it waits.
func TestRevokedReaderIsWaitedFor(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprintf("the writer waits already %v", waits), func(t *testing.T) {
			onWorld(t, func(t *testing.T, s *world) {
				r, w, operator := s.process("r"), s.process("w"), s.process("operator")
				l := r.read(t.Context())
				slot, _ := l.Slot()
				r.client.Partition()
				written := make(chan *rwlock.Lease)
				write := func() { written <- w.write(t.Context()) } // fails the test if the reader may read still
				if waits {
					go write()
					time.Sleep(refresh)
				}
				ctx, stop := context.WithTimeout(t.Context(), refresh)
				defer stop()
				if err := admin.Revoke(ctx, operator.client.Client, rwlock.SlotName(name, slot), "it does not answer"); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if st, err := operator.client.Status(t.Context(), rwlock.SlotName(name, slot)); st.State != tenure.StateReserved || l.Check() != nil {
					t.Fatalf("the slot is %q, %v; the reader: %v", st.State, err, l.Check())
				}
				if !waits {
					busy := w.busy(w.TryAcquireWrite(t.Context(), nil))
					if len(busy.Readers) != 1 || busy.FreeIn == 0 {
						t.Errorf("busy with %+v", busy)
					}
					go write()
				}
				w.release(<-written)
				_ = l.Release(t.Context()) // it was lost
			})
		})
	}
}

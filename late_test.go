// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

func TestLateHeartbeatDoesNotReviveAReleasedRecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		m.fault(faultstore.OpHeartbeat, 0, 1, faultstore.LateAfterError(lease))
		time.Sleep(heartbeat)
		m.mustRelease(l)
		released := w.record("x")
		m.faults.Wait() // for the late heartbeat
		if rec := w.record("x"); rec.State != driver.Released || rec.Version != released.Version {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestLateHeartbeatDoesNotDisturbTheSuccessor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("same name"), w.machine("same name")
		la := a.mustAcquire("x", nil)
		time.Sleep(heartbeat)
		a.fault(faultstore.OpHeartbeat, 0, 0, faultstore.LateAfterError(2*lease))
		lb := b.mustAcquire("x", nil)
		want(t, la.Check(), tenure.ErrExpired)
		a.faults.Wait()
		time.Sleep(3 * lease)
		want(t, lb.Check(), nil)
		want(t, la.Check(), tenure.ErrExpired)
		if rec := w.record("x"); rec.State != driver.Held || rec.Token != 2 {
			t.Errorf("record %+v", rec)
		}
	})
}

// Every other heartbeat comes late by more than its caller waits: it is applied
// all the same, and the next attempt finds it in its way. Nothing is lost.
func TestHeartbeatsThatComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		l := m.mustAcquire("x", nil)
		m.faults.Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Op == faultstore.OpHeartbeat && c.N%2 == 1 },
			Fault: faultstore.Late(requestTimeout + time.Millisecond),
		})
		for range 100 {
			time.Sleep(heartbeat)
			want(t, l.Check(), nil)
		}
	})
}

// A claim that is applied after its caller gave up is cleaned up, and the lock
// is free long before its lease would be over.
func TestClaimAppliedAfterGivingUpIsCleanedUp(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{
		"soon":       faultstore.Late(requestTimeout / 2),
		"late":       faultstore.Late(3 * requestTimeout),
		"lost":       faultstore.LoseReplyHang(),
		"much later": faultstore.LateAfterError(2*requestTimeout + requestTimeout/2),
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m := w.machine("a")
			m.fault(faultstore.OpClaim, 0, 0, f)
			ctx, stop := context.WithTimeout(t.Context(), requestTimeout/4)
			defer stop()
			_, err := m.Acquire(ctx, "x", nil)
			want(t, err, context.DeadlineExceeded)
			time.Sleep(requestTimeout)
			m.faults.Wait()
			time.Sleep(lease / 2)
			if rec := w.record("x"); rec.State != driver.Released {
				t.Errorf("the record shows a holder that nobody believes in: %+v", rec)
			}
			// After a lease nothing is left to do.
			time.Sleep(lease)
			n := m.faults.Count()
			time.Sleep(10 * lease)
			if more := m.faults.Count() - n; more != 0 {
				t.Errorf("%d more requests", more)
			}
		})
	}
}

// A takeover that is applied after its caller gave up is cleaned up as well.
func TestTakeoverAppliedAfterGivingUpIsCleanedUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", nil)
		a.crash()
		b.fault(faultstore.OpTakeover, 0, 0, faultstore.LateAfterError(requestTimeout))
		ctx, stop := context.WithTimeout(t.Context(), lease+requestTimeout/2)
		defer stop()
		_, err := b.Acquire(ctx, "x", nil)
		want(t, err, context.DeadlineExceeded)
		b.faults.Wait()
		time.Sleep(lease / 2)
		if rec := w.record("x"); rec.State != driver.Released || rec.Token != 2 {
			t.Errorf("record %+v", rec)
		}
	})
}

// A claim of which nothing more can be learnt opens a term that nobody
// believes in; it runs out after its lease.
func TestLateDuplicateOfAClaimRunsOut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.fault(faultstore.OpClaim, 0, 1, faultstore.Duplicate(lease))
		la := a.mustAcquire("x", nil)
		a.mustRelease(la)
		a.faults.Wait()
		if rec := w.record("x"); rec.State != driver.Held || rec.Token != 2 {
			t.Fatalf("the duplicate was not applied: %+v", rec)
		}
		want(t, la.Check(), tenure.ErrReleased)
		start := time.Now()
		lb := b.mustAcquire("x", nil)
		if took := time.Since(start); took > lease+requestTimeout {
			t.Errorf("took %v", took)
		}
		if lb.Token() != 3 {
			t.Errorf("token %d, want 3", lb.Token())
		}
		want(t, la.Check(), tenure.ErrReleased)
	})
}

// A later acquire of the same client does not adopt the claim of an earlier
// one: what counts from an earlier instant would end too late.
func TestLateClaimIsNotAdoptedByALaterAcquire(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		m.fault(faultstore.OpClaim, 0, 1, faultstore.LateAfterError(2*time.Second))
		m.fault(faultstore.OpGet, 0, 1, faultstore.Slow(time.Second, 0))
		ctx, stop := context.WithTimeout(t.Context(), time.Second/2)
		defer stop()
		_, err := m.Acquire(ctx, "x", nil)
		want(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		l := m.mustAcquire("x", nil)
		if l.Token() == 1 {
			t.Error("the lease goes by the token of a claim that was given up")
		}
		time.Sleep(3 * lease)
		want(t, l.Check(), nil)
	})
}

func TestDuplicatedWritesChangeNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		for _, m := range []*machine{a, b} {
			m.faults.Inject(faultstore.Rule{
				Match: func(c faultstore.Call) bool { return c.Op.IsWrite() && c.Op != faultstore.OpClaim },
				Fault: faultstore.Fault{Again: []time.Duration{1, time.Second, lease, 4 * lease}},
			})
		}
		token := uint64(0)
		for range 5 {
			for _, m := range []*machine{a, b} {
				l := m.mustAcquire("x", nil)
				if token++; l.Token() != token {
					t.Errorf("token %d, want %d", l.Token(), token)
				}
				want(t, l.SetData(t.Context(), []byte(l.Owner())), nil)
				time.Sleep(lease)
				want(t, l.Check(), nil)
				if rec := w.record("x"); rec.Owner != l.Owner() || string(rec.Data) != l.Owner() {
					t.Errorf("record %+v", rec)
				}
				m.mustRelease(l)
				time.Sleep(lease)
				if rec := w.record("x"); rec.State != driver.Released {
					t.Errorf("record %+v", rec)
				}
			}
		}
	})
}

// A store that answers reads, and no claim, is not asked without pause.
func TestClaimsWithoutAnAnswerComeSlower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorld(t).machine("b")
		b.fault(faultstore.OpClaim, 0, 0, faultstore.LoseRequest())
		ctx, stop := context.WithTimeout(t.Context(), lease)
		defer stop()
		_, err := b.Acquire(ctx, "x", nil)
		want(t, err, context.DeadlineExceeded)
		if n := b.faults.Count(faultstore.OpClaim); n > 30 {
			t.Errorf("%d claims in %v", n, lease)
		}
	})
}

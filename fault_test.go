// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// each runs a test in a bubble for each of the faults.
func each(t *testing.T, faults map[string]faultstore.Fault, test func(*testing.T, faultstore.Fault)) {
	t.Helper()
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, f) })
		})
	}
}

// lostReplies are writes that are applied, and whose caller does not know.
var lostReplies = map[string]faultstore.Fault{
	"error": faultstore.LoseReply(),
	"hangs": faultstore.LoseReplyHang(),
	"late":  faultstore.Slow(0, 10*requestTimeout),
}

// noWrites are writes that are not applied.
var noWrites = map[string]faultstore.Fault{
	"says so":          faultstore.Refuse(),
	"does not say so":  faultstore.LoseRequest(),
	"hangs":            faultstore.BlackHole(),
	"slower than that": faultstore.Slow(10*requestTimeout, 0),
}

func TestClaimWithLostReplyCostsOneLook(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		m := w.machine("a")
		m.fault(faultstore.OpClaim, 0, 1, f)

		var l *tenure.Lease
		want(t, within(t, 0, requestTimeout+50*time.Millisecond, func() (err error) {
			l, err = m.Acquire(t.Context(), "x", nil)
			return err
		}), nil)
		if claims, looks := m.faults.Count(faultstore.OpClaim), m.faults.Count(faultstore.OpGet); claims != 1 || looks != 1 {
			t.Errorf("%d claims and %d looks, want one of each", claims, looks)
		}
		if l.Token() != 1 {
			t.Errorf("token %d, want 1", l.Token())
		}
		time.Sleep(4 * lease)
		want(t, l.Check(), nil)
		want(t, l.Release(t.Context()), nil)
		if got := m.events.kinds(); got != "store_error store_answers acquired stopping released" {
			t.Errorf("events: %s", got)
		}
	})
}

func TestTryAcquireWithLostReplyHoldsTheLock(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		m := newWorld(t).machine("a")
		m.fault(faultstore.OpClaim, 0, 1, f)
		l, err := m.TryAcquire(t.Context(), "x", nil)
		want(t, err, nil)
		want(t, l.Check(), nil)
	})
}

func TestTakeoverWithLostReplyHoldsTheLock(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", &tenure.AcquireOptions{Data: []byte("of a")})
		a.crash()
		b.fault(faultstore.OpTakeover, 0, 1, f)
		l := b.mustAcquire("x", nil)
		if n := b.faults.Count(faultstore.OpTakeover); n != 1 {
			t.Errorf("%d takeovers, want 1", n)
		}
		if l.Token() != 2 {
			t.Errorf("token %d, want 2", l.Token())
		}
		if p, ok := l.Previous(); !ok || p.Owner != "a" || p.End != "expired" || string(p.Data) != "of a" {
			t.Errorf("previous %+v, %v", p, ok)
		}
		time.Sleep(3 * lease)
		want(t, l.Check(), nil)
	})
}

func TestHeartbeatWithLostReplyLosesNothing(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		m := newWorld(t).machine("a")
		l := m.mustAcquire("x", nil)
		m.fault(faultstore.OpHeartbeat, 2, 1, f)
		time.Sleep(4 * lease)
		want(t, l.Check(), nil)
		want(t, l.Context().Err(), nil)
		m.mustRelease(l)
		if got := m.events.kinds(); got != "acquired jeopardy safe stopping released" {
			t.Errorf("events: %s", got)
		}
	})
}

func TestReleaseWithLostReplyIsDone(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		m.fault(faultstore.OpRelease, 0, 1, f)
		want(t, l.Release(t.Context()), nil)
		rec := w.record("x")
		if rec.State != driver.Released || rec.Token != 1 || rec.Until.IsZero() {
			t.Errorf("record %+v", rec)
		}
		want(t, l.Release(t.Context()), nil)
		if n := m.faults.Count(faultstore.OpRelease); n != 2 {
			t.Errorf("%d requests to release, want 2", n)
		}
	})
}

func TestSetDataWithLostReplyIsDone(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		m.fault(faultstore.OpSetData, 0, 1, f)
		want(t, l.SetData(t.Context(), []byte("checkpoint")), nil)
		if got := string(w.record("x").Data); got != "checkpoint" {
			t.Errorf("data %q", got)
		}
		time.Sleep(4 * lease)
		want(t, l.Check(), nil)
		if got := string(w.record("x").Data); got != "checkpoint" {
			t.Errorf("data %q after heartbeats", got)
		}
	})
}

func TestErrorBeforeApplyIsMendedByARetry(t *testing.T) {
	each(t, noWrites, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		m := w.machine("a")
		m.fault(faultstore.OpClaim, 0, 1, f)
		m.fault(faultstore.OpHeartbeat, 1, 1, f)
		m.fault(faultstore.OpSetData, 0, 1, f)
		m.fault(faultstore.OpRelease, 0, 1, f)
		l := m.mustAcquire("x", nil)
		time.Sleep(2 * lease)
		want(t, l.Check(), nil)
		want(t, l.SetData(t.Context(), []byte("d")), nil)
		if got := string(w.record("x").Data); got != "d" {
			t.Errorf("data %q", got)
		}
		want(t, l.Release(t.Context()), nil)
		if rec := w.record("x"); rec.State != driver.Released || rec.Token != 1 {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestTakeoverIsRetriedAfterAnError(t *testing.T) {
	each(t, noWrites, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", nil)
		a.crash()
		b.fault(faultstore.OpTakeover, 0, 1, f)
		l := b.mustAcquire("x", nil)
		want(t, l.Check(), nil)
		if l.Token() != 2 {
			t.Errorf("token %d, want 2", l.Token())
		}
	})
}

func TestRefusalsOfAMomentAreNoJeopardy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		l := m.mustAcquire("x", nil)
		m.fault(faultstore.OpHeartbeat, 0, 2, faultstore.Refuse()) // an engine that is busy
		time.Sleep(lease)
		m.mustRelease(l)
		if got := m.events.kinds(); got != "acquired stopping released" {
			t.Errorf("events: %s", got)
		}
	})
}

// A store that is down for less than the lease costs jeopardy and safe events,
// and nothing else.
func TestOutageShorterThanTheLease(t *testing.T) {
	each(t, map[string]faultstore.Fault{
		"hangs": faultstore.BlackHole(), "fails": faultstore.LoseRequest(), "refuses": faultstore.Refuse(),
	}, func(t *testing.T, f faultstore.Fault) {
		m := newWorld(t).machine("a")
		l := m.mustAcquire("x", nil)
		time.Sleep(2 * lease)

		remove := m.faults.Inject(faultstore.Rule{Fault: f})
		time.Sleep(usable(t) - heartbeat - requestTimeout)
		remove()
		want(t, l.Check(), nil)
		want(t, l.Context().Err(), nil)

		time.Sleep(2 * lease)
		want(t, l.Check(), nil)
		want(t, l.Context().Err(), nil)
		m.mustRelease(l)
		if got := m.events.kinds(); got != "acquired jeopardy safe stopping released" {
			t.Errorf("events: %s", got)
		}
		e := m.events.of(tenure.EventJeopardy)[0]
		if e.Err == nil || e.Remaining <= 0 || e.Remaining > usable(t) || e.Token != 1 {
			t.Errorf("jeopardy %+v", e)
		}
	})
}

// Acquires wait for a store that is down for less than their patience.
func TestAcquireOutlastsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		m.faults.SetBlackHole(true)
		time.AfterFunc(lease-2*requestTimeout, func() { m.faults.SetBlackHole(false) })
		want(t, m.mustAcquire("x", nil).Check(), nil)
	})
}

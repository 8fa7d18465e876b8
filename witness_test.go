// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

var errDenied = errors.New("the security token included in the request is invalid")

// badAnswers are those that a store calls permanent.
var badAnswers = map[string]faultstore.Fault{
	"not applied":      {Effect: faultstore.Refused, Err: driver.Permanent(errDenied)},
	"perhaps applied":  {Effect: faultstore.ReplyLost, Err: driver.Permanent(errDenied)},
	"perhaps to apply": {Effect: faultstore.LateAfterError(time.Second).Effect, Err: driver.Permanent(errDenied), Again: []time.Duration{time.Second}},
}

// incident has the machine's next calls fail as a store's do that will not have
// it any more; count 0: all of them.
func (m *machine) incident(count int, f faultstore.Fault) (remove func()) {
	return m.faults.Inject(faultstore.Rule{Count: count, Fault: f})
}

// leadsAfter has a candidate wait for a leader that leaves, with bad answers to
// the candidate in between, and returns what its Run has returned by the time at
// which somebody should lead, nil if it leads.
func leadsAfter(t *testing.T, w *world, count int, lasting time.Duration, f faultstore.Fault) (events *recorder, err error) {
	t.Helper()
	a, b := w.machine("a"), w.machine("b")
	leader := a.mustAcquire("x", nil)
	led := make(chan struct{})
	ran := started(func() error {
		return b.Election("x", nil).Run(t.Context(), func(ctx context.Context, _ *tenure.Lease) error {
			close(led)
			<-ctx.Done()
			return nil
		})
	})
	time.Sleep(5 * time.Second) // it has had good answers
	remove := b.incident(count, f)
	time.Sleep(lasting)
	remove()
	a.mustRelease(leader)
	time.Sleep(2 * lease)
	select {
	case <-led:
		return b.events, nil
	case err := <-ran:
		return b.events, err
	default:
		t.Error("nobody leads")
		return b.events, nil
	}
}

func TestOneBadAnswerEndsNoCandidate(t *testing.T) {
	each(t, badAnswers, func(t *testing.T, f faultstore.Fault) {
		events, err := leadsAfter(t, newWorld(t), 1, 5*time.Second, f)
		want(t, err, nil)
		if got := events.of(tenure.EventStoreError); len(got) != 1 || !errors.Is(got[0].Err, errDenied) {
			t.Errorf("told of it by %v, want one store_error", got)
		}
	})
}

func TestCandidateOutlastsAnIncident(t *testing.T) {
	each(t, badAnswers, func(t *testing.T, f faultstore.Fault) {
		events, err := leadsAfter(t, newWorld(t), 0, 10*lease, f)
		want(t, err, nil)
		if got := events.of(tenure.EventStoreError); len(got) < 10 {
			t.Errorf("told of it %d times in 10 leases", len(got))
		}
	})
}

// TestPermanentFromTheStart: who has never had a good answer is told at once.
func TestPermanentFromTheStart(t *testing.T) {
	work := func(context.Context, *tenure.Lease) error { return nil }
	for name, call := range map[string]func(context.Context, *machine) error{
		"election": func(ctx context.Context, m *machine) error { return m.Election("x", nil).Run(ctx, work) },
		"acquire":  func(ctx context.Context, m *machine) error { _, err := m.Acquire(ctx, "x", nil); return err },
		"try":      func(ctx context.Context, m *machine) error { _, err := m.TryAcquire(ctx, "x", nil); return err },
		"session":  func(ctx context.Context, m *machine) error { _, err := m.OpenSession(ctx, nil); return err },
		"ask":      func(ctx context.Context, m *machine) error { return m.StepDown(ctx, "x", "for the test") },
		"status":   func(ctx context.Context, m *machine) error { _, err := m.Status(ctx, "x"); return err },
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			w.machine("a").mustAcquire("x", nil)
			b := w.machine("b")
			b.incident(0, badAnswers["not applied"])
			err := within(t, 0, 10*time.Millisecond, func() error { return call(t.Context(), b) })
			want(t, err, tenure.ErrPermanent)
			want(t, err, errDenied)
		})
	}
}

// TestWhatCountsAsAGoodAnswer: any of these makes a witness, and none of those.
func TestWhatCountsAsAGoodAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(*world, *machine)
		good   bool
	}{
		"a read":             {func(_ *world, m *machine) { _, _ = m.Status(m.t.Context(), "held") }, true},
		"a read of nothing":  {func(_ *world, m *machine) { _, _ = m.Status(m.t.Context(), "free") }, true},
		"a write":            {func(_ *world, m *machine) { m.mustAcquire("other", nil) }, true},
		"a conflict":         {func(_ *world, m *machine) { _, _ = m.TryAcquire(m.t.Context(), "held", nil) }, true},
		"a list":             {func(_ *world, m *machine) { m.listAll() }, true},
		"many reads":         {func(_ *world, m *machine) { m.Statuses(m.t.Context(), []string{"held", "free"}) }, true},
		"nothing":            {func(*world, *machine) {}, false},
		"a timeout":          {func(_ *world, m *machine) { m.faulty(faultstore.BlackHole()) }, false},
		"a busy store":       {func(_ *world, m *machine) { m.faulty(faultstore.Refuse()) }, false},
		"a write of unknown": {func(_ *world, m *machine) { m.faulty(faultstore.LoseReply()) }, false},
		"an unreadable record": {func(_ *world, m *machine) {
			m.faulty(faultstore.Fault{Effect: faultstore.Refused, Err: driver.ErrUnreadable})
		}, false},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			w.machine("a").mustAcquire("held", nil)
			b := w.machine("b")
			tt.before(w, b)
			b.incident(1, badAnswers["not applied"])
			l, err := b.TryAcquire(t.Context(), "x", nil)
			if tt.good {
				want(t, err, nil)
			} else {
				want(t, err, tenure.ErrPermanent)
			}
			if l != nil {
				b.mustRelease(l)
			}
		})
	}
}

// faulty makes one read with a fault.
func (m *machine) faulty(f faultstore.Fault) {
	defer m.incident(0, f)()
	_, _ = m.Status(m.t.Context(), "free")
}

func (m *machine) listAll() {
	for _, err := range m.Locks(m.t.Context(), "") {
		want(m.t, err, nil)
	}
}

// TestIncidentOutlastsPatience: what is bounded ends when its patience does, with
// the store's error.
func TestIncidentOutlastsPatience(t *testing.T) {
	for name, tt := range map[string]struct {
		least, most time.Duration
		call        func(context.Context, *machine) error
	}{
		"acquire": {lease, lease + 2*requestTimeout, func(ctx context.Context, m *machine) error { _, err := m.Acquire(ctx, "x", nil); return err }},
		"try":     {3 * requestTimeout, 5 * requestTimeout, func(ctx context.Context, m *machine) error { _, err := m.TryAcquire(ctx, "y", nil); return err }},
		"session": {lease, lease + 2*requestTimeout, func(ctx context.Context, m *machine) error { _, err := m.OpenSession(ctx, nil); return err }},
		"ask":     {lease, lease + 2*requestTimeout, func(ctx context.Context, m *machine) error { return m.StepDown(ctx, "x", "for the test") }},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			w.machine("a").mustAcquire("x", nil)
			b := w.machine("b")
			_, _ = b.Status(t.Context(), "x")
			b.incident(0, badAnswers["not applied"])
			err := within(t, tt.least, tt.most, func() error { return tt.call(t.Context(), b) })
			want(t, err, errDenied)
			if errors.Is(err, tenure.ErrPermanent) {
				t.Errorf("%v matches ErrPermanent, after good answers", err)
			}
		})
	}
}

// TestShortIncidentEndsNoCall: what is bounded lives through one that is shorter.
func TestShortIncidentEndsNoCall(t *testing.T) {
	for name, call := range map[string]func(context.Context, *machine) error{
		"acquire": func(ctx context.Context, m *machine) error { _, err := m.Acquire(ctx, "y", nil); return err },
		"session": func(ctx context.Context, m *machine) error { _, err := m.OpenSession(ctx, nil); return err },
		"ask":     func(ctx context.Context, m *machine) error { return m.StepDown(ctx, "x", "for the test") },
		"revoke":  func(ctx context.Context, m *machine) error { return m.Revoke(ctx, "x", "for the test") },
		"under a session": func(ctx context.Context, m *machine) error {
			s, err := m.OpenSession(ctx, nil)
			if err == nil {
				_, err = s.Acquire(ctx, "y", nil)
			}
			return err
		},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.machine("a")
			l := a.mustAcquire("x", nil)
			context.AfterFunc(l.Context(), func() { _ = l.Release(context.WithoutCancel(t.Context())) })
			b := w.machine("b")
			_, _ = b.Status(t.Context(), "x")
			b.incident(4, badAnswers["not applied"])
			want(t, call(t.Context(), b), nil)
			if len(b.events.of(tenure.EventStoreError)) == 0 {
				t.Error("told nobody of it")
			}
		})
	}
}

// TestObserverIsToldOfAnIncident: once, and observing goes on.
func TestObserverIsToldOfAnIncident(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		l := a.mustAcquire("x", nil)
		ctx, stop := context.WithTimeout(t.Context(), 10*lease)
		defer stop()
		time.AfterFunc(lease, func() {
			remove := b.incident(0, badAnswers["not applied"])
			time.Sleep(lease)
			remove()
			_ = l.Release(context.WithoutCancel(t.Context()))
		})
		failed, free := 0, false
		for leader, err := range b.Election("x", nil).Observe(ctx) {
			switch {
			case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
			case err != nil:
				failed++
			default:
				free = leader.None()
			}
		}
		if failed != 1 || !free {
			t.Errorf("told of %d errors, want 1; saw that nobody leads: %v", failed, free)
		}
	})
}

// TestRefusalOfTheStoreItselfStays: a write that the store never makes is told at
// once, whatever it has answered before.
func TestRefusalOfTheStoreItselfStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		m.mustAcquire("x", nil)
		m.fault(faultstore.OpClaim, 0, 0, faultstore.Fault{Effect: faultstore.Refused, Err: driver.Unsupported(errDenied)})
		err := within(t, 0, 10*time.Millisecond, func() error {
			_, err := m.OpenSession(t.Context(), nil)
			return err
		})
		want(t, err, tenure.ErrPermanent)
		want(t, err, errors.ErrUnsupported)
	})
}

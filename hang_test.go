// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// deaf is a call that nothing comes of and that hears no context for d, as in
// a bad driver.
func deaf(d time.Duration) faultstore.Fault {
	f := faultstore.BlackHole()
	f.Deaf = d
	return f
}

// hangs are the ways of a store to give no answer.
var hangs = map[string]faultstore.Fault{
	"hears its context": faultstore.BlackHole(),
	"deaf":              deaf(10 * lease),
}

// With a store that hangs for ever, Check fails at the deadline and not before,
// and the context is cancelled then, for each of 1,000 locks.
func TestHangingStoreEndsAllLeasesInTime(t *testing.T) {
	each(t, hangs, func(t *testing.T, f faultstore.Fault) {
		m := newWorld(t).machine("a")
		slow := m.faults.Inject(faultstore.Rule{Fault: faultstore.Slow(10*time.Millisecond, 10*time.Millisecond)})
		held := make(chan *tenure.Lease, crowd())
		for _, name := range names(crowd()) {
			go func() { held <- m.mustAcquire(name, nil) }()
		}
		time.Sleep(3 * heartbeat)
		slow()
		m.faults.Inject(faultstore.Rule{Fault: f})
		last := map[string]time.Time{} // when the last confirmed write was sent
		time.Sleep(50 * time.Millisecond)
		for _, c := range m.faults.Log() {
			if c.Done && c.Err == nil {
				last[c.Key] = c.Begin
			}
		}
		var all sync.WaitGroup
		for range crowd() {
			l := <-held
			all.Go(func() {
				deadline := last[l.Name()].Add(usable(t))
				if left := l.Remaining(); left < time.Until(deadline)-5*time.Millisecond || left > time.Until(deadline) {
					t.Errorf("%v remain, want at most %v", left, time.Until(deadline))
				}
				deadline = time.Now().Add(l.Remaining())
				time.Sleep(time.Until(deadline) - time.Nanosecond)
				if err := l.Check(); err != nil {
					t.Errorf("before the deadline: %v", err)
				}
				want(t, l.Context().Err(), nil)
				time.Sleep(time.Nanosecond)
				want(t, l.Check(), tenure.ErrExpired)
				<-l.Context().Done()
				if late := time.Since(deadline); late != 0 {
					t.Errorf("context cancelled %v late", late)
				}
				want(t, context.Cause(l.Context()), tenure.ErrExpired)
			})
		}
		all.Wait()
	})
}

// hanging returns a machine that holds "held", of whose store nothing comes
// back any more.
func hanging(t *testing.T, f faultstore.Fault) (*machine, *tenure.Lease) {
	t.Helper()
	w := newWorld(t)
	w.machine("other").mustAcquire("taken", nil)
	m := w.machine("a")
	l := m.mustAcquire("held", nil)
	time.Sleep(time.Millisecond)
	m.faults.Inject(faultstore.Rule{Fault: f})
	return m, l
}

// Every wait honours its context at once, even when the store hangs, and even
// when the store takes no notice of its own context.
func TestWaitsHonourTheirContextAtOnce(t *testing.T) {
	acquire := func(ctx context.Context, m *machine, _ *tenure.Lease) error {
		_, err := m.Acquire(ctx, "free", nil)
		return err
	}
	work := func(context.Context, *tenure.Lease) error { panic("work without a lease") }
	waits := map[string]func(context.Context, *machine, *tenure.Lease) error{
		"acquire": acquire,
		"acquire of a held lock": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			_, err := m.Acquire(ctx, "taken", nil)
			return err
		},
		"acquire behind another": func(ctx context.Context, m *machine, l *tenure.Lease) error {
			first := started(func() error { return acquire(context.WithoutCancel(m.t.Context()), m, l) })
			m.t.Cleanup(func() {
				m.Close(context.WithoutCancel(m.t.Context()))
				want(m.t, <-first, tenure.ErrClosed)
			})
			synctest.Wait()
			return acquire(ctx, m, l)
		},
		"try acquire": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			_, err := m.TryAcquire(ctx, "free", nil)
			return err
		},
		"run": func(ctx context.Context, m *machine, _ *tenure.Lease) error { return m.Run(ctx, "free", nil, work) },
		"election": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			want(m.t, m.Election("free", nil).Run(ctx, work), nil)
			return ctx.Err()
		},
		"observe": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			for _, err := range m.Election("free", nil).Observe(ctx) {
				return err
			}
			return ctx.Err() // it ends with that, without a word
		},
		"status": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			_, err := m.Status(ctx, "free")
			return err
		},
		"leader": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			_, err := m.Election("free", nil).Leader(ctx)
			return err
		},
		"renew":    func(ctx context.Context, _ *machine, l *tenure.Lease) error { return l.Renew(ctx) },
		"set data": func(ctx context.Context, _ *machine, l *tenure.Lease) error { return l.SetData(ctx, []byte("d")) },
		"release":  func(ctx context.Context, _ *machine, l *tenure.Lease) error { return l.Release(ctx) },
		"close":    func(ctx context.Context, m *machine, _ *tenure.Lease) error { return m.Close(ctx) },
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			each(t, hangs, func(t *testing.T, f faultstore.Fault) {
				m, l := hanging(t, f)
				const patience = 777 * time.Millisecond
				ctx, stop := context.WithTimeout(t.Context(), patience)
				defer stop()
				want(t, within(t, patience, patience, func() error { return wait(ctx, m, l) }), context.DeadlineExceeded)
			})
		})
	}
}

// A store that takes no notice of the context that it is given holds up nobody
// for longer than the limits that the calls have of their own.
func TestDeafStoreHoldsUpNobody(t *testing.T) {
	const (
		deafness = 100 * lease
		slack    = 5 * requestTimeout // of a request that is given up late, and its repetition
	)
	waits := map[string]struct {
		most time.Duration
		want error
		wait func(*machine, *tenure.Lease) error
	}{
		"acquire": {lease + slack, errOfStore, func(m *machine, _ *tenure.Lease) error {
			_, err := m.Acquire(m.t.Context(), "free", nil)
			return err
		}},
		"try acquire": {3*requestTimeout + slack, errOfStore, func(m *machine, _ *tenure.Lease) error {
			_, err := m.TryAcquire(m.t.Context(), "free", nil)
			return err
		}},
		"status": {slack, errOfStore, func(m *machine, _ *tenure.Lease) error {
			_, err := m.Status(m.t.Context(), "free")
			return err
		}},
		"renew": {usable(t) + slack, tenure.ErrExpired, func(m *machine, l *tenure.Lease) error { return l.Renew(m.t.Context()) }},
		"release": {lease + slack, tenure.ErrUncertain, func(m *machine, l *tenure.Lease) error {
			return l.Release(m.t.Context())
		}},
	}
	for name, w := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, l := hanging(t, deaf(deafness))
				err := within(t, 0, w.most, func() error { return w.wait(m, l) })
				if !errors.Is(w.want, errOfStore) {
					want(t, err, w.want)
				} else if err == nil {
					t.Error("no error")
				}
				time.Sleep(deafness) // the calls return in the end, and nothing minds
			})
		})
	}
}

// errOfStore stands for the error of a store, whatever it is.
var errOfStore = errors.New("the store's error")

// A context that is done already sends nothing.
func TestDoneContextSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := hanging(t, faultstore.BlackHole())
		m.faults.ResetLog()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		_, err := m.Acquire(ctx, "free", nil)
		want(t, err, context.Canceled)
		_, err = m.TryAcquire(ctx, "free", nil)
		want(t, err, context.Canceled)
		want(t, l.Renew(ctx), context.Canceled)
		want(t, l.SetData(ctx, nil), context.Canceled)
		if n := m.faults.Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// The release goes on in the background when its caller does not wait for it,
// and it is as good as any.
func TestReleaseGoesOnAfterItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		m.faults.SetBlackHole(true)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		want(t, l.Release(ctx), tenure.ErrUncertain)
		m.faults.SetBlackHole(false)
		time.Sleep(2 * requestTimeout)
		if rec := w.record("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
		want(t, l.Release(t.Context()), nil)
	})
}

// One lock of whose requests nothing comes back delays no other lock.
func TestSlowKeyDelaysNoOtherLock(t *testing.T) {
	each(t, hangs, func(t *testing.T, f faultstore.Fault) {
		m := newWorld(t).machine("a")
		slow := m.mustAcquire("slow", nil)
		other := m.mustAcquire("other", nil)
		m.faults.Inject(faultstore.Rule{Key: "slow", Fault: f})
		time.Sleep(2 * lease)
		want(t, slow.Check(), tenure.ErrExpired)
		want(t, other.Check(), nil)
		want(t, within(t, 0, 0, func() error { return other.Renew(t.Context()) }), nil)
		want(t, within(t, 0, 0, func() error {
			l, err := m.Acquire(t.Context(), "third", nil)
			if err == nil {
				err = l.Release(t.Context())
			}
			return err
		}), nil)
		for _, e := range m.events.of(tenure.EventRenewed) {
			if e.Lock == "other" && e.Took > 0 {
				t.Errorf("a heartbeat of the other lock took %v", e.Took)
			}
		}
	})
}

// More hanging requests than MaxInFlight delay the others, and those whose
// lease ends first go first; nothing is lost if the hanging ones time out.
func TestRequestsOfUrgentLeasesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a", func(o *tenure.Options) { o.MaxInFlight = 1 })
		l := m.mustAcquire("x", nil)
		time.Sleep(heartbeat)
		m.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClaim}, Fault: faultstore.BlackHole()})
		for _, name := range names(20) {
			go func() { _, _ = m.Acquire(t.Context(), name, nil) }()
		}
		time.Sleep(3 * lease)
		want(t, l.Check(), nil)
	})
}

// Calls that hang may take all places: whoever waits for one is answered in
// time, and leases are not lost without a warning.
func TestRequestsWithoutAPlaceAreGivenUp(t *testing.T) {
	few := func(o *tenure.Options) { o.MaxInFlight = 4 }
	inWorldRun(t, "waits", func(t *testing.T, w *world) {
		m := w.machine("a", few)
		l := m.mustAcquire("held", nil)
		for _, n := range names(4) {
			m.mustAcquire(n, nil)
		}
		m.faults.Inject(faultstore.Rule{Fault: deaf(100 * lease)})
		time.Sleep(heartbeat + time.Second) // the places are taken
		for name, wait := range map[string]func() error{
			"acquire":     func() error { _, err := m.Acquire(t.Context(), "free", nil); return err },
			"try acquire": func() error { _, err := m.TryAcquire(t.Context(), "free", nil); return err },
			"status":      func() error { _, err := m.Status(t.Context(), "free"); return err },
			"release":     func() error { return l.Release(t.Context()) },
		} {
			if err := within(t, 0, 2*lease, wait); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		time.Sleep(100 * lease)
	})
	inWorldRun(t, "jeopardy", func(t *testing.T, w *world) {
		m := w.machine("a", few)
		for _, n := range names(100) {
			m.mustAcquire(n, nil)
		}
		m.faults.SetBlackHole(true)
		time.Sleep(lease)
		warned := map[string]bool{}
		for _, e := range m.events.of(tenure.EventJeopardy) {
			warned[e.Lock] = true
		}
		for _, e := range m.events.of(tenure.EventLost) {
			if !warned[e.Lock] {
				t.Errorf("%s was lost without jeopardy", e.Lock)
			}
		}
	})
}

func TestStoreTimeoutHoldsInAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		m.faults.SetBlackHole(true)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				begin := time.Now()
				_, err := m.Acquire(t.Context(), "x", nil)
				if d := time.Since(begin); err == nil || d > lease+3*requestTimeout {
					t.Errorf("took %v: %v", d, err)
				}
			})
		}
		wg.Wait()
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
)

var errDenied = errors.New("the security token included in the request is invalid")

// badAnswers are errors that a store calls permanent.
var badAnswers = map[string]faultstore.Fault{
	"not applied":      {Effect: faultstore.Refused, Err: driver.Permanent(errDenied)},
	"perhaps applied":  {Effect: faultstore.ReplyLost, Err: driver.Permanent(errDenied)},
	"perhaps to apply": {Effect: faultstore.LateAfterError(time.Second).Effect, Err: driver.Permanent(errDenied), Again: []time.Duration{time.Second}},
}

// incident makes the machine's next calls fail with a permanent error; count 0: all of
// them.
func incident(m *machine, count int, f faultstore.Fault) (remove func()) {
	return m.Faults().Inject(faultstore.Rule{Count: count, Fault: f})
}

// leadsAfter has a candidate wait for a leader that leaves, with bad answers to the
// candidate in between. It returns what the candidate's Run has returned by the time at
// which it should lead, nil if it leads.
func leadsAfter(t *testing.T, w *world, count int, lasting time.Duration, f faultstore.Fault) (b *machine, err error) {
	t.Helper()
	a := w.Client("a")
	b = w.Client("b")
	leader := a.MustAcquire("x", nil)
	led := make(chan struct{})
	ran := testutil.Go(func() error {
		return b.Election("x", nil).Run(t.Context(), func(ctx context.Context, _ *tenure.Lease) error {
			close(led)
			<-ctx.Done()
			return nil
		})
	})
	time.Sleep(5 * time.Second) // it has had good answers
	remove := incident(b, count, f)
	time.Sleep(lasting)
	remove()
	mustRelease(a, leader)
	time.Sleep(2 * lease)
	select {
	case <-led:
		return b, nil
	case err := <-ran:
		return b, err
	default:
		t.Error("nobody leads")
		return b, nil
	}
}

func TestOneBadAnswerEndsNoCandidate(t *testing.T) {
	each(t, badAnswers, func(t *testing.T, f faultstore.Fault) {
		b, err := leadsAfter(t, newWorld(t), 1, 5*time.Second, f)
		testutil.Want(t, err, nil)
		if got := b.Events(tenure.EventStoreError); len(got) != 1 || !errors.Is(got[0].Err, errDenied) {
			t.Errorf("reported by %v, want one store_error", got)
		}
	})
}

func TestCandidateOutlastsAnIncident(t *testing.T) {
	each(t, badAnswers, func(t *testing.T, f faultstore.Fault) {
		b, err := leadsAfter(t, newWorld(t), 0, 10*lease, f)
		testutil.Want(t, err, nil)
		if got := b.Events(tenure.EventStoreError); len(got) < 10 {
			t.Errorf("reported %d times in 10 leases", len(got))
		}
	})
}

// TestPermanentFromTheStart: a client that has never had a good answer returns the
// error at once.
func TestPermanentFromTheStart(t *testing.T) {
	work := func(context.Context, *tenure.Lease) error { return nil }
	for name, call := range map[string]func(context.Context, *machine) error{
		"election": func(ctx context.Context, m *machine) error { return m.Election("x", nil).Run(ctx, work) },
		"acquire":  func(ctx context.Context, m *machine) error { _, err := m.Acquire(ctx, "x", nil); return err },
		"try":      func(ctx context.Context, m *machine) error { _, err := m.TryAcquire(ctx, "x", nil); return err },
		"session":  func(ctx context.Context, m *machine) error { _, err := m.OpenSession(ctx, nil); return err },
		"ask": func(ctx context.Context, m *machine) error {
			return m.StepDown(ctx, "x", because("for the test"))
		},
		"status": func(ctx context.Context, m *machine) error { _, err := m.Status(ctx, "x"); return err },
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			w.Client("a").MustAcquire("x", nil)
			b := w.Client("b")
			incident(b, 0, badAnswers["not applied"])
			err := testutil.Within(t, 0, 10*time.Millisecond, func() error { return call(t.Context(), b) })
			testutil.Want(t, err, tenure.ErrPermanent)
			testutil.Want(t, err, errDenied)
		})
	}
}

// TestWhatCountsAsAGoodAnswer: which answers show that the store has worked.
func TestWhatCountsAsAGoodAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(*world, *machine)
		good   bool
	}{
		"a read":             {func(w *world, m *machine) { _, _ = m.Status(w.T().Context(), "held") }, true},
		"a read of nothing":  {func(w *world, m *machine) { _, _ = m.Status(w.T().Context(), "free") }, true},
		"a write":            {func(_ *world, m *machine) { m.MustAcquire("other", nil) }, true},
		"a conflict":         {func(w *world, m *machine) { _, _ = m.TryAcquire(w.T().Context(), "held", nil) }, true},
		"a list":             {func(_ *world, m *machine) { listAll(m) }, true},
		"many reads":         {func(w *world, m *machine) { m.Statuses(w.T().Context(), []string{"held", "free"}, nil) }, true},
		"nothing":            {func(*world, *machine) {}, false},
		"a timeout":          {func(_ *world, m *machine) { faulty(m, faultstore.BlackHole()) }, false},
		"a busy store":       {func(_ *world, m *machine) { faulty(m, faultstore.Refuse()) }, false},
		"a write of unknown": {func(_ *world, m *machine) { faulty(m, faultstore.LoseReply()) }, false},
		"an unreadable record": {func(_ *world, m *machine) {
			faulty(m, faultstore.Fault{Effect: faultstore.Refused, Err: driver.ErrUnreadable})
		}, false},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			w.Client("a").MustAcquire("held", nil)
			b := w.Client("b")
			tt.before(w, b)
			incident(b, 1, badAnswers["not applied"])
			l, err := b.TryAcquire(t.Context(), "x", nil)
			if tt.good {
				testutil.Want(t, err, nil)
			} else {
				testutil.Want(t, err, tenure.ErrPermanent)
			}
			if l != nil {
				mustRelease(b, l)
			}
		})
	}
}

// faulty makes one read with a fault.
func faulty(m *machine, f faultstore.Fault) {
	defer incident(m, 0, f)()
	_, _ = m.Status(m.World().T().Context(), "free")
}

func listAll(m *machine) {
	t := m.World().T()
	for _, err := range m.Locks(t.Context(), nil) {
		testutil.Want(t, err, nil)
	}
}

// TestIncidentOutlastsPatience: a bounded call ends with its patience, with the store's
// error.
func TestIncidentOutlastsPatience(t *testing.T) {
	for name, tt := range map[string]struct {
		least, most time.Duration
		call        func(context.Context, *machine) error
	}{
		"acquire": {lease, lease + 2*requestTimeout, func(ctx context.Context, m *machine) error { _, err := m.Acquire(ctx, "x", nil); return err }},
		"try":     {3 * requestTimeout, 5 * requestTimeout, func(ctx context.Context, m *machine) error { _, err := m.TryAcquire(ctx, "y", nil); return err }},
		"session": {lease, lease + 2*requestTimeout, func(ctx context.Context, m *machine) error { _, err := m.OpenSession(ctx, nil); return err }},
		"ask": {lease, lease + 2*requestTimeout, func(ctx context.Context, m *machine) error {
			return m.StepDown(ctx, "x", because("for the test"))
		}},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			w.Client("a").MustAcquire("x", nil)
			b := w.Client("b")
			_, _ = b.Status(t.Context(), "x")
			incident(b, 0, badAnswers["not applied"])
			err := testutil.Within(t, tt.least, tt.most, func() error { return tt.call(t.Context(), b) })
			testutil.Want(t, err, errDenied)
			if errors.Is(err, tenure.ErrPermanent) {
				t.Errorf("%v matches ErrPermanent, after good answers", err)
			}
		})
	}
}

// TestShortIncidentEndsNoCall: a bounded call outlasts an incident that is shorter than
// its patience.
func TestShortIncidentEndsNoCall(t *testing.T) {
	for name, call := range map[string]func(context.Context, *machine) error{
		"acquire": func(ctx context.Context, m *machine) error { _, err := m.Acquire(ctx, "y", nil); return err },
		"session": func(ctx context.Context, m *machine) error { _, err := m.OpenSession(ctx, nil); return err },
		"ask": func(ctx context.Context, m *machine) error {
			return m.StepDown(ctx, "x", because("for the test"))
		},
		"revoke": func(ctx context.Context, m *machine) error { return admin.Revoke(ctx, m.Client, "x", "for the test") },
		"under a session": func(ctx context.Context, m *machine) error {
			s, err := m.OpenSession(ctx, nil)
			if err == nil {
				_, err = s.Acquire(ctx, "y", nil)
			}
			return err
		},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.Client("a")
			l := a.MustAcquire("x", nil)
			context.AfterFunc(l.Context(), func() { _ = l.Release(context.WithoutCancel(t.Context())) })
			b := w.Client("b")
			_, _ = b.Status(t.Context(), "x")
			incident(b, 4, badAnswers["not applied"])
			testutil.Want(t, call(t.Context(), b), nil)
			if len(b.Events(tenure.EventStoreError)) == 0 {
				t.Error("told nobody of it")
			}
		})
	}
}

// TestRefusalOfTheStoreItselfStays: a write that the store never makes fails at once,
// whatever it has answered before.
func TestRefusalOfTheStoreItselfStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		m.MustAcquire("x", nil)
		m.Inject(faultstore.OpClaim, 0, 0, faultstore.Fault{Effect: faultstore.Refused, Err: driver.Unsupported(errDenied)})
		err := testutil.Within(t, 0, 10*time.Millisecond, func() error {
			_, err := m.OpenSession(t.Context(), nil)
			return err
		})
		testutil.Want(t, err, tenure.ErrPermanent)
		testutil.Want(t, err, errors.ErrUnsupported)
	})
}

// replaceable is a store that can be replaced, by a call's answer and by its
// channel, and that counts what is written to it afterwards.
type replaceable struct {
	driver.Store
	err    atomic.Pointer[error] // of all calls from now on
	notify chan struct{}
	writes atomic.Int64 // since it was replaced
	calls  atomic.Int64
}

var errMoved = errors.New("/var/lib/locks.db is another file now")

func (s *replaceable) Replaced() <-chan struct{} { return s.notify }

func (s *replaceable) fail(writes int64) error {
	if err := s.err.Load(); err != nil {
		s.writes.Add(writes)
		s.calls.Add(1)
		return *err
	}
	return nil
}

func (s *replaceable) Get(ctx context.Context, key string, how driver.Consistency) (driver.Record, error) {
	if err := s.fail(0); err != nil {
		return driver.Record{}, err
	}
	return s.Store.Get(ctx, key, how)
}

func (s *replaceable) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := s.fail(1); err != nil {
		return now, prev, err
	}
	return s.Store.Claim(ctx, next)
}

func (s *replaceable) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if err := s.fail(1); err != nil {
		return driver.Record{}, err
	}
	return s.Store.Swap(ctx, prev, next)
}

// replacing are the ways in which a client learns that a store was replaced.
var replacing = map[string]struct {
	within time.Duration // from then on until everything has ended
	says   string        // the text of the error
	do     func(*replaceable)
}{
	"notified": {0, "restart every program that uses it", func(s *replaceable) { close(s.notify) }},
	"answered": {heartbeat, errMoved.Error(), func(s *replaceable) {
		err := driver.Replaced(errMoved)
		s.err.Store(&err)
	}},
}

// replaceableMachine returns a client whose store can be replaced.
func replaceableMachine(w *world, owner string) (m *machine, store *replaceable) {
	w.Wrap(func(_ string, s driver.Store) driver.Store {
		store = &replaceable{Store: s, notify: make(chan struct{})}
		return store
	})
	defer w.Wrap(func(_ string, s driver.Store) driver.Store { return s })
	m = w.Client(owner)
	return m, store
}

func TestReplacedStoreEndsAllAtOnce(t *testing.T) {
	for name, how := range replacing {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m, store := replaceableMachine(w, "a")
			other := w.Client("b")
			other.MustAcquire("waited for", nil)
			other.MustAcquire("led", nil)
			dead := w.Client("c")
			dead.MustAcquire("dead", nil)
			dead.Partition()

			alone := m.MustAcquire("alone", nil)
			drains := m.MustAcquire("drains", nil)
			released := testutil.Go(func() error {
				return m.Run(t.Context(), "run", nil, func(ctx context.Context, _ *tenure.Lease) error { <-ctx.Done(); return context.Cause(ctx) })
			})
			s := mustOpen(m, nil)
			under := mustTake(m, s, "under")
			waits := map[string]<-chan error{
				"acquire":         testutil.Go(func() error { _, err := m.Acquire(t.Context(), "waited for", nil); return err }),
				"second in line":  testutil.Go(func() error { _, err := m.Acquire(t.Context(), "waited for", nil); return err }),
				"under a session": testutil.Go(func() error { _, err := s.Acquire(t.Context(), "waited for", nil); return err }),
				"campaign": testutil.Go(func() error {
					return m.Election("led", nil).Run(t.Context(), func(context.Context, *tenure.Lease) error { return nil })
				}),
				"ask":  testutil.Go(func() error { return m.StepDown(t.Context(), "led", because("for the test")) }),
				"free": testutil.Go(func() error { return admin.ReleaseDead(t.Context(), m.Client, "dead", "for the test") }),
				"leads": testutil.Go(func() error {
					return m.Election("own", nil).Run(t.Context(), func(ctx context.Context, _ *tenure.Lease) error { <-ctx.Done(); return nil })
				}),
				"observe": testutil.Go(func() error {
					var last error
					for _, last = range m.Election("led", nil).Observe(t.Context()) {
					}
					return last
				}),
			}
			time.Sleep(4 * time.Second)
			for what, done := range waits {
				testutil.Pending(t, what, done)
			}

			how.do(store)
			time.Sleep(how.within)
			synctest.Wait()

			for what, err := range map[string]error{
				"check": alone.Check(), "check under a session": under.Check(), "check of the session": s.Check(),
				"cause": context.Cause(alone.Context()), "cause under a session": context.Cause(under.Context()),
				"cause of the session": context.Cause(s.Context()),
				"check of another":     drains.Check(),
			} {
				if !errors.Is(err, tenure.ErrLost) || !errors.Is(err, tenure.ErrSuperseded) || !errors.Is(err, tenure.ErrReplaced) {
					t.Errorf("%s: %v", what, err)
				}
			}
			for what, done := range waits {
				select {
				case err := <-done:
					testutil.Want(t, err, tenure.ErrReplaced)
					if !strings.Contains(err.Error(), how.says) {
						t.Errorf("%s: %v; want %q in it", what, err, how.says)
					}
				default:
					t.Errorf("%s goes on", what)
				}
			}
			testutil.Want(t, <-released, tenure.ErrReplaced)

			// No lock is released, and calls fail at once, without a call of the store.
			writes, calls := store.writes.Load(), store.calls.Load()
			for what, call := range map[string]func() error{
				"release":         func() error { return alone.Release(t.Context()) },
				"release under":   func() error { return under.Release(t.Context()) },
				"renew":           func() error { return drains.Renew(t.Context()) },
				"set data":        func() error { return drains.SetData(t.Context(), nil) },
				"close session":   func() error { return s.Close(t.Context()) },
				"acquire":         func() error { _, err := m.Acquire(t.Context(), "new", nil); return err },
				"try":             func() error { _, err := m.TryAcquire(t.Context(), "new", nil); return err },
				"open":            func() error { _, err := m.OpenSession(t.Context(), nil); return err },
				"status":          func() error { _, err := m.Status(t.Context(), "alone"); return err },
				"ask":             func() error { return m.StepDown(t.Context(), "led", because("for the test")) },
				"acquire under":   func() error { _, err := s.Acquire(t.Context(), "new", nil); return err },
				"history":         func() error { _, err := m.History(t.Context(), "led"); return err },
				"sweep":           func() error { _, err := admin.Sweep(t.Context(), m.Client); return err },
				"campaign again":  func() error { return m.Election("led", nil).Run(t.Context(), noWork) },
				"observe the end": func() error { _, err := m.Election("led", nil).Leader(t.Context()); return err },
			} {
				err := testutil.Within(t, 0, 0, call)
				if !errors.Is(err, tenure.ErrReplaced) {
					t.Errorf("%s: %v", what, err)
				}
			}
			testutil.Want(t, testutil.Within(t, 0, 0, func() error { return m.Close(t.Context()) }), nil)
			time.Sleep(3 * lease)
			if store.writes.Load() != writes || store.calls.Load() != calls {
				t.Errorf("%d writes and %d calls after it was known", store.writes.Load()-writes, store.calls.Load()-calls)
			}
			if w.MustRecord("alone").State != driver.Held {
				t.Error("a lock was released in a store that others do not find")
			}
			lost := m.Events(tenure.EventLost)
			for _, e := range lost {
				testutil.Want(t, e.Err, tenure.ErrReplaced)
			}
			if len(lost) < 6 {
				t.Errorf("%d losses: %v", len(lost), lost)
			}
		})
	}
}

// TestReplacedStoreWhileWorkDrains: work that is already stopping loses its heartbeats
// all the same.
func TestReplacedStoreWhileWorkDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, store := replaceableMachine(newWorld(t), "a")
		ctx, stop := context.WithCancel(t.Context())
		stopped := errors.New("stopped")
		drains := make(chan *tenure.Lease, 1)
		ran := testutil.Go(func() error {
			return m.Run(ctx, "x", nil, func(ctx context.Context, l *tenure.Lease) error {
				drains <- l
				<-ctx.Done()
				time.Sleep(5 * time.Second)
				return errors.Join(stopped, l.Check())
			})
		})
		l := <-drains
		stop()
		time.Sleep(time.Second)
		testutil.Want(t, l.Check(), nil)
		close(store.notify)
		synctest.Wait()
		testutil.Want(t, l.Check(), tenure.ErrReplaced)
		err := <-ran
		testutil.Want(t, err, tenure.ErrReplaced)
		testutil.Want(t, err, tenure.ErrLost)
		testutil.Want(t, err, stopped)
	})
}

// TestOtherErrorsEndNothing: no other error of a store ends a lease before its
// deadline.
func TestOtherErrorsEndNothing(t *testing.T) {
	for name, err := range map[string]error{
		"permanent": driver.Permanent(errMoved), "not applied": driver.NotApplied(errMoved),
		"unsupported": driver.Unsupported(errMoved), "throttled": driver.Throttled(errMoved),
		"closed": driver.ErrClosed, "unreadable": driver.ErrUnreadable, "unknown": errMoved,
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m, store := replaceableMachine(w, "a")
			l := m.MustAcquire("x", nil)
			s, openErr := m.OpenSession(t.Context(), nil)
			testutil.Want(t, openErr, nil)
			store.err.Store(&err)
			time.Sleep(usable - heartbeat)
			testutil.Want(t, l.Check(), nil)
			testutil.Want(t, s.Check(), nil)
			store.err.Store(nil)
			time.Sleep(2 * lease)
			testutil.Want(t, l.Check(), nil)
			testutil.Want(t, s.Check(), nil)
		})
	}
}

// TestGrantUnderWayWhenReplaced: a claim whose answer comes after the store was
// replaced grants no lock.
func TestGrantUnderWayWhenReplaced(t *testing.T) {
	for name, call := range map[string]func(context.Context, *machine) error{
		"acquire": func(ctx context.Context, m *machine) error { _, err := m.Acquire(ctx, "x", nil); return err },
		"try":     func(ctx context.Context, m *machine) error { _, err := m.TryAcquire(ctx, "x", nil); return err },
		"session": func(ctx context.Context, m *machine) error { _, err := m.OpenSession(ctx, nil); return err },
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m, store := replaceableMachine(w, "a")
			slow := &slowStore{Store: store.Store, pause: time.Second}
			store.Store = slow
			got := testutil.Go(func() error { return call(t.Context(), m) })
			time.Sleep(time.Second / 2)
			close(store.notify)
			synctest.Wait()
			select {
			case err := <-got:
				testutil.Want(t, err, tenure.ErrReplaced)
			default:
				t.Error("it waits for the answer")
			}
			time.Sleep(3 * lease)
			if n := slow.writes.Load(); n != 1 {
				t.Errorf("%d writes, want the claim alone", n)
			}
			testutil.Want(t, m.Close(t.Context()), nil)
		})
	}
}

// slowStore answers writes after a pause.
type slowStore struct {
	driver.Store
	pause  time.Duration
	writes atomic.Int64
}

func (s *slowStore) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	s.writes.Add(1)
	now, prev, err = s.Store.Claim(ctx, next)
	time.Sleep(s.pause)
	return now, prev, err
}

func (s *slowStore) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	s.writes.Add(1)
	rec, err := s.Store.Swap(ctx, prev, next)
	time.Sleep(s.pause)
	return rec, err
}

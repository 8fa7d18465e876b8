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
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// ofSessions says whether a call is about the record of a session.
func ofSessions(call faultstore.Call) bool { return strings.HasPrefix(call.Key, driver.SessionPrefix) }

// sessionsUnborn has the cheap reads of the machine show of each session what was
// there before it was opened, as long as it is young.
func (m *machine) sessionsUnborn() {
	notOnEngines(m.t, noStaleReads)
	m.faults.Inject(faultstore.Rule{Match: ofSessions, Fault: faultstore.Stale(faultstore.MaxStale)})
}

// batching is a store that reads many records in one request.
type batching struct {
	driver.Store
	batches *atomic.Int64
}

func (s batching) GetBatch(ctx context.Context, keys []string, how driver.Consistency) ([]driver.Lookup, error) {
	s.batches.Add(1)
	found := make([]driver.Lookup, len(keys))
	for i, key := range keys {
		found[i].Record, found[i].Err = s.Get(ctx, key, how)
	}
	return found, nil
}

// staysHeld fails the test if somebody takes x within half of a lease while its
// holder lives.
func staysHeld(t *testing.T, b *tenure.Client, l *tenure.Lease, beside func()) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), lease/2)
	defer stop()
	taken := started(func() error {
		_, err := b.Acquire(ctx, "x", nil)
		return err
	})
	for ctx.Err() == nil && !t.Failed() {
		time.Sleep(refresh / 3)
		beside()
		want(t, l.Check(), nil)
	}
	if err := <-taken; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while its holder lives, and its check says %v, an acquire returns %v", l.Check(), err)
	}
}

// Who asks for the state of many locks reads their sessions by strong reads: a
// session that a cheap one does not show yet is alive, and who waits beside takes
// nothing from it.
func TestReadsOfManyTakeNothingFromTheLiving(t *testing.T) {
	for _, tc := range []struct {
		name  string
		batch bool
		ask   func(ctx context.Context, c *tenure.Client, id string) (held bool, err error)
	}{
		{"statuses, in a batch", true, manyHeld},
		{"statuses, one by one", false, manyHeld},
		{"status, in a batch", true, oneHeld},
		{"status, one by one", false, oneHeld},
		{"the session's", true, func(ctx context.Context, c *tenure.Client, id string) (bool, error) {
			st, err := c.SessionStatus(ctx, id)
			return st.Alive, err
		}},
		{"a list", true, func(ctx context.Context, c *tenure.Client, _ string) (held bool, err error) {
			for st, err := range c.Locks(ctx, "") {
				if err != nil || !st.Held {
					return false, err
				}
			}
			return true, nil
		}},
	} {
		inWorldRun(t, tc.name, func(t *testing.T, w *world) {
			a, m := w.machine("a"), w.machine("b")
			b := m.Client
			var batches atomic.Int64
			if tc.batch {
				var err error
				b, err = tenure.New(batching{m.faults, &batches}, &tenure.Options{Owner: "b"})
				want(t, err, nil)
				t.Cleanup(func() { _ = b.Close(context.WithoutCancel(t.Context())) })
			}
			s := a.mustOpen(nil)
			l := a.mustTake(s, "x")
			a.mustTake(s, "y")
			m.sessionsUnborn()
			staysHeld(t, b, l, func() {
				if held, err := tc.ask(t.Context(), b, s.ID()); err != nil || !held {
					t.Errorf("held %t, %v", held, err)
				}
			})
			if tc.batch && batches.Load() == 0 {
				t.Error("nothing was read in a batch")
			}
		})
	}
}

func manyHeld(ctx context.Context, c *tenure.Client, _ string) (bool, error) {
	list, errs := c.Statuses(ctx, []string{"x", "y"})
	return list[0].Held && list[1].Held, errors.Join(errs...)
}

func oneHeld(ctx context.Context, c *tenure.Client, _ string) (bool, error) {
	st, err := c.Status(ctx, "y")
	return st.Held, err
}

// An observer's cheap look that does not show a session yet proves nothing to who
// wants another lock under it.
func TestAbsentToAnObserverIsNotGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		s := a.mustOpen(nil)
		l := a.mustTake(s, "x")
		a.mustTake(s, "y")
		st, err := b.Status(t.Context(), "x")
		if err != nil || !st.Held {
			t.Fatalf("%+v, %v", st, err)
		}
		b.sessionsUnborn()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for _, err := range b.Election("y", nil).Observe(ctx) {
				_ = err // it goes on
			}
		}()
		time.Sleep(3 * refresh)
		absent := 0
		for _, call := range b.faults.Log() {
			if ofSessions(call.Call) && call.Consistency == driver.Eventual && errors.Is(call.Err, driver.ErrNotFound) {
				absent++
			}
		}
		if absent == 0 {
			t.Error("no look has missed the session: the test has lost its point")
		}
		_, err = b.TryAcquire(t.Context(), "x", nil)
		want(t, err, tenure.ErrHeld)
		staysHeld(t, b.Client, l, func() {})
	})
}

// That there is no session tells of the time before the read was sent. One that was
// opened while the reply was on its way is alive.
func TestAbsentBeforeItWasOpened(t *testing.T) {
	opensLate := func(t *testing.T, look func(t *testing.T, w *world, b *machine, id string)) {
		t.Helper()
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			var id string
			a.faults.Inject(faultstore.Rule{Match: ofSessions, Count: 1, Decide: func(call faultstore.Call) faultstore.Fault {
				id = driver.SessionID(call.Key)
				return faultstore.Slow(requestTimeout/4, 0)
			}})
			opened := make(chan *tenure.Session)
			go func() { opened <- a.mustOpen(nil) }()
			synctest.Wait()
			replied := b.faults.Inject(faultstore.Rule{Match: ofSessions, Count: 1, Fault: faultstore.Slow(0, requestTimeout/2)})
			defer replied()
			look(t, w, b, id)
			l := a.mustTake(<-opened, "x")
			staysHeld(t, b.Client, l, func() {})
		})
	}
	t.Run("asked for", func(t *testing.T) {
		opensLate(t, func(t *testing.T, _ *world, b *machine, id string) {
			t.Helper()
			asked := started(func() error {
				st, err := b.SessionStatus(t.Context(), id)
				if st.State != "" {
					t.Errorf("%+v: the test has lost its point", st)
				}
				return err
			})
			synctest.Wait()
			t.Cleanup(func() { want(t, <-asked, nil) })
		})
	})
	t.Run("observed", func(t *testing.T) {
		opensLate(t, func(t *testing.T, w *world, b *machine, id string) {
			t.Helper()
			// What names a session before it was opened is nobody's of ours.
			if _, _, err := w.records.Claim(t.Context(), driver.Record{
				Key: "y", Version: "v", Beat: "v", Owner: "z", Token: 1, Lease: lease, State: driver.Held, Session: id,
			}); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			t.Cleanup(stop)
			go func() {
				for _, err := range b.Election("y", nil).Observe(ctx) {
					_ = err // it goes on
				}
			}()
			synctest.Wait()
		})
	})
}

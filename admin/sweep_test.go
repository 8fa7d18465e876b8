// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/testutil"
)

// keys are the keys of all records.
func keys(w *world) []string {
	w.T().Helper()
	var all []string
	for cursor := ""; ; {
		page, err := w.Store().List(w.T().Context(), "", cursor)
		if err != nil {
			w.T().Fatal(err)
		}
		for _, r := range page.Records {
			all = append(all, r.Key)
		}
		if cursor = page.Cursor; cursor == "" {
			slices.Sort(all)
			return all
		}
	}
}

const aged = 24 * time.Hour

var restart = &admin.SweepOptions{ReleasedFor: aged, RestartTokens: true}

// Locks that were released long ago are deleted with their history; locks that are
// held, reserved, under a session, have data or are younger are not, nor is their
// history.
func TestSweepReleasedTakesWhatIsLongFree(t *testing.T) {
	enginetest.MakeVerify(t)
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		history := &tenure.AcquireOptions{History: true}
		for _, name := range []string{"job/1", "job/2", "kept"} {
			for range 3 {
				mustRelease(m, m.MustAcquire(name, history))
			}
		}
		mustRelease(m, m.MustAcquire("job/plain", nil))
		mustRelease(m, m.MustAcquire("job/data", &tenure.AcquireOptions{Data: []byte("checkpoint"), History: true}))
		mustRelease(m, m.MustAcquire("job/held", history))
		held := m.MustAcquire("job/held", history)
		s := mustOpen(m)
		under, err := s.TryAcquire(t.Context(), "job/session", nil)
		if err != nil {
			t.Fatal(err)
		}
		plant(w, driver.Record{Key: "job/reserved", State: driver.Reserved, Lease: lease, Until: time.Now()})
		// Others may have written anything into a held record.
		plant(w, driver.Record{Key: "job/odd", State: driver.Held, Lease: lease, Until: time.Now()})
		// A record that is not a lock is not a released lock.
		plant(w, driver.Record{
			Key: "tenure/doctor/x", State: driver.Released, End: driver.EndReleased, Lease: lease, Until: time.Now(),
		})
		// A write of its last holder can be late for four leases.
		plant(w, driver.Record{
			Key: "job/slow", Token: 1, State: driver.Released, End: driver.EndReleased, Lease: aged / 3, Until: time.Now(),
		})
		time.Sleep(aged)
		mustRelease(m, m.MustAcquire("job/young", history))
		mustRelease(m, m.MustAcquire("job/young", history))
		before := keys(w)

		dry := *restart
		dry.DryRun = true
		if n, err := admin.SweepReleased(t.Context(), m.Client, "job/", &dry); err != nil || n != (admin.SweptLocks{Locks: 3, WithData: 1}) {
			t.Errorf("a dry run: %+v, %v", n, err)
		}
		if now := keys(w); !slices.Equal(before, now) {
			t.Errorf("a dry run has left %q of %q", now, before)
		}
		n, err := admin.SweepReleased(t.Context(), m.Client, "job/", restart)
		if err != nil || n != (admin.SweptLocks{Locks: 3, History: 4, WithData: 1}) {
			t.Errorf("swept %+v, %v", n, err)
		}
		left := slices.DeleteFunc(before, func(key string) bool {
			return key == "job/plain" || strings.Contains(key, "job/1") || strings.Contains(key, "job/2")
		})
		if now := keys(w); !slices.Equal(left, now) {
			t.Errorf("left %q, want %q", now, left)
		}
		testutil.Want(t, errors.Join(held.Check(), under.Check()), nil)
		if n, err := admin.SweepReleased(t.Context(), m.Client, "", restart); err != nil || n.Locks != 1 {
			t.Errorf("without a prefix: %+v, %v", n, err)
		}
		// The tokens begin again, and the history of the new life is its own.
		for token := range uint64(3) {
			l := m.MustAcquire("job/1", history)
			if l.Token() != token+1 {
				t.Errorf("token %d, want %d", l.Token(), token+1)
			}
			mustRelease(m, l)
		}
		list, err := m.History(t.Context(), "job/1")
		if err != nil || len(list) != 3 || slices.ContainsFunc(list, func(h tenure.Term) bool { return h.Unknown || time.Since(h.Since) > aged }) {
			t.Errorf("history %+v, %v", list, err)
		}
		mustRelease(m, under)
		testutil.Want(t, s.Close(t.Context()), nil)
	})
}

// spied is a store that calls a function before each call.
type spied struct {
	driver.Store
	before func()
}

func (s *spied) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	s.before()
	return s.Store.Get(ctx, key, c)
}

func (s *spied) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	s.before()
	return s.Store.Swap(ctx, prev, next)
}

func (s *spied) Delete(ctx context.Context, prev driver.Record) error {
	s.before()
	return s.Store.Delete(ctx, prev)
}

// A lock that is taken while it is swept is left alone, at any time, and so is its
// history.
func TestSweepReleasedLeavesWhatIsTakenMeanwhile(t *testing.T) {
	for _, history := range []bool{true, false} {
		kinds := map[bool]int{}
		for at := range 9 { // calls of the sweep that another process precedes
			inWorld(t, func(t *testing.T, w *world) {
				other := w.Client("other")
				store := &spied{w.Store().Open(), func() {}}
				sweeper := testutil.Must(tenure.New(store, &tenure.Options{Owner: "sweeper", Clock: tenure.MonotonicClock()}))(t)
				defer sweeper.Close(t.Context())
				o := &tenure.AcquireOptions{History: history}
				for range 3 {
					mustRelease(other, other.MustAcquire("x", o))
				}
				time.Sleep(aged)
				var l *tenure.Lease
				var calls atomic.Int64
				store.before = func() {
					if calls.Add(1) == int64(at) {
						l, _ = other.TryAcquire(t.Context(), "x", o)
					}
				}
				n, err := admin.SweepReleased(t.Context(), sweeper, "x", restart)
				if err != nil {
					t.Fatalf("call %d: %v", at, err)
				}
				kinds[n.Locks > 0]++
				if n.Taken+n.Locks != 1 {
					t.Errorf("call %d: swept %+v", at, n)
				}
				if l == nil { // no process came, or only while the sweep held it
					l = other.MustAcquire("x", o)
				}
				if err := l.Check(); err != nil {
					t.Errorf("call %d: %v", at, err)
				}
				if want := map[bool]uint64{true: 4, false: 1}[n.Locks == 0]; l.Token() != want {
					t.Errorf("call %d: token %d, want %d; swept %+v", at, l.Token(), want, n)
				}
				list, err := other.History(t.Context(), "x")
				if history && (err != nil || uint64(len(list)) != l.Token() || slices.ContainsFunc(list, func(h tenure.Term) bool { return h.Unknown })) {
					t.Errorf("call %d: token %d, history %+v, %v", at, l.Token(), list, err)
				}
				mustRelease(other, l)
			})
		}
		if len(kinds) != 2 {
			t.Errorf("history %v: all runs ended alike: %v", history, kinds)
		}
	}
}

func TestSweepReleasedAsksBeforeTokensRestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		for text, o := range map[string]*admin.SweepOptions{
			"must be at least 1m0s":   {ReleasedFor: 59 * time.Second, RestartTokens: true},
			"they begin at 1 again":   {ReleasedFor: aged},
			"released for 0s must be": nil,
		} {
			if _, err := admin.SweepReleased(t.Context(), m.Client, "", o); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%+v: %v, want %q", o, err, text)
			}
		}
		if n := m.Faults().Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// A sweep that fails half way has deleted the oldest terms, and left no gap between
// the known terms. It gives the lock back.
func TestSweepReleasedDeletesTheOldestFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		for range 6 {
			mustRelease(a, a.MustAcquire("x", &tenure.AcquireOptions{History: true}))
			time.Sleep(time.Second)
		}
		time.Sleep(aged)
		remove := a.Inject(faultstore.OpDelete, 2, 0, faultstore.Refuse())
		if n, err := admin.SweepReleased(t.Context(), a.Client, "x", restart); err == nil || n.Locks != 0 || n.History != 2 {
			t.Errorf("swept %+v, %v", n, err)
		}
		remove()
		list, err := a.History(t.Context(), "x")
		if err != nil || len(list) != 7 { // the sweep's own is the newest
			t.Errorf("%d terms, %v; want 7", len(list), err)
		}
		for _, e := range list {
			if e.Unknown != (e.Token <= 2) {
				t.Errorf("nothing is known of token %d: %v", e.Token, e.Unknown)
			}
		}
		if rec := w.MustRecord("x"); rec.State != driver.Released || rec.Token != 7 || time.Since(rec.Until) < aged {
			t.Errorf("left %+v", rec)
		}
		if n, err := admin.SweepReleased(t.Context(), a.Client, "", restart); err != nil || n.Locks != 1 || len(keys(w)) != 0 {
			t.Errorf("swept %+v, %v; left %q", n, err, keys(w))
		}
	})
}

// Others may keep a sweep out of the store for a moment.
func TestSweepReleasedTriesAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		mustRelease(m, m.MustAcquire("x", &tenure.AcquireOptions{History: true}))
		mustRelease(m, m.MustAcquire("x", &tenure.AcquireOptions{History: true}))
		time.Sleep(aged)
		m.Inject(faultstore.OpDelete, 0, 3, faultstore.Refuse())
		if n, err := admin.SweepReleased(t.Context(), m.Client, "", restart); err != nil || n.Locks != 1 || len(keys(w)) != 0 {
			t.Errorf("swept %+v, %v; left %q", n, err, keys(w))
		}
	})
}

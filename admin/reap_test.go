// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
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

// reaper is a client that reaps, and its reports.
type reaper struct {
	*machine
	mu     sync.Mutex
	reaped []admin.Reaped
	errs   []error
	done   <-chan error
	stop   context.CancelFunc
}

var reapers atomic.Int64

func reaps(w *world, o admin.ReapOptions) *reaper {
	w.T().Helper()
	r := &reaper{}
	r.machine = w.Client(fmt.Sprint("reaper ", reapers.Add(1))) // there may be another one
	o.OnReaped = func(what admin.Reaped) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reaped = append(r.reaped, what)
	}
	o.OnError = func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errs = append(r.errs, err)
	}
	ctx, stop := context.WithCancel(w.T().Context())
	r.stop = stop
	r.done = testutil.Go(func() error { return admin.Reap(ctx, r.Client, o) })
	return r
}

// names returns what was freed.
func (r *reaper) names() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range r.reaped {
		name := what.Name
		if what.Session != "" {
			name = "a session"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// The lock of a dead holder is free for a caller that tries only once; locks of living
// holders are left alone, and so is a released lock.
func TestReap(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		dead, alive := w.Client("dead"), w.Client("alive")
		held := alive.MustAcquire("job/b", nil)
		mustRelease(alive, alive.MustAcquire("job/c", nil))
		dead.MustAcquire("job/a", nil)
		dead.MustAcquire("other", nil)
		r := reaps(w, admin.ReapOptions{Prefixes: []string{"job/"}, ListEvery: time.Minute, Reason: "nobody home"})
		time.Sleep(4 * lease)
		if n := len(r.names()); n != 0 {
			t.Fatalf("freed while all lived: %v", r.names())
		}
		dead.Partition()
		died := time.Now()
		for w.MustRecord("job/a").State == driver.Held {
			time.Sleep(time.Second / 4)
		}
		if took := time.Since(died); took < lease-heartbeat || took > lease+lease/2+time.Second {
			t.Errorf("free %v after the death, want a lease, and a half of one at most", took)
		}
		synctest.Wait()
		if got := r.names(); !slices.Equal(got, []string{"job/a"}) || r.reaped[0].Owner != "dead" || r.reaped[0].Token != 1 {
			t.Errorf("reported %+v", r.reaped)
		}
		late := w.Client("late")
		l := testutil.Must(late.TryAcquire(t.Context(), "job/a", nil))(t)
		if p, _ := l.Previous(); p.End != tenure.EndReleasedDead || p.Request == nil || p.Request.Reason != "nobody home" {
			t.Errorf("previous %+v", p)
		}
		_, err := late.TryAcquire(t.Context(), "other", nil) // which is not watched
		testutil.Want(t, err, tenure.ErrHeld)
		testutil.Want(t, held.Check(), nil)

		// The next list finds a new lock.
		dead2 := w.Client("dead2")
		dead2.MustAcquire("job/new", nil)
		dead2.Partition()
		time.Sleep(time.Minute + 2*lease)
		testutil.Must(late.TryAcquire(t.Context(), "job/new", nil))(t)
		r.stop()
		testutil.Want(t, <-r.done, nil)
		if len(r.errs) > 0 {
			t.Errorf("errors: %v", r.errs)
		}
	})
}

// A record's own lease counts, not the lease of the watching client.
func TestReapGoesByTheLeaseOfTheRecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		long := w.Client("long", func(o *tenure.Options) { o.LeaseDuration = 8 * lease })
		long.MustAcquire("x", nil)
		long.Partition()
		r := reaps(w, admin.ReapOptions{Names: []string{"x"}})
		time.Sleep(8*lease - time.Second)
		if rec := w.MustRecord("x"); rec.State != driver.Held {
			t.Fatalf("freed early: %+v", rec)
		}
		time.Sleep(4 * lease)
		if rec := w.MustRecord("x"); rec.State != driver.Released || rec.End != driver.EndReleasedDead {
			t.Errorf("record %+v", rec)
		}
		r.stop()
		testutil.Want(t, <-r.done, nil)
	})
}

// What a lock costs: two reads in a lease, whether it is held or free.
func TestReapCosts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		const locks, leases = 20, 10
		for i := range locks {
			l := a.MustAcquire(fmt.Sprint("lock", i), nil)
			if i%2 == 0 {
				mustRelease(a, l)
			}
		}
		r := reaps(w, admin.ReapOptions{Prefixes: []string{""}})
		time.Sleep(leases * lease)
		reads, lists := 0, 0
		for _, call := range r.Faults().Log() {
			switch call.Op {
			case faultstore.OpGet:
				reads++
			case faultstore.OpList:
				lists++
			}
		}
		if most := locks * (2*leases + 2); reads > most || reads < locks*leases {
			t.Errorf("%d reads of %d locks in %d leases, want %d at most", reads, locks, leases, most)
		}
		if lists != 1 {
			t.Errorf("%d lists, want 1 in 10 minutes", lists)
		}
		r.stop()
		testutil.Want(t, <-r.done, nil)
	})
}

// A dead session is closed, which frees all locks under it, and its record goes later.
func TestReapClosesSessions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		sa := mustOpen(a)
		sb := mustOpen(b)
		for i := range 4 {
			testutil.Must(sa.Acquire(t.Context(), fmt.Sprintf("a%d", i), nil))(t)
			testutil.Must(sb.Acquire(t.Context(), fmt.Sprintf("b%d", i), nil))(t)
		}
		r := reaps(w, admin.ReapOptions{Prefixes: []string{""}})
		time.Sleep(2 * lease)
		a.Partition()
		time.Sleep(2 * lease)
		c := w.Client("c")
		for i := range 4 {
			if i > 0 { // a first look may not have met the session yet
				testutil.Must(c.TryAcquire(t.Context(), fmt.Sprintf("a%d", i), nil))(t)
			}
			_, err := c.TryAcquire(t.Context(), fmt.Sprintf("b%d", i), nil)
			testutil.Want(t, err, tenure.ErrHeld)
		}
		if got := r.names(); !slices.Equal(got, []string{"a session"}) || r.reaped[0].Session != sa.ID() {
			t.Errorf("reported %+v", r.reaped)
		}
		time.Sleep(6 * lease)
		st, err := c.SessionStatus(t.Context(), sa.ID(), nil)
		if testutil.Want(t, err, nil); st.State != "" {
			t.Errorf("the session's record: %+v", st)
		}
		st, err = c.SessionStatus(t.Context(), sb.ID(), nil)
		if testutil.Want(t, err, nil); !st.Alive {
			t.Errorf("the living session: %+v", st)
		}
		r.stop()
		testutil.Want(t, <-r.done, nil)
	})
}

// Once: it returns when the locks of dead holders are free, and the others have written a
// heartbeat.
func TestReapOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		dead, alive := w.Client("dead"), w.Client("alive")
		alive.MustAcquire("b", nil)
		mustRelease(alive, alive.MustAcquire("c", nil))
		dead.MustAcquire("a", nil)
		dead.Partition()
		r := reaps(w, admin.ReapOptions{Prefixes: []string{""}, Names: []string{"never"}, Once: true})
		testutil.Want(t, testutil.Within(t, lease/2, lease+lease/2, func() error { return <-r.done }), nil)
		if got := r.names(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("reported %+v", r.reaped)
		}
		if rec := w.MustRecord("b"); rec.State != driver.Held {
			t.Errorf("%+v", rec)
		}
		r.stop()

		// There is nothing to wait for.
		again := reaps(w, admin.ReapOptions{Names: []string{"a", "c"}, Once: true})
		testutil.Want(t, testutil.Within(t, 0, time.Second, func() error { return <-again.done }), nil)
		again.stop()

		// Its session is dead.
		s := w.Client("s")
		session := mustOpen(s)
		testutil.Must(session.Acquire(t.Context(), "d", nil))(t)
		s.Partition()
		last := reaps(w, admin.ReapOptions{Names: []string{"d"}, Once: true})
		testutil.Want(t, testutil.Within(t, lease/2, 2*lease, func() error { return <-last.done }), nil)
		if got := last.names(); !slices.Equal(got, []string{"a session"}) {
			t.Errorf("reported %+v", last.reaped)
		}
		last.stop()
	})
}

// A lock that is reserved is neither held nor free: it is released when no process has come for
// it, and not before.
func TestReapOfAReservation(t *testing.T) {
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprintf("once=%v", once), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.Client("a")
				held := a.MustAcquire("a", nil)
				testutil.Want(t, held.StepDown(&tenure.StepDownOptions{To: "next", Reason: "moves"}), nil)
				mustRelease(a, held)
				begun := time.Now()
				r := reaps(w, admin.ReapOptions{Names: []string{"a"}, Once: once})
				lapses := w.MustRecord("a").Lease
				for w.MustRecord("a").State == driver.Reserved && time.Since(begun) < 4*lease {
					time.Sleep(100 * time.Millisecond)
				}
				synctest.Wait() // the callback may be on its way
				if took := time.Since(begun); took < lapses || took > 2*lapses {
					t.Errorf("freed after %v, and the reservation is for %v", took, lapses)
				}
				if rec := w.MustRecord("a"); rec.State != driver.Released || !slices.Equal(r.names(), []string{"a"}) {
					t.Errorf("it is %q, reported %v", rec.State, r.names())
				}
				r.stop()
				testutil.Want(t, <-r.done, nil)
			})
		})
	}
}

// A store that does not answer is asked again; unreadable records are reported and left
// alone.
func TestReapAndTheStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		a.MustAcquire("x", nil)
		a.Partition()
		r := reaps(w, admin.ReapOptions{Prefixes: []string{""}})
		time.Sleep(lease / 2)
		r.Faults().SetBlackHole(true)
		time.Sleep(3 * lease)
		r.Faults().SetBlackHole(false)
		time.Sleep(3 * lease)
		if rec := w.MustRecord("x"); rec.State != driver.Released {
			t.Errorf("%+v", rec)
		}
		if len(r.errs) == 0 || len(r.errs) > 20 {
			t.Errorf("%d errors of an outage: %v", len(r.errs), r.errs)
		}
		r.stop()
		testutil.Want(t, <-r.done, nil)

		for _, o := range []admin.ReapOptions{
			{},
			{Names: []string{""}},
			{Prefixes: []string{driver.SessionPrefix}},
			{Prefixes: []string{""}, ListEvery: -1},
			{Prefixes: []string{""}, ListEvery: 5},
		} {
			testutil.Want(t, admin.Reap(t.Context(), r.Client, o), tenure.ErrInvalid)
		}
	})
}

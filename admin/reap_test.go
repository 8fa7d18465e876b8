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
)

// reaper is a client that reaps, and what it was told.
type reaper struct {
	*machine
	mu     sync.Mutex
	reaped []admin.Reaped
	errs   []error
	done   <-chan error
	stop   context.CancelFunc
}

var reapers atomic.Int64

func (w world) reaps(o admin.ReapOptions) *reaper {
	w.t.Helper()
	r := &reaper{}
	r.machine = w.machine(fmt.Sprint("reaper ", reapers.Add(1))) // there may be another one
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
	ctx, stop := context.WithCancel(w.t.Context())
	r.stop = stop
	r.done = started(func() error { return admin.Reap(ctx, r.Client, o) })
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

// The lock of a dead holder is free for one who looks just once; those of living holders
// are left alone, and so is a lock that was released.
func TestReap(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		dead, alive := w.machine("dead"), w.machine("alive")
		held := alive.mustAcquire("job/b", nil)
		alive.mustRelease(alive.mustAcquire("job/c", nil))
		dead.mustAcquire("job/a", nil)
		dead.mustAcquire("other", nil)
		r := w.reaps(admin.ReapOptions{Prefixes: []string{"job/"}, ListEvery: time.Minute, Reason: "nobody home"})
		time.Sleep(4 * lease)
		if n := len(r.names()); n != 0 {
			t.Fatalf("freed while all lived: %v", r.names())
		}
		dead.crash()
		died := time.Now()
		for w.record("job/a").State == driver.Held {
			time.Sleep(time.Second / 4)
		}
		if took := time.Since(died); took < lease-heartbeat || took > lease+lease/2+time.Second {
			t.Errorf("free %v after the death, want a lease, and a half of one at most", took)
		}
		synctest.Wait()
		if got := r.names(); !slices.Equal(got, []string{"job/a"}) || r.reaped[0].Owner != "dead" || r.reaped[0].Token != 1 {
			t.Errorf("told of %+v", r.reaped)
		}
		late := w.machine("late")
		l := must[*tenure.Lease](t)(late.TryAcquire(t.Context(), "job/a", nil))
		if p, _ := l.Previous(); p.End != tenure.EndReleasedDead || p.Request == nil || p.Request.Reason != "nobody home" {
			t.Errorf("previous %+v", p)
		}
		_, err := late.TryAcquire(t.Context(), "other", nil) // which is not watched
		want(t, err, tenure.ErrHeld)
		want(t, held.Check(), nil)

		// A lock that is new is found by the next list.
		dead2 := w.machine("dead2")
		dead2.mustAcquire("job/new", nil)
		dead2.crash()
		time.Sleep(time.Minute + 2*lease)
		must[*tenure.Lease](t)(late.TryAcquire(t.Context(), "job/new", nil))
		r.stop()
		want(t, <-r.done, nil)
		if len(r.errs) > 0 {
			t.Errorf("errors: %v", r.errs)
		}
	})
}

// A record's own lease counts, not that of the client which watches.
func TestReapGoesByTheLeaseOfTheRecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		long := w.machine("long", func(o *tenure.Options) { o.LeaseDuration = 8 * lease })
		long.mustAcquire("x", nil)
		long.crash()
		r := w.reaps(admin.ReapOptions{Names: []string{"x"}})
		time.Sleep(8*lease - time.Second)
		if rec := w.record("x"); rec.State != driver.Held {
			t.Fatalf("freed early: %+v", rec)
		}
		time.Sleep(4 * lease)
		if rec := w.record("x"); rec.State != driver.Released || rec.End != driver.EndReleasedDead {
			t.Errorf("record %+v", rec)
		}
		r.stop()
		want(t, <-r.done, nil)
	})
}

// What a lock costs: two reads in a lease, whether it is held or free.
func TestReapCosts(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a := w.machine("a")
		const locks, leases = 20, 10
		for i := range locks {
			l := a.mustAcquire(fmt.Sprint("lock", i), nil)
			if i%2 == 0 {
				a.mustRelease(l)
			}
		}
		r := w.reaps(admin.ReapOptions{Prefixes: []string{""}})
		time.Sleep(leases * lease)
		reads, lists := 0, 0
		for _, call := range r.faults.Log() {
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
		want(t, <-r.done, nil)
	})
}

// A dead session is closed, which frees all locks under it, and its record goes later.
func TestReapClosesSessions(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, b := w.machine("a"), w.machine("b")
		sa := a.mustOpen()
		sb := b.mustOpen()
		for i := range 4 {
			must[*tenure.Lease](t)(sa.Acquire(t.Context(), fmt.Sprintf("a%d", i), nil))
			must[*tenure.Lease](t)(sb.Acquire(t.Context(), fmt.Sprintf("b%d", i), nil))
		}
		r := w.reaps(admin.ReapOptions{Prefixes: []string{""}})
		time.Sleep(2 * lease)
		a.crash()
		time.Sleep(2 * lease)
		c := w.machine("c")
		for i := range 4 {
			if i > 0 { // a first look may not have met the session yet
				must[*tenure.Lease](t)(c.TryAcquire(t.Context(), fmt.Sprintf("a%d", i), nil))
			}
			_, err := c.TryAcquire(t.Context(), fmt.Sprintf("b%d", i), nil)
			want(t, err, tenure.ErrHeld)
		}
		if got := r.names(); !slices.Equal(got, []string{"a session"}) || r.reaped[0].Session != sa.ID() {
			t.Errorf("told of %+v", r.reaped)
		}
		time.Sleep(6 * lease)
		st, err := c.SessionStatus(t.Context(), sa.ID(), nil)
		if want(t, err, nil); st.State != "" {
			t.Errorf("the session's record: %+v", st)
		}
		st, err = c.SessionStatus(t.Context(), sb.ID(), nil)
		if want(t, err, nil); !st.Alive {
			t.Errorf("the living session: %+v", st)
		}
		r.stop()
		want(t, <-r.done, nil)
	})
}

// Once: it returns when what is dead is free, and the rest has shown life.
func TestReapOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		dead, alive := w.machine("dead"), w.machine("alive")
		alive.mustAcquire("b", nil)
		alive.mustRelease(alive.mustAcquire("c", nil))
		dead.mustAcquire("a", nil)
		dead.crash()
		r := w.reaps(admin.ReapOptions{Prefixes: []string{""}, Names: []string{"never"}, Once: true})
		want(t, within(t, lease/2, lease+lease/2, func() error { return <-r.done }), nil)
		if got := r.names(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("told of %+v", r.reaped)
		}
		if rec := w.record("b"); rec.State != driver.Held {
			t.Errorf("%+v", rec)
		}
		r.stop()

		// There is nothing to wait for.
		again := w.reaps(admin.ReapOptions{Names: []string{"a", "c"}, Once: true})
		want(t, within(t, 0, time.Second, func() error { return <-again.done }), nil)
		again.stop()

		// Its session is dead.
		s := w.machine("s")
		session := s.mustOpen()
		must[*tenure.Lease](t)(session.Acquire(t.Context(), "d", nil))
		s.crash()
		last := w.reaps(admin.ReapOptions{Names: []string{"d"}, Once: true})
		want(t, within(t, lease/2, 2*lease, func() error { return <-last.done }), nil)
		if got := last.names(); !slices.Equal(got, []string{"a session"}) {
			t.Errorf("told of %+v", last.reaped)
		}
		last.stop()
	})
}

// A lock that is reserved is neither held nor free: it is freed when nobody has come for it, and
// not before.
func TestReapOfAReservation(t *testing.T) {
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprintf("once=%v", once), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w world) {
				a := w.machine("a")
				held := a.mustAcquire("a", nil)
				want(t, held.StepDown(&tenure.StepDownOptions{To: "heir", Reason: "moves"}), nil)
				a.mustRelease(held)
				begun := time.Now()
				r := w.reaps(admin.ReapOptions{Names: []string{"a"}, Once: once})
				lapses := w.record("a").Lease
				for w.record("a").State == driver.Reserved && time.Since(begun) < 4*lease {
					time.Sleep(100 * time.Millisecond)
				}
				synctest.Wait() // the callback may be on its way
				if took := time.Since(begun); took < lapses || took > 2*lapses {
					t.Errorf("freed after %v, and the reservation is for %v", took, lapses)
				}
				if rec := w.record("a"); rec.State != driver.Released || !slices.Equal(r.names(), []string{"a"}) {
					t.Errorf("it is %q, told of %v", rec.State, r.names())
				}
				r.stop()
				want(t, <-r.done, nil)
			})
		})
	}
}

// A store that does not answer is asked again; records that nobody can read are told of and
// left alone.
func TestReapAndTheStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a := w.machine("a")
		a.mustAcquire("x", nil)
		a.crash()
		r := w.reaps(admin.ReapOptions{Prefixes: []string{""}})
		time.Sleep(lease / 2)
		r.faults.SetBlackHole(true)
		time.Sleep(3 * lease)
		r.faults.SetBlackHole(false)
		time.Sleep(3 * lease)
		if rec := w.record("x"); rec.State != driver.Released {
			t.Errorf("%+v", rec)
		}
		if len(r.errs) == 0 || len(r.errs) > 20 {
			t.Errorf("%d errors of an outage: %v", len(r.errs), r.errs)
		}
		r.stop()
		want(t, <-r.done, nil)

		want(t, admin.Reap(t.Context(), r.Client, admin.ReapOptions{}), tenure.ErrInvalid)
		want(t, admin.Reap(t.Context(), r.Client, admin.ReapOptions{Names: []string{""}}), tenure.ErrInvalid)
		want(t, admin.Reap(t.Context(), r.Client, admin.ReapOptions{Prefixes: []string{driver.SessionPrefix}}), tenure.ErrInvalid)
		want(t, admin.Reap(t.Context(), r.Client, admin.ReapOptions{Prefixes: []string{""}, ListEvery: -1}), tenure.ErrInvalid)
		want(t, admin.Reap(t.Context(), r.Client, admin.ReapOptions{Prefixes: []string{""}, ListEvery: 5}), tenure.ErrInvalid)
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/server/internal/remote"
	"github.com/tenurelock/tenure/server/internal/wire"
	"github.com/tenurelock/tenure/tenuretest"
)

// The timing of a client with the defaults.
const (
	lease          = 15 * time.Second
	heartbeat      = lease / 5
	refresh        = time.Second
	requestTimeout = lease / 10
)

// service is a client, and what carries out the calls of remote holders by it.
type service struct {
	*tenuretest.Client
	remote *remote.Client
}

func serve(w *tenuretest.World, name string, edit ...func(*tenure.Options)) *service {
	w.T().Helper()
	c := w.Client(name, edit...)
	return &service{c, remote.New(c.Client)}
}

// holder is a remote holder, in as much as a test needs of it: it makes its beats and
// remembers the last confirmed one.
type holder struct {
	wire.Grant
	after string
}

func (s *service) holder(name, owner string) *holder {
	s.World().T().Helper()
	return s.acquire(wire.AcquireRequest{Name: name, Owner: owner, Host: "h", Label: "v1"})
}

func (s *service) acquire(r wire.AcquireRequest) *holder {
	t := s.World().T()
	t.Helper()
	g := testutil.Must(s.remote.Acquire(t.Context(), r, false, nil))(t)
	return &holder{g, g.Beat}
}

func (h *holder) next() wire.HeartbeatRequest {
	term, _, _ := strings.Cut(h.after, "-")
	return wire.HeartbeatRequest{Name: h.Name, Token: h.Token, After: h.after, Next: term + "-" + rand.Text()[:13]}
}

// beat renews through a service.
func (h *holder) beat(s *service) (wire.Renewal, error) {
	b := h.next()
	r, err := s.remote.Heartbeat(s.World().T().Context(), b)
	if err == nil {
		h.after = b.Next
	}
	return r, err
}

func (h *holder) mustBeat(s *service) wire.Renewal {
	t := s.World().T()
	t.Helper()
	return testutil.Must(h.beat(s))(t)
}

func (h *holder) release(s *service) error {
	r := wire.ReleaseRequest{Name: h.Name, Token: h.Token, After: h.after}
	return s.remote.Release(s.World().T().Context(), r, false)
}

// TestRemoteHolderCosts: each call is one write; and a read before it where another
// process has written last.
func TestRemoteHolderCosts(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, b := serve(w, "a"), serve(w, "b")
		var v *holder
		expect := func(what string, m *service, calls string, f func()) {
			t.Helper()
			if got := m.Calls(f); got != calls {
				t.Errorf("%s: %q, want %q", what, got, calls)
			}
		}
		expect("a counted grant", a, "claim", func() { v = a.holder("pair", "us") })
		a.remote.Counts(&v.Grant, a.remote.Began())
		if v.UsableMs == 0 {
			t.Errorf("granted as %+v, which may not be counted", v.Grant)
		}
		expect("and its release", a, "release", func() { testutil.Want(t, v.release(a), nil) })
		expect("grant", a, "claim", func() { v = a.holder("x", "us") })
		expect("first heartbeat", a, "heartbeat", func() { v.mustBeat(a) })
		expect("nothing more for the grant", a, "", func() { time.Sleep(lease / 2) })
		expect("heartbeat", a, "heartbeat", func() { v.mustBeat(a) })
		expect("through another", b, "get heartbeat", func() { v.mustBeat(b) })
		expect("again", b, "heartbeat", func() { v.mustBeat(b) })
		expect("where another has written", a, "get heartbeat", func() { v.mustBeat(a) })
		expect("release", a, "release", func() { testutil.Want(t, v.release(a), nil) })
		rec := w.MustRecord("x")
		if rec.State != driver.Released || rec.End != driver.EndReleased || rec.Owner != "us" || rec.Host != "h" || rec.Label != "v1" {
			t.Errorf("left as %+v", rec)
		}
	})
}

// TestReleaseThatDeletes leaves no record, unless the lock was taken meanwhile, and is a release
// whether the deletion succeeds or not.
func TestReleaseThatDeletes(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, b := serve(w, "a"), serve(w, "b")
		release := func(v *holder) error {
			return a.remote.Release(t.Context(), wire.ReleaseRequest{Name: "x", Token: v.Token, After: v.after}, true)
		}
		remove := a.Inject(faultstore.OpDelete, 0, 0, faultstore.Refuse())
		testutil.Want(t, release(a.holder("x", "us")), nil)
		remove()
		if rec := w.MustRecord("x"); rec.State != driver.Released || rec.Token != 1 {
			t.Errorf("left as %+v", rec)
		}
		v := a.holder("x", "us") // after another term, with a history
		time.Sleep(time.Second)  // that is written beside the grant
		testutil.Want(t, release(v), nil)
		if left, err := w.Store().List(t.Context(), "", ""); err != nil || len(left.Records) != 0 {
			t.Errorf("left %+v, %v", left, err)
		}
		testutil.Want(t, release(v), tenure.ErrLost)
		v = a.holder("x", "us")
		waiting := testutil.Go(func() error {
			_, err := b.remote.Acquire(t.Context(), wire.AcquireRequest{Name: "x", Owner: "other"}, true, nil)
			return err
		})
		time.Sleep(time.Second)
		a.Inject(faultstore.OpDelete, 0, 1, faultstore.Slow(time.Second, 0))
		testutil.Want(t, release(v), nil)
		testutil.Want(t, <-waiting, nil)
		if rec := w.MustRecord("x"); rec.State != driver.Held || rec.Token != 2 || rec.Owner != "other" {
			t.Errorf("left as %+v", rec)
		}

		// A lock that is handed over is reserved for its next holder.
		v = a.holder("y", "us")
		asked := testutil.Go(func() error {
			return b.StepDown(t.Context(), "y", &tenure.StepDownOptions{To: "next", Reason: "deploy"})
		})
		time.Sleep(time.Second)
		v.mustBeat(a)
		testutil.Want(t, a.remote.Release(t.Context(), wire.ReleaseRequest{Name: "y", Token: v.Token, After: v.after}, true), nil)
		testutil.Want(t, <-asked, nil)
		if rec := w.MustRecord("y"); rec.State != driver.Reserved || rec.Owner != "next" {
			t.Errorf("left as %+v", rec)
		}
	})
}

// TestRemoteHolderIsAlive: its beats keep others away for as long as it sends them, and
// for a lease after that.
func TestRemoteHolderIsAlive(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, b, c := serve(w, "a"), serve(w, "b"), serve(w, "c")
		v := a.holder("x", "us")
		drift, whole := 0.09, float64(lease)
		usable := time.Duration(whole*(1-drift)/(1+drift)) - lease/8
		if r := v.mustBeat(a); r.UsableMs != usable.Milliseconds() || r.HeartbeatMs != heartbeat.Milliseconds() || r.Asked != nil {
			t.Errorf("renewed as %+v, want usable %v", r, usable)
		}
		waiting := testutil.Go(func() error {
			_, err := c.Acquire(t.Context(), "x", nil)
			return err
		})
		for range 20 {
			time.Sleep(heartbeat)
			v.mustBeat(b)
		}
		last := time.Now()
		testutil.Pending(t, "the other's acquire", waiting)
		testutil.Want(t, <-waiting, nil)
		if took := time.Since(last); took < lease || took > lease+2*refresh {
			t.Errorf("taken over after %v", took)
		}
		_, err := v.beat(a)
		testutil.Want(t, err, tenure.ErrLost)
		testutil.Want(t, v.release(a), tenure.ErrLost)
	})
}

// TestRemoteHolderHasItsOwnClock: the record carries a bound for the clock of the holder, never a
// lower one of a replica, and every replica answers heartbeats by it.
func TestRemoteHolderHasItsOwnClock(t *testing.T) {
	for _, tt := range []struct {
		own   float64 // of the replica
		clock string
		bound float64 // in the record
	}{
		{own: 0.01, clock: "", bound: 0.09},
		{own: 0.01, clock: "raw", bound: 0.01},
		{own: 0.001, clock: "", bound: 0.09},
		{own: 0.001, clock: "raw", bound: 0.01},
		{own: 0.09, clock: "", bound: 0.09},
		{own: 0.09, clock: "raw", bound: 0.09},
		{own: 0.2, clock: "", bound: 0.2},
		{own: 0.2, clock: "raw", bound: 0.2},
	} {
		t.Run(fmt.Sprintf("a replica with %v, a clock %q", tt.own, tt.clock), func(t *testing.T) {
			tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
				a := serve(w, "a", func(o *tenure.Options) { o.MaxClockDrift = tt.own })
				low := serve(w, "low", func(o *tenure.Options) { o.MaxClockDrift = 0.001 })
				high := serve(w, "high", func(o *tenure.Options) { o.MaxClockDrift = 0.3 })
				v := a.acquire(wire.AcquireRequest{Name: "x", Owner: "us", Clock: tt.clock})
				whole := float64(lease)
				usable := time.Duration(whole*(1-tt.bound)/(1+tt.bound)) - lease/8
				got := a.Events(tenure.EventAcquired)
				if len(got) != 1 || got[0].Remaining.Milliseconds() != usable.Milliseconds() {
					t.Errorf("reports %+v, want remaining %v", got, usable)
				}
				for _, replica := range []*service{a, low, high, a} {
					if r := v.mustBeat(replica); r.UsableMs != usable.Milliseconds() {
						t.Errorf("renewed as %+v, want usable %v", r, usable)
					}
					if rec := w.MustRecord("x"); rec.Drift != tt.bound {
						t.Errorf("the record has a bound of %v, want %v", rec.Drift, tt.bound)
					}
				}
			})
		})
	}
}

// TestRemoteHolderWithAnotherClock: a contender waits for as long as the holder's clock may take, and
// its own, whichever of the two is better. A contender with a lower bound does not report a remote
// holder as a wrong setting.
func TestRemoteHolderWithAnotherClock(t *testing.T) {
	for _, tt := range []struct {
		own   float64 // of the contender
		clock string
		wait  time.Duration
	}{
		{0.01, "", lease},
		{0.01, "raw", lease},
		{0.09, "", lease},
		{0.09, "raw", 17_611 * time.Millisecond}, // L(1-0.01)/(1+0.01)*(1+0.09)/(1-0.09)
	} {
		t.Run(fmt.Sprintf("a contender with %v, a clock %q", tt.own, tt.clock), func(t *testing.T) {
			tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
				a := serve(w, "a", func(o *tenure.Options) { o.MaxClockDrift = 0.01 })
				b := serve(w, "b", func(o *tenure.Options) { o.MaxClockDrift = tt.own })
				v := a.acquire(wire.AcquireRequest{Name: "x", Owner: "us", Clock: tt.clock})
				v.mustBeat(a)
				last := time.Now()
				next := wire.AcquireRequest{Name: "x", Owner: "other"}
				testutil.Must(b.remote.Acquire(t.Context(), next, true, nil))(t)
				if took := time.Since(last); took < tt.wait || took > tt.wait+2*refresh {
					t.Errorf("taken over after %v, want %v", took, tt.wait)
				}
				if got := b.Events(tenure.EventDrift); len(got) > 0 && tt.own == 0.01 {
					t.Errorf("reports %+v", got)
				}
			})
		})
	}
}

// TestRemoteHolderAcrossTimings: while a setting is rolled out, replicas differ in their
// lease durations. The period that a holder gets fits the lease in its record, whatever
// the lease of the replica is.
func TestRemoteHolderAcrossTimings(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a := serve(w, "a")
		v := a.holder("x", "us")
		for _, of := range []time.Duration{lease / 3, lease, 3 * lease} {
			replica := serve(w, of.String(), func(o *tenure.Options) { o.LeaseDuration, o.HeartbeatPeriod = of, 0 })
			r := v.mustBeat(replica)
			if most := min(of, lease) / 5; r.HeartbeatMs != most.Milliseconds() || r.UsableMs <= r.HeartbeatMs {
				t.Errorf("through a replica with a lease of %v: renewed as %+v, want a heartbeat each %v", of, r, most)
			}
		}
	})
}

// TestRemoteHolderRepeatsItself: the same call again is confirmed and changes nothing;
// an older one is lost, and so is one of another token, or that guesses the beat.
func TestRemoteHolderRepeatsItself(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, b := serve(w, "a"), serve(w, "b")
		v := a.holder("x", "us")
		first := v.next()
		for _, m := range []*service{a, b, a} {
			_, err := m.remote.Heartbeat(t.Context(), first)
			testutil.Want(t, err, nil)
		}
		v.after = first.Next
		was := w.MustRecord("x")
		stale := first
		stale.Next = v.next().Next
		if _, err := b.remote.Heartbeat(t.Context(), stale); !errors.Is(err, tenure.ErrLost) {
			t.Errorf("a beat that follows an older one: %v", err)
		}
		other := v.next()
		other.Token++
		_, err := a.remote.Heartbeat(t.Context(), other)
		testutil.Want(t, err, tenure.ErrLost)
		guess := v.next()
		guess.After = strings.Repeat("A", 13) + "-" + strings.Repeat("B", 13)
		guess.Next = strings.Repeat("A", 13) + "-" + strings.Repeat("C", 13)
		_, err = a.remote.Heartbeat(t.Context(), guess)
		testutil.Want(t, err, tenure.ErrLost)
		if is := w.MustRecord("x"); is.Version != was.Version {
			t.Errorf("written by a call that has no effect: %+v", is)
		}
		v.mustBeat(a)
		testutil.Want(t, v.release(a), nil)
		testutil.Want(t, v.release(b), nil) // sent again
		_, err = v.beat(b)
		testutil.Want(t, err, tenure.ErrLost)
		next := b.MustAcquire("x", nil)
		testutil.Want(t, v.release(a), nil) // by a proxy, much later
		testutil.Want(t, next.Check(), nil)
		testutil.Want(t, next.Renew(t.Context()), nil)
	})
}

// TestUnusedGrantIsFreed: a program that went away while it waited costs the others a third
// of a lease; a holder that shows life through another process keeps the lock.
func TestUnusedGrantIsFreed(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, b := serve(w, "a"), serve(w, "b")
		v := a.holder("x", "gone")
		if v.FreeAfterMs != (lease / 3).Milliseconds() {
			t.Errorf("free after %d ms", v.FreeAfterMs)
		}
		begun := time.Now()
		b.MustAcquire("x", nil)
		if took := time.Since(begun); took < lease/3 || took > lease/3+3*refresh { // whose looks are twice as rare while nothing is heard
			t.Errorf("free after %v, want %v", took, lease/3)
		}
		if prev := w.MustRecord("x").Prev; prev == nil || prev.End != driver.EndAbandoned {
			t.Errorf("the unused tenure ended as %+v", prev)
		}
		_, err := v.beat(a)
		testutil.Want(t, err, tenure.ErrLost)

		kept := a.holder("y", "there")
		kept.mustBeat(b)
		time.Sleep(lease/3 + refresh)
		kept.mustBeat(b)
		if rec := w.MustRecord("y"); rec.State != driver.Held || rec.Token != kept.Token {
			t.Errorf("a lock in use was freed: %+v", rec)
		}
	})
}

// TestGrantMayBeCounted: by the drift in the record, and by the lease in it, if the acquire took less
// than a tenth of the lease and did not wait for a holder. Otherwise it is freed early.
func TestGrantMayBeCounted(t *testing.T) {
	const late = lease / 10 * 109 / 91 // by a client's clock that is slow by 9 %, and a replica's that is fast
	for name, tt := range map[string]struct {
		clock  string
		before time.Duration // between the arrival of the call and its claim
		after  time.Duration // and between the answer of the store and that to the client
		waits  bool
		want   time.Duration
	}{
		"at once":                {want: 10_647 * time.Millisecond}, // L(1-0.09)/(1+0.09) - L/8
		"by the raw clock":       {clock: "raw", want: 10_647 * time.Millisecond},
		"a slow body":            {before: late - time.Millisecond, want: 10_647 * time.Millisecond},
		"too slow a body":        {before: late + time.Millisecond},
		"a pause":                {after: late - time.Millisecond, want: 10_647 * time.Millisecond},
		"too long a pause":       {after: late + time.Millisecond},
		"a pause until the free": {after: lease / 3},
		"waited":                 {waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
				a := serve(w, "a")
				other := a.holder("x", "other")
				if tt.waits {
					time.AfterFunc(lease/20, func() { testutil.Want(t, other.release(a), nil) })
				} else {
					testutil.Want(t, other.release(a), nil)
				}
				time.Sleep(time.Millisecond) // what was seen before then is not seen by the acquire
				began := a.remote.Began()
				time.Sleep(tt.before)
				g := testutil.Must(a.remote.Acquire(t.Context(), wire.AcquireRequest{Name: "x", Owner: "us", Clock: tt.clock}, true, nil))(t)
				granted := time.Now()
				time.Sleep(tt.after)
				if a.remote.Counts(&g, began); g.UsableMs != tt.want.Milliseconds() {
					t.Errorf("may be counted for %d ms, want %v", g.UsableMs, tt.want)
				}
				time.Sleep(lease/3 + time.Second - time.Since(granted))
				if free := w.MustRecord("x").State == driver.Released; free != (tt.want == 0) {
					t.Errorf("it is %+v", w.MustRecord("x"))
				}
			})
		})
	}
}

// TestCountedGrantIsByTheRecord: in another process's lease and drift there is no other room.
func TestCountedGrantIsByTheRecord(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a := serve(w, "a", func(o *tenure.Options) { o.MaxClockDrift = 0.01 })
		for clock, want := range map[string]int64{"": 10_647, "raw": 12_827} {
			v := a.acquire(wire.AcquireRequest{Name: "x", Owner: "us", Clock: clock})
			if a.remote.Counts(&v.Grant, a.remote.Began()); v.UsableMs != want {
				t.Errorf("by the clock %q it may be counted for %d ms, want %d", clock, v.UsableMs, want)
			}
			if r := v.mustBeat(a); r.UsableMs != want {
				t.Errorf("a heartbeat says %d ms, want %d", r.UsableMs, want)
			}
			testutil.Want(t, v.release(a), nil)
		}
	})
}

// TestGrantThatNobodyLearnsOf: it is released at once.
func TestGrantThatNobodyLearnsOf(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, b := serve(w, "a"), serve(w, "b")
		v := a.holder("x", "us")
		a.remote.Discard(v.Grant)
		synctest.Wait()
		testutil.Must(b.TryAcquire(t.Context(), "x", nil))(t)

		// The request of a waiter ends at the moment of the grant.
		holder := testutil.Must(b.TryAcquire(t.Context(), "y", nil))(t)
		ctx, stop := context.WithCancel(t.Context())
		waits := testutil.Go(func() error {
			_, err := a.remote.Acquire(ctx, wire.AcquireRequest{Name: "y", Owner: "us"}, true, nil)
			return err
		})
		time.Sleep(refresh)
		a.Inject(faultstore.OpTakeover, 0, 1, faultstore.Slow(0, time.Second))
		a.Inject(faultstore.OpClaim, 0, 1, faultstore.Slow(0, time.Second))
		testutil.Want(t, holder.Release(t.Context()), nil)
		time.Sleep(refresh / 2)
		stop()
		testutil.Want(t, <-waits, context.Canceled)
		time.Sleep(3 * time.Second)
		testutil.Must(b.TryAcquire(t.Context(), "y", nil))(t)
	})
}

// TestRemoteHolderIsAsked: a request stays in the record until the term ends, and each
// heartbeat returns it.
func TestRemoteHolderIsAsked(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, b := serve(w, "a"), serve(w, "b")
		v := a.holder("x", "us")
		v.mustBeat(a)
		asked := testutil.Go(func() error {
			return b.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "next", Reason: "deploy"})
		})
		synctest.Wait()
		for _, m := range []*service{a, b, a} {
			r := v.mustBeat(m)
			if q := r.Asked; q == nil || q.Kind != "hand-over" || q.To != "next" || q.Reason != "deploy" || q.By != "b" {
				t.Errorf("asked %+v", q)
			}
			time.Sleep(heartbeat)
		}
		testutil.Pending(t, "the request", asked)
		testutil.Want(t, v.release(b), nil)
		if rec := w.MustRecord("x"); rec.State != driver.Reserved || rec.Owner != "next" {
			t.Errorf("left as %+v", rec)
		}
		testutil.Want(t, <-asked, nil)
	})
}

// TestReservationGoesFirst: whom a lock is handed over to takes it, although others of
// the same process have waited for longer.
func TestReservationGoesFirst(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, b := serve(w, "a"), serve(w, "b")
		v := b.holder("x", "us")
		v.mustBeat(b)
		var order []string
		got := make(chan *holder, 3)
		for _, owner := range []string{"first", "second", "next"} {
			go func() {
				g, err := a.remote.Acquire(t.Context(), wire.AcquireRequest{Name: "x", Owner: owner}, true, nil)
				if err != nil {
					got <- nil
					return
				}
				got <- &holder{g, g.Beat}
			}()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * refresh)
		asked := testutil.Go(func() error {
			return b.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "next", Reason: "deploy"})
		})
		synctest.Wait()
		v.mustBeat(b)
		testutil.Want(t, v.release(b), nil)
		for range 3 {
			n := <-got
			if n == nil {
				t.Fatal("an acquire failed")
			}
			order = append(order, w.MustRecord("x").Owner)
			n.mustBeat(a)
			testutil.Want(t, n.release(a), nil)
		}
		testutil.Want(t, <-asked, nil)
		if strings.Join(order, " ") != "next first second" {
			t.Errorf("came as %v", order)
		}
	})
}

// TestRemoteHolderAndAStoreThatFails: no answer is ErrUncertain, and the same call again
// is confirmed, whether the write was made or not.
func TestRemoteHolderAndAStoreThatFails(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"reply lost": faultstore.LoseReplyHang(), "request lost": faultstore.BlackHole(), "late": faultstore.LateAfterError(requestTimeout / 2),
	} {
		t.Run(name, func(t *testing.T) {
			tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
				a, b := serve(w, "a"), serve(w, "b")
				v := a.holder("x", "us")
				v.mustBeat(a)
				next := v.next()
				remove := a.Inject(faultstore.OpHeartbeat, 0, 0, fault)
				reads := a.Inject(faultstore.OpGet, 0, 0, faultstore.BlackHole())
				_, err := a.remote.Heartbeat(t.Context(), next)
				testutil.Want(t, err, tenure.ErrUncertain)
				remove()
				reads()
				_, err = b.remote.Heartbeat(t.Context(), next)
				testutil.Want(t, err, nil)
				v.after = next.Next
				v.mustBeat(a)
				remove = a.Inject(faultstore.OpRelease, 0, 1, faultstore.LoseReply())
				testutil.Want(t, v.release(a), nil)
				remove()
				testutil.Must(b.TryAcquire(t.Context(), "x", nil))(t)
			})
		})
	}
}

// TestRemoteHolderWithLongData: what a process remembers of a record to save a read has a
// limit for its data. Heartbeats and the release keep data on both sides of it.
func TestRemoteHolderWithLongData(t *testing.T) {
	for _, n := range []int{4 << 10, 4<<10 + 1, driver.MaxDataLen} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
				a := serve(w, "a")
				data := bytes.Repeat([]byte("x"), n)
				v := a.acquire(wire.AcquireRequest{Name: "x", Owner: "us", Data: data})
				for range 3 {
					v.mustBeat(a)
					if rec := w.MustRecord("x"); !bytes.Equal(rec.Data, data) {
						t.Fatalf("%d bytes after a heartbeat", len(rec.Data))
					}
				}
				testutil.Want(t, v.release(a), nil)
				next := a.holder("x", "them")
				next.mustBeat(a)
				if rec := w.MustRecord("x"); !bytes.Equal(rec.Data, data) {
					t.Errorf("%d bytes with the next holder", len(rec.Data))
				}
			})
		})
	}
}

// TestRemoteHolderThatHasGone: when the caller's context ends, so does the call. A store
// that refuses is not asked again for a caller that has gone.
func TestRemoteHolderThatHasGone(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a := serve(w, "a")
		v := a.holder("x", "us")
		v.mustBeat(a)
		a.Faults().Inject(faultstore.Rule{Fault: faultstore.Refuse()})
		for what, call := range map[string]func(context.Context) error{
			"heartbeat": func(ctx context.Context) error {
				_, err := a.remote.Heartbeat(ctx, v.next())
				return err
			},
			"release": func(ctx context.Context) error {
				return a.remote.Release(ctx, wire.ReleaseRequest{Name: v.Name, Token: v.Token, After: v.after}, false)
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), requestTimeout/2)
			err := call(ctx)
			cancel()
			testutil.Want(t, err, tenure.ErrUncertain)
			testutil.Want(t, err, context.DeadlineExceeded)
			if calls := a.Calls(func() { time.Sleep(4 * requestTimeout) }); calls != "" {
				t.Errorf("%s: %q after its caller has gone", what, calls)
			}
		}
	})
}

// TestClosedClientLeavesGrants: a program that was granted a lock goes on through another
// process.
func TestClosedClientLeavesGrants(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, b := serve(w, "a"), serve(w, "b")
		v := a.holder("x", "us")
		begun := time.Now()
		testutil.Want(t, a.Close(t.Context()), nil)
		if took := time.Since(begun); took != 0 {
			t.Errorf("took %v", took)
		}
		v.mustBeat(b)
		time.Sleep(lease / 2)
		v.mustBeat(b)
		_, err := v.beat(a)
		testutil.Want(t, err, tenure.ErrClosed)
	})
}

// TestRemoteHolderBadInput: each says which rule is broken, and nothing is sent.
func TestRemoteHolderBadInput(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a := serve(w, "a")
		r, ctx := a.remote, t.Context()
		v := a.holder("x", "us")
		beat := func(edit func(*wire.HeartbeatRequest)) error {
			b := v.next()
			edit(&b)
			_, err := r.Heartbeat(ctx, b)
			return err
		}
		acquire := func(name, owner string) error {
			_, err := r.Acquire(ctx, wire.AcquireRequest{Name: name, Owner: owner}, false, nil)
			return err
		}
		term, _, _ := strings.Cut(v.Beat, "-")
		calls := a.Calls(func() {
			for what, err := range map[string]error{
				"lock name is empty":                         acquire("", "us"),
				"\"a \" has a space at byte 1":               acquire("a ", "us"),
				"owner is empty":                             acquire("y", ""),
				"owner \"a\\nb\" has U+000A":                 acquire("y", "a\nb"),
				"such names are for records of Tenure":       acquire(driver.OwnPrefix+"x", "us"),
				"token is 0":                                 beat(func(b *wire.HeartbeatRequest) { b.Token = 0 }),
				"the previous beat is empty":                 beat(func(b *wire.HeartbeatRequest) { b.After = "" }),
				"does not follow":                            beat(func(b *wire.HeartbeatRequest) { b.Next = b.After }),
				"up to the dash":                             beat(func(b *wire.HeartbeatRequest) { b.Next = "OTHER-" + strings.Repeat("A", 13) }),
				"13 new letters or digits":                   beat(func(b *wire.HeartbeatRequest) { b.Next = term + "-SHORT" }),
				"then 13 new letters":                        beat(func(b *wire.HeartbeatRequest) { b.Next = term + "-" + strings.Repeat("_", 13) }),
				"data has 262145 bytes: at most 262144":      r.Release(ctx, wire.ReleaseRequest{Name: "x", Token: 1, After: v.Beat, Data: make([]byte, driver.MaxDataLen+1)}, false),
				"the previous beat \"AAAAAAAAAAAAAAAAAAAA\"": r.Release(ctx, wire.ReleaseRequest{Name: "x", Token: 1, After: strings.Repeat("A", 100)}, false),
			} {
				testutil.Want(t, err, tenure.ErrInvalid)
				if err == nil || !strings.Contains(err.Error(), what) {
					t.Errorf("got %v, want %q", err, what)
				}
			}
		})
		if calls != "" {
			t.Errorf("sent %q", calls)
		}
	})
}

// TestWaitingHolderIsTold: each holder that is waited for, once.
func TestWaitingHolderIsTold(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, b := serve(w, "a"), serve(w, "b")
		one := testutil.Must(b.TryAcquire(t.Context(), "x", nil))(t)
		var told []string
		waits := testutil.Go(func() error {
			_, err := a.remote.Acquire(t.Context(), wire.AcquireRequest{Name: "x", Owner: "us"}, true, func(e *tenure.HeldError) {
				told = append(told, e.Owner)
			})
			return err
		})
		time.Sleep(5 * refresh)
		two := testutil.Go(func() error {
			l, err := b.Acquire(t.Context(), "x", nil)
			if err == nil {
				time.Sleep(5 * refresh)
				err = l.Release(t.Context())
			}
			return err
		})
		synctest.Wait()
		testutil.Want(t, one.Release(t.Context()), nil)
		testutil.Want(t, <-waits, nil)
		testutil.Want(t, <-two, nil)
		if len(told) == 0 || len(told) > 2 || told[0] != "b" {
			t.Errorf("told %q", told)
		}
	})
}

// TestTextOfAFailure: the history shows why the work has failed.
func TestTextOfAFailure(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a := serve(w, "a")
		v := a.holder("x", "us")
		v.mustBeat(a)
		testutil.Want(t, a.remote.Release(t.Context(), wire.ReleaseRequest{
			Name: "x", Token: v.Token, After: v.after, Data: []byte("d"), Failed: "no\nspace",
		}, false), nil)
		rec := w.MustRecord("x")
		if rec.End != driver.EndFailed || rec.Asked == nil || rec.Asked.Reason != "no space" || string(rec.Data) != "d" {
			t.Errorf("left as %+v", rec)
		}
	})
}

// TestRemoteHolderIsToldWhy: what has ended the term, and not what ended the one after
// it, or what its own release has said.
func TestRemoteHolderIsToldWhy(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, boss := serve(w, "a"), serve(w, "boss")
		v := a.holder("x", "us")
		v.mustBeat(a)
		testutil.Want(t, admin.Revoke(t.Context(), boss.Client.Client, "x", "mad"), nil)
		for range 2 { // reserved for nobody, and held by the next one
			_, err := v.beat(a)
			testutil.Want(t, err, tenure.ErrSuperseded)
			if err == nil || !strings.Contains(err.Error(), `revoked by "boss": mad`) {
				t.Errorf("after the revocation: %v", err)
			}
			if w.MustRecord("x").State != driver.Held {
				a.MustAcquire("x", nil)
			}
		}

		v = a.holder("y", "us")
		v.mustBeat(a)
		testutil.Want(t, a.remote.Release(t.Context(), wire.ReleaseRequest{Name: "y", Token: v.Token, After: v.after, Failed: "no space"}, false), nil)
		_, err := v.beat(a)
		testutil.Want(t, err, tenure.ErrSuperseded)
		if err == nil || !strings.Contains(err.Error(), "the record was released under token 1") {
			t.Errorf("after its own release: %v", err)
		}
	})
}

// TestAskNamesWhoAsks: the history has whom the request names, else the client.
func TestAskNamesWhoAsks(t *testing.T) {
	for by, want := range map[string]string{"ops": "ops", "": "a"} {
		tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
			serve(w, "b").MustAcquire("x", nil)
			a := serve(w, "a")
			err := a.remote.Ask(t.Context(), remote.Request{Name: "x", Request: tenure.Request{Kind: tenure.RequestRevoke, By: by, Reason: "it hangs"}})
			if err != nil {
				t.Fatal(err)
			}
			past, err := a.History(t.Context(), "x")
			if err != nil || len(past) == 0 || past[0].Request == nil {
				t.Fatalf("history %+v, %v", past, err)
			}
			if q := past[0].Request; q.By != want || q.Reason != "it hangs" {
				t.Errorf("%q asks, and says %q; want %q", q.By, q.Reason, want)
			}
		})
	}
}

func TestAskRefuses(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		serve(w, "b").MustAcquire("x", nil)
		a := serve(w, "a")
		for what, q := range map[string]tenure.Request{
			"no kind":                 {},
			"another kind":            {Kind: "steal"},
			"a target of a step-down": {Kind: tenure.RequestStepDown, To: "c"},
			"a label of none":         {Kind: tenure.RequestRevoke, ToLabel: "v2"},
			"no target":               {Kind: tenure.RequestHandOver},
			"two targets":             {Kind: tenure.RequestHandOver, To: "c", ToLabel: "v2"},
			"a line end":              {Kind: tenure.RequestStepDown, By: "ops\nroot"},
			"a name too long":         {Kind: tenure.RequestStepDown, By: strings.Repeat("o", 1025)},
			"a reason no text":        {Kind: tenure.RequestStepDown, Reason: "\n"},
		} {
			err := a.remote.Ask(t.Context(), remote.Request{Name: "x", Request: q})
			t.Log(what)
			testutil.Want(t, err, tenure.ErrInvalid)
		}
		if st, err := a.Status(t.Context(), "x"); err != nil || st.Request != nil || !st.Held {
			t.Errorf("the holder was asked: %+v, %v", st, err)
		}
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// TestEventualStatusesAnswerAsStatuses: of locks of all kinds, in the order of the names.
func TestEventualStatusesAnswerAsStatuses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("held", nil)
		a.mustRelease(a.mustAcquire("free", nil))
		names := []string{"free", "never", "", "held", "free"}
		for range 3 {
			_, _ = b.EventualStatuses(t.Context(), names) // the first reads are strong, these need not be
		}
		list, errs := b.EventualStatuses(t.Context(), names)
		strong, strongErrs := b.Statuses(t.Context(), names)
		for i, name := range names {
			if got, want := list[i], strong[i]; got.State != want.State || got.Held != want.Held || got.Owner != want.Owner || got.Token != want.Token || got.Name != name {
				t.Errorf("%q: %+v, want %+v", name, got, want)
			}
			if (errs[i] == nil) != (strongErrs[i] == nil) || name == "" && !errors.Is(errs[i], tenure.ErrInvalid) {
				t.Errorf("%q: error %v, want %v", name, errs[i], strongErrs[i])
			}
		}
	})
}

// TestEventualStatusesCost: a client that looks each refresh period reads locks cheaply, and
// a session when its next heartbeat is near; it sees a death as soon as by strong reads.
func TestEventualStatusesCost(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		s, err := a.OpenSession(t.Context(), nil)
		want(t, err, nil)
		for _, name := range names(10) {
			_, err := s.Acquire(t.Context(), name, nil)
			want(t, err, nil)
		}
		look := func() bool {
			list, errs := b.EventualStatuses(t.Context(), names(10))
			want(t, errors.Join(errs...), nil)
			return list[0].Held && list[9].Held
		}
		for range 10 {
			look()
			time.Sleep(refresh)
		}
		b.faults.ResetLog()
		const beats = 100
		for range beats * int(heartbeat/refresh) {
			if !look() {
				t.Fatal("not held")
			}
			time.Sleep(refresh)
		}
		strong, locks, sessions := 0, 0, 0
		for _, c := range b.faults.Log() {
			switch {
			case c.Consistency == driver.Strong:
				strong++
			case c.Key == driver.SessionKey(s.ID()):
				sessions++
			default:
				locks++
			}
		}
		t.Logf("in %d heartbeat periods, each of %d looks: %d reads of locks and %d of the session, %d more that are strong", beats, heartbeat/refresh, locks, sessions, strong)
		if sessions > beats*5/2 || strong > beats/2 {
			t.Errorf("%d cheap reads of the session and %d strong ones in %d heartbeat periods", sessions, strong, beats)
		}
		a.crash()
		crashed := time.Now()
		for look() && time.Since(crashed) < 3*lease {
			time.Sleep(refresh)
		}
		if took := time.Since(crashed); took < lease-heartbeat-refresh || took > lease+2*refresh {
			t.Errorf("seen to be dead after %v", took)
		}
		b.mustTry("lock-00000", nil)
	})
}

// TestEventualStatusesNeverGoBack: whatever old state a cheap read shows, and a living holder
// never counts as dead.
func TestEventualStatusesNeverGoBack(t *testing.T) {
	notOnEngines(t, noStaleReads)
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		begun := time.Now()
		b.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Decide: func(faultstore.Call) faultstore.Fault {
			at := time.Since(begun) % (20 * heartbeat)
			if behind := int(at/heartbeat) + 1; at < 8*heartbeat {
				return faultstore.Stale(behind) // it stands still, for longer than a lease
			}
			return faultstore.Stale(rand.IntN(7)) // by more than a lease, at the most
		}})
		s, err := a.OpenSession(t.Context(), nil)
		want(t, err, nil)
		var token uint64
		for range 50 {
			x, err := s.Acquire(t.Context(), "x", nil)
			want(t, err, nil)
			y := a.mustAcquire("y", nil)
			time.Sleep(2 * refresh) // the first look at a new tenure may not see it
			for range 20 {
				list, errs := b.EventualStatuses(t.Context(), []string{"x", "y"})
				want(t, errors.Join(errs...), nil)
				if list[0].Token < token || list[1].Token < token {
					t.Fatalf("tokens %d and %d after %d", list[0].Token, list[1].Token, token)
				}
				for _, st := range list {
					if st.Token == x.Token() && st.State == tenure.StateHeld && !st.Held {
						t.Fatalf("%s counts as dead, and is held: %+v", st.Name, st)
					}
				}
				time.Sleep(refresh)
			}
			token = x.Token() - 1
			a.mustRelease(x)
			a.mustRelease(y)
		}
	})
}

// TestEventualLockStatuses: they read no session, and never say by a read that may be behind
// that there is no lock.
func TestEventualLockStatuses(t *testing.T) {
	notOnEngines(t, noStaleReads)
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.machine("a"), w.machine("b"), w.machine("c")
		s, err := a.OpenSession(t.Context(), nil)
		want(t, err, nil)
		_, err = s.Acquire(t.Context(), "x", nil)
		want(t, err, nil)
		a.mustRelease(a.mustAcquire("free", nil))
		list := []string{"x", "free", "never", ""}
		look := func(m *machine) []tenure.Status {
			t.Helper()
			sts, errs := m.EventualLockStatuses(t.Context(), list)
			want(t, errors.Join(errs[:3]...), nil)
			want(t, errs[3], tenure.ErrInvalid)
			return sts
		}
		for range 3 {
			sts := look(b)
			if x := sts[0]; !x.Held || x.FreeIn != 0 || x.Session != s.ID() || sts[1].State != tenure.StateReleased || sts[2].State != "" {
				t.Errorf("%+v", sts)
			}
		}
		strong := 0
		for _, call := range b.faults.Log() {
			if call.Key == driver.SessionKey(s.ID()) {
				t.Error("a session was read")
			}
			if call.Consistency == driver.Strong {
				strong++
			}
		}
		if strong != 1 { // of what is not there
			t.Errorf("%d strong reads", strong)
		}
		c.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.Stale(faultstore.MaxStale)})
		if x := look(c)[0]; !x.Held { // its record is new, and cheap reads do not show it
			t.Errorf("%+v", x)
		}
	})
}

// TestEventualSessionStatuses: one that looks each refresh period reads each session when a
// heartbeat is due, and sees its death as soon as by strong reads.
func TestEventualSessionStatuses(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		s, err := a.OpenSession(t.Context(), nil)
		want(t, err, nil)
		alive := func() bool {
			list, errs := b.EventualSessionStatuses(t.Context(), []string{s.ID(), "", "none", s.ID()})
			want(t, errs[1], tenure.ErrInvalid)
			want(t, errors.Join(errs[0], errs[2], errs[3]), nil)
			if list[0].ID != s.ID() || list[0].Alive != list[3].Alive || list[2].State != "" || list[2].Alive {
				t.Errorf("%+v", list)
			}
			return list[0].Alive
		}
		const beats = 50
		for range beats * int(heartbeat/refresh) {
			if !alive() {
				t.Fatal("not alive")
			}
			time.Sleep(refresh)
		}
		reads := 0
		for _, call := range b.faults.Log() {
			if call.Key == driver.SessionKey(s.ID()) {
				reads++
			}
		}
		if reads > beats*5/2 {
			t.Errorf("%d reads in %d heartbeat periods", reads, beats)
		}
		a.crash()
		crashed := time.Now()
		for alive() {
			time.Sleep(refresh)
		}
		if took := time.Since(crashed); took < lease-heartbeat-refresh || took > lease+2*refresh {
			t.Errorf("seen to be dead after %v", took)
		}
	})
}

// Whoever looks seldom, by reads that may be behind, takes no living holder for dead: what
// seems to be dead is read again, strongly.
func TestSeldomEventualStatusesOfTheLiving(t *testing.T) {
	notOnEngines(t, noStaleReads)
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		const behind = 6 // heartbeats: more than a lease
		b.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Decide: func(faultstore.Call) faultstore.Fault {
			return faultstore.Stale(behind)
		}})
		a.mustAcquire("x", nil)
		time.Sleep(2 * behind * heartbeat)
		look := func() tenure.Status {
			list, errs := b.EventualStatuses(t.Context(), []string{"x"})
			want(t, errs[0], nil)
			return list[0]
		}
		for i := range 20 {
			look()
			// Until the reply is as far behind as one before, and the lease of that is over.
			time.Sleep(lease + time.Duration(i)*refresh/2)
			if st := look(); !st.Held {
				t.Fatalf("%d: counts as dead, and is held: %+v", i, st)
			}
		}
	})
}

// Whoever looks seldom, by reads that may be behind, learns that a lock was deleted by the
// second look: when a cheap read shows no lock, the next one is strong.
func TestSeldomEventualStatusesOfTheDeleted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustRelease(a.mustAcquire("x", nil))
		look := func() tenure.Status {
			list, errs := b.EventualStatuses(t.Context(), []string{"x"})
			want(t, errs[0], nil)
			return list[0]
		}
		look()
		want(t, w.records.Delete(t.Context(), w.record("x")), nil)
		for range 2 {
			time.Sleep(3 * refresh)
			look()
		}
		if st := look(); st.State != "" {
			t.Errorf("a lock that was deleted: %+v", st)
		}
	})
}

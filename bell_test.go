// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/ringing"
	"github.com/tenurelock/tenure/memstore"
)

// inBelled runs a test in a bubble, with a world without a watch and a network.
func inBelled(t *testing.T, test func(t *testing.T, w *world, n *wires)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, unwatchedWorld(t), newWires(1)) })
}

// handOver returns how long a waiter needs to get a lock after its release began.
func handOver(t *testing.T, holder, waiter *machine, after time.Duration) time.Duration {
	t.Helper()
	l := holder.mustAcquire("x", nil)
	var at time.Time
	got := started(func() error {
		l, err := waiter.Acquire(t.Context(), "x", nil)
		if err != nil {
			return err
		}
		at = time.Now()
		return l.Release(t.Context())
	})
	time.Sleep(after)
	begun := time.Now()
	holder.mustRelease(l)
	want(t, <-got, nil)
	return at.Sub(begun)
}

// A release is found in the time of a datagram, a look and a claim. Without a bell it is
// found by the next look.
func TestBellRingsAtTheRelease(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.machine("a", n.belled("A")), w.machine("b", n.belled("B"))
		for i := range 20 {
			// A heartbeat that the release waits for may take 2 ms, the release takes 2,
			// the ring 1, a look and a claim 4.
			if took := handOver(t, a, b, 5*time.Second+time.Duration(i)*37*time.Millisecond); took > 9*time.Millisecond {
				t.Errorf("hand-over %d took %v with a bell", i, took)
			}
			time.Sleep(time.Second)
		}
		var slowest time.Duration
		c, d := w.machine("c"), w.machine("d")
		for i := range 20 {
			slowest = max(slowest, handOver(t, c, d, 5*time.Second+time.Duration(i)*37*time.Millisecond))
		}
		if slowest < 100*time.Millisecond {
			t.Errorf("without a bell the slowest took %v: this test shows nothing", slowest)
		}
	})
}

// A bell is in the record of a lock while that is held, and in no other.
func TestBellIsInHeldRecordsAlone(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a, b, c := w.machine("a", n.belled("A")), w.machine("b", n.belled("B")), w.machine("c")
		carries := func(name string, owner *machine, yes bool) {
			t.Helper()
			rec := w.record(name)
			if (rec.Bell != "") != yes || yes && !strings.HasPrefix(rec.Bell, owner.Options().Bell.Address()+" ") {
				t.Errorf("%s, %s by %s, has a bell at %.1q", name, rec.State, rec.Owner, rec.Bell)
			}
		}
		l := a.mustAcquire("x", nil)
		carries("x", a, true)
		time.Sleep(2 * heartbeat)
		carries("x", a, true)
		a.mustRelease(l)
		carries("x", a, false)

		l = b.mustAcquire("x", nil)
		carries("x", b, true)
		want(t, l.StepDown(&tenure.StepDownOptions{To: "c", Reason: "a test"}), nil)
		b.mustRelease(l)
		carries("x", b, false)
		l = c.mustAcquire("x", nil) // it has none
		carries("x", c, false)
		c.mustRelease(l)

		s := a.mustOpen(nil)
		carries(driver.SessionKey(s.ID()), a, true)
		a.mustTake(s, "y")
		carries("y", a, true)

		// Taken from the dead.
		l = b.mustAcquire("z", nil)
		carries("z", b, true)
		b.crash()
		l2 := c.mustAcquire("z", nil)
		carries("z", c, false)
		c.mustRelease(l2)
		_ = l.Release(t.Context())

		// An operator's acts.
		a.mustAcquire("revoked", nil)
		want(t, c.Revoke(t.Context(), "revoked", "a test"), nil)
		carries("revoked", a, false)
	})
}

// The secret is in nothing that the library shows.
func TestSecretOfABellIsShownToNobody(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.machine("a", n.belled("A")), w.machine("b", n.belled("B"))
		l := a.mustAcquire("x", &tenure.AcquireOptions{History: true})
		_, secret := bellOf(t, w.record("x"))
		var shown []string
		show := func(v any, err error) {
			shown = append(shown, fmt.Sprintf("%v %+v %#v %v %+v", v, v, v, err, err))
		}
		_, err := b.TryAcquire(t.Context(), "x", nil)
		show(nil, err)
		s, err := b.Status(t.Context(), "x")
		show(s, err)
		show(b.Options(), nil)
		show(a.Options(), nil)
		show(b.Client, nil)
		show(l, nil)
		show(w.record("x"), nil)
		asked := started(func() error { return b.StepDown(t.Context(), "x", because("a test")) })
		<-l.Context().Done()
		a.mustRelease(l)
		want(t, <-asked, nil)
		l = b.mustAcquire("x", &tenure.AcquireOptions{History: true})
		h, err := b.History(t.Context(), "x")
		show(h, err)
		former, _ := l.Previous()
		show(former, nil)
		for _, e := range append(a.events.all(), b.events.all()...) {
			show(e, e.Err)
		}
		all := strings.Join(shown, "\n")
		if strings.Contains(all, secret) {
			t.Error("the secret is shown")
		}
		if !strings.Contains(all, "a test") {
			t.Error("nothing is shown")
		}
	})
}

// A client that asks a holder to stop rings it: the holder stops at once, and not with its
// next heartbeat.
func TestBellTellsOfARequest(t *testing.T) {
	for _, tt := range []struct {
		name    string
		session bool
		bell    bool
	}{{"bell", false, true}, {"bell of a session", true, true}, {"no bell", false, false}} {
		t.Run(tt.name, func(t *testing.T) {
			inBelled(t, func(t *testing.T, w *world, n *wires) {
				a, b := w.machine("a"), w.machine("b")
				if tt.bell {
					a, b = w.machine("a", n.belled("A")), w.machine("b", n.belled("B"))
				}
				l := a.takes("x", tt.session)
				want(t, l.Renew(t.Context()), nil) // the next heartbeat is a period from now
				begun := time.Now()
				asked := started(func() error { return b.StepDown(t.Context(), "x", because("a test")) })
				<-l.Context().Done()
				if took := time.Since(begun); (took < 20*time.Millisecond) != tt.bell {
					t.Errorf("told to stop after %v", took)
				}
				begun = time.Now()
				a.mustRelease(l)
				want(t, <-asked, nil)
				if took := time.Since(begun); tt.bell && took > 20*time.Millisecond {
					t.Errorf("the asker knew %v after the release", took)
				}
			})
		})
	}
}

// When a session is closed those are rung who wait for a lock under it, although no
// record of a lock has changed.
func TestBellRingsAtTheEndOfASession(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.machine("a", n.belled("A")), w.machine("b", n.belled("B"))
		s := a.mustOpen(nil)
		var got []<-chan error
		var leases []*tenure.Lease
		for _, name := range names(5) {
			l := a.mustTake(s, name)
			leases = append(leases, l)
			got = append(got, started(func() error { _, err := b.Acquire(t.Context(), name, nil); return err }))
		}
		time.Sleep(2 * lease)
		begun := time.Now()
		closed := started(func() error { return s.Close(t.Context()) })
		for _, l := range leases {
			want(t, l.Release(t.Context()), nil)
		}
		want(t, <-closed, nil)
		for _, g := range got {
			want(t, <-g, nil)
		}
		if took := time.Since(begun); took > 30*time.Millisecond {
			t.Errorf("all taken %v after the session was closed", took)
		}
	})
}

// A release whose outcome is not known rings as well: it may have been applied.
func TestBellRingsAtAReleaseOfUnknownOutcome(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a := w.machine("a", n.belled("A"))
		b := w.machine("b", n.belled("B"), func(o *tenure.Options) { o.RefreshPeriod = 10 * time.Minute })
		l := a.mustAcquire("x", nil)
		got := started(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
		time.Sleep(3 * time.Second)
		begun := time.Now()
		a.fault(faultstore.OpRelease, 0, 1, faultstore.LoseReplyHang())
		a.fault(faultstore.OpRelease, 0, 0, faultstore.BlackHole()) // it never learns that it was applied
		released := started(func() error { return l.Release(t.Context()) })
		want(t, <-got, nil)
		if took := time.Since(begun); took > requestTimeout+20*time.Millisecond {
			t.Errorf("taken %v after the release", took)
		}
		<-released //nolint:errcheck // it is superseded, or uncertain
	})
}

// Those who wait are rung in the order in which they came, and look one after the other.
func TestBellRingsInTheOrderOfArrival(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		const waiters = 10
		a := w.machine("a", n.belled("A"))
		l := a.mustAcquire("x", nil)
		won := make(chan string, waiters)
		var all []*machine
		var ended []<-chan error
		for i := range waiters {
			m := w.machine(fmt.Sprintf("w%d", i), n.belled(fmt.Sprintf("W%d", i)), func(o *tenure.Options) {
				o.RefreshPeriod = 10 * time.Minute // no look comes first by chance
			})
			all = append(all, m)
			ended = append(ended, started(func() error {
				l, err := m.Acquire(t.Context(), "x", nil)
				if err != nil {
					return err
				}
				won <- m.Options().Owner
				time.Sleep(time.Minute)
				return l.Release(t.Context())
			}))
			time.Sleep(3 * time.Second)
		}
		looks := func() (n int) {
			for _, m := range all {
				n += m.faults.Count(faultstore.OpGet)
			}
			return n
		}
		before := looks()
		a.mustRelease(l)
		if first := <-won; first != "w0" {
			t.Errorf("%s was first", first)
		}
		if at := looks(); at-before > 5 {
			t.Errorf("%d looks until the first had it", at-before)
		}
		for _, e := range ended {
			want(t, <-e, nil)
		}
	})
}

// slowly is a transport that takes its time.
type slowly struct{ tenure.Bell }

func (s slowly) Send(to string, message []byte) error {
	<-time.After(50 * time.Millisecond)
	return s.Bell.Send(to, message)
}

// The last release rings, too: a client that is closed sends what it has to say first.
// After that its locks are forgotten.
func TestBellRingsBeforeTheClientIsClosed(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		const waiters = 5
		a := w.machine("a", func(o *tenure.Options) {
			o.Bell = slowly{n.bell("A")}
		})
		l := a.mustAcquire("x", nil)
		ctx, stop := context.WithCancel(t.Context())
		var ended []<-chan error
		for i := range waiters {
			m := w.machine(fmt.Sprint("w", i), n.belled(fmt.Sprint("W", i)))
			ended = append(ended, started(func() error { _, err := m.Acquire(ctx, "x", nil); return err }))
		}
		time.Sleep(5 * time.Second)
		a.mustRelease(l)
		want(t, a.Close(t.Context()), nil)
		if sent := n.sent(ringing.Ring); sent != waiters {
			t.Errorf("%d of %d were rung", sent, waiters)
		}
		stop()
		for _, e := range ended {
			<-e //nolint:errcheck // one has it
		}
	})
}

// A lock that was released is forgotten: nobody is answered any more.
func TestBellOfAReleasedLock(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a := w.machine("a", n.belled("A"))
		n.bell("B")
		l := a.mustAcquire("x", nil)
		to, secret := bellOf(t, w.record("x"))
		m := ringing.Message{Kind: ringing.Wait, Lock: ringing.NameOf(secret, "x"), Address: "B"}
		for i, want := range []int{1, 1} {
			n.inject(forge(m, to, secret))
			time.Sleep(time.Second)
			if sent := n.sent(ringing.Ack); sent != want {
				t.Errorf("%d answers after message %d, want %d", sent, i, want)
			}
			if i == 0 {
				a.mustRelease(l)
			}
		}
	})
}

// A transport that fails, or brings rubbish, does no harm.
func TestBellOfATransportThatFails(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.machine("a", n.belled("A")), w.machine("b", n.belled("nowhere"))
		n.mu.Lock()
		delete(n.ends, "nowhere") // nothing arrives there, and it cannot be sent to
		n.mu.Unlock()
		for _, b := range [][]byte{nil, {0}, []byte("TENUREB1"), make([]byte, 512), []byte(strings.Repeat("TENUREB1", 100))} {
			n.inject(&ringing.Letter{To: "A", Message: b})
		}
		if took := handOver(t, a, b, 5*time.Second); took > refresh+refresh/8+10*time.Millisecond {
			t.Errorf("hand-over took %v", took)
		}
	})
}

// A bell whose address no record can hold is refused.
func TestBellIsChecked(t *testing.T) {
	n := newWires(1)
	for _, address := range []string{"", "a b", "ä", "a\n", strings.Repeat("a", 201)} {
		_, err := tenure.New(memstore.New(), &tenure.Options{Bell: &wire{n, address}})
		if err == nil || !strings.Contains(err.Error(), "bell") {
			t.Errorf("bell at %.20q: %v", address, err)
		}
	}
}

// Waiters of a remote holder, and its lock, have no bell.
func TestRemoteHoldersHaveNoBell(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a := w.machine("a", n.belled("A"))
		rec, err := a.Engine().RemoteAcquire(t.Context(), protocol.Want{Key: "x", Owner: "elsewhere", Patience: lease}, nil)
		want(t, err, nil)
		if rec := w.record("x"); rec.Bell != "" {
			t.Error("the lock of a holder elsewhere has the bell of the service")
		}
		a.Engine().RemoteDiscard("x", rec.Token)
	})
}

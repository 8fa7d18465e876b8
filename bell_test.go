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
			if (rec.Bell != "") != yes || yes && !strings.HasPrefix(rec.Bell, owner.Options().Bell.Address+" ") {
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
		want(t, l.HandOver("c", "a test"), nil)
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
		asked := started(func() error { return b.StepDown(t.Context(), "x", "a test") })
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
				asked := started(func() error { return b.StepDown(t.Context(), "x", "a test") })
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
type slowly struct{ tenure.BellTransport }

func (s slowly) Send(to string, message []byte) error {
	<-time.After(50 * time.Millisecond)
	return s.BellTransport.Send(to, message)
}

// The last release rings, too: a client that is closed sends what it has to say first.
// After that its locks are forgotten.
func TestBellRingsBeforeTheClientIsClosed(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		const waiters = 5
		a := w.machine("a", func(o *tenure.Options) {
			o.Bell = n.bell("A")
			o.Bell.Transport = slowly{o.Bell.Transport}
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

// Options whose bell is not whole are refused.
func TestBellIsChecked(t *testing.T) {
	n := newWires(1)
	for _, bell := range []tenure.Bell{
		{Address: "A"},
		{Transport: &wire{n, "A"}},
		{Address: "a b", Transport: &wire{n, "A"}},
		{Address: "ä", Transport: &wire{n, "A"}},
		{Address: "a\n", Transport: &wire{n, "A"}},
		{Address: strings.Repeat("a", 201), Transport: &wire{n, "A"}},
	} {
		if _, err := tenure.New(memstore.New(), &tenure.Options{Bell: bell}); err == nil || !strings.Contains(err.Error(), "bell") {
			t.Errorf("bell at %.20q: %v", bell.Address, err)
		}
	}
}

// Waiters of a remote holder, and its lock, have no bell.
func TestRemoteHoldersHaveNoBell(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a := w.machine("a", n.belled("A"))
		g, err := a.Remote().Acquire(t.Context(), "x", tenure.RemoteOptions{Owner: "elsewhere"})
		want(t, err, nil)
		if rec := w.record("x"); rec.Bell != "" {
			t.Error("the lock of a holder elsewhere has the bell of the service")
		}
		a.Remote().Discard("x", g)
	})
}

// telling gives a client a bell that tells of heartbeats.
func (n *wires) telling(address string) func(*tenure.Options) {
	return func(o *tenure.Options) {
		o.Bell = n.bell(address)
		o.Bell.Heartbeats = true
	}
}

// Fifty processes that wait read much less when they are told of the heartbeats. The lock may
// be under a session.
func TestWaitersThatAreToldReadLess(t *testing.T) {
	const waiting = 50
	reads := func(t *testing.T, w *world, session bool, bell func(string) func(*tenure.Options)) (all, strong float64) {
		a := w.machine("a", bell("A"))
		a.takes("x", session)
		ctx, stop := context.WithCancel(t.Context())
		var those []*machine
		var ended []<-chan error
		for i := range waiting {
			b := w.machine(fmt.Sprint("b", i), bell(fmt.Sprint("B", i)))
			those = append(those, b)
			ended = append(ended, started(func() error { _, err := b.Acquire(ctx, "x", nil); return err }))
			time.Sleep(7 * time.Millisecond)
		}
		time.Sleep(2 * lease)
		for _, b := range those {
			b.faults.ResetLog()
		}
		const long = 10 * lease
		time.Sleep(long)
		for _, b := range those {
			for _, c := range b.faults.Log() {
				if c.Op != faultstore.OpGet {
					continue
				}
				if all += 1 / long.Seconds(); c.Consistency == driver.Strong {
					strong += 1 / long.Seconds()
				}
			}
		}
		stop()
		for _, e := range ended {
			want(t, <-e, context.Canceled)
		}
		return all, strong
	}
	for _, session := range []bool{false, true} {
		t.Run(fmt.Sprintf("session %v", session), func(t *testing.T) {
			var without, with, strong float64
			inBelled(t, func(t *testing.T, w *world, n *wires) { without, _ = reads(t, w, session, n.belled) })
			inBelled(t, func(t *testing.T, w *world, n *wires) { with, strong = reads(t, w, session, n.telling) })
			t.Logf("%.1f reads a second of %d waiting processes; %.1f when they are told of heartbeats, %.1f of these strong", without, waiting, with, strong)
			// One look in half a lease, a little earlier so that they do not keep in step; one
			// of two is strong. Where there is a session each look reads two records, of which
			// the lock's may be behind.
			looks := waiting / (lease / 2).Seconds()
			most := looks * 1.1
			if session {
				most *= 2
			}
			if with > most {
				t.Errorf("%.1f reads a second of those that are told: more than %.1f", with, most)
			}
			if most := looks * 0.6; strong > most {
				t.Errorf("%.1f strong reads a second of those that are told: more than %.1f", strong, most)
			}
		})
	}
}

// crashTold returns how long after the crash of a holder one that was told of its heartbeats
// has the lock. Forged is called now and then with how a message is made.
func crashTold(t *testing.T, w *world, n *wires, after time.Duration, forged func(send func(beat string))) time.Duration {
	t.Helper()
	a, b := w.machine("a", n.telling("A")), w.machine("b", n.telling("B"))
	a.mustAcquire("x", nil)
	got := started(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
	time.Sleep(lease)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	to, secret := bellOf(t, w.record("x"))
	if to != "A" {
		t.Fatalf("the holder is at %q", to)
	}
	var nonce ringing.ID
	n.mu.Lock()
	for _, l := range n.kept { // what somebody on the way sees
		if m, _ := ringing.Parse(l.Message); m.Kind == ringing.Wait {
			nonce = m.Nonce
		}
	}
	n.mu.Unlock()
	send := func(beat string) {
		m := ringing.Message{Kind: ringing.Here, Lock: ringing.NameOf(secret, "x"), Nonce: nonce, Echo: ringing.TagOf(secret, nonce, beat)}
		n.inject(&ringing.Letter{To: "B", Message: m.Append(nil, secret)})
	}
	if forged != nil {
		go func() {
			for ctx.Err() == nil {
				forged(send)
				time.Sleep(refresh / 7)
			}
		}()
	}
	time.Sleep(2*lease + after)
	a.crash()
	begun := time.Now()
	select {
	case err := <-got:
		want(t, err, nil)
	case <-time.After(10 * lease):
		t.Error("nobody takes the lock of the dead")
	}
	return time.Since(begun)
}

// One that is told of heartbeats takes a dead holder's lock as soon as by looking; and half a
// lease and a look later at most, whatever somebody who reads the store forges.
func TestDeathOfATellingHolder(t *testing.T) {
	const look = refresh + refresh/4
	for name, tt := range map[string]struct {
		forged func(w *world) func(send func(string))
		most   time.Duration
	}{
		"nothing forged": {nil, lease + look},
		"beats of its own": {func(*world) func(func(string)) {
			i := 0
			return func(send func(string)) { i++; send(fmt.Sprint("none-", i)) }
		}, lease + lease/2 + look},
		"the last beat": {func(w *world) func(func(string)) {
			return func(send func(string)) { send(w.record("x").Beat) }
		}, lease + look},
		"old beats": {func(w *world) func(func(string)) {
			i := 0
			return func(send func(string)) {
				i++
				send(fmt.Sprint("old-", i%2))
			}
		}, lease + heartbeat + look},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range 8 {
				inBelled(t, func(t *testing.T, w *world, n *wires) {
					var forged func(func(string))
					if tt.forged != nil {
						forged = tt.forged(w)
					}
					took := crashTold(t, w, n, time.Duration(i)*(lease+heartbeat)/8, forged)
					if took > tt.most || took < lease-heartbeat-refresh {
						t.Errorf("taken %v after the crash, want %v at most", took, tt.most)
					}
				})
			}
		})
	}
}

// A holder that is cut off from the store tells nobody that it lives.
func TestOnlyConfirmedHeartbeatsAreToldOf(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.machine("a", n.telling("A")), w.machine("b", n.telling("B"))
		a.mustAcquire("x", nil)
		got := started(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
		time.Sleep(lease)
		told := func() int { n.mu.Lock(); defer n.mu.Unlock(); return n.count[ringing.Here] }
		before := told()
		if before < 3 {
			t.Fatalf("told %d times within a lease", before)
		}
		a.crash() // it hears and sends messages as before
		time.Sleep(lease / 2)
		if after := told(); after > before {
			t.Errorf("told of %d heartbeats that no store has", after-before)
		}
		want(t, <-got, nil)
	})
}

// An acquire that gives up at a sign of life sees that as soon as without messages, beside one
// that waits and is told.
func TestThoseWhoWantLifeAreNotPutOff(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.machine("a", n.telling("A")), w.machine("b", n.telling("B"))
		a.mustAcquire("x", nil)
		started(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
		for i := range 20 {
			time.Sleep(lease/2 + time.Duration(i)*370*time.Millisecond)
			begun := time.Now()
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			want(t, err, tenure.ErrHeld)
			if took := time.Since(begun); took > heartbeat+refresh+refresh/4 {
				t.Errorf("%d: life is seen after %v", i, took)
			}
		}
	})
}

// A lease that has expired is told of no more, although heartbeats keep others away while the
// work stops.
func TestExpiredLeasesAreNotToldOf(t *testing.T) {
	inBelled(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.machine("a", n.telling("A")), w.machine("b", n.telling("B"))
		l := a.mustAcquire("x", nil)
		ctx, stop := context.WithCancel(t.Context())
		got := started(func() error { _, err := b.Acquire(ctx, "x", nil); return err })
		time.Sleep(lease)
		a.faults.SetBlackHole(true)
		<-l.Context().Done()
		a.faults.SetBlackHole(false)
		beat := w.record("x").Beat
		told := func() int { n.mu.Lock(); defer n.mu.Unlock(); return n.count[ringing.Here] }
		before := told()
		time.Sleep(2 * heartbeat)
		if w.record("x").Beat == beat {
			t.Fatal("no heartbeat while the work stops: this test shows nothing")
		}
		if after := told(); after > before {
			t.Errorf("told of %d heartbeats of a lease that has expired", after-before)
		}
		stop()
		want(t, <-got, context.Canceled)
	})
}

// A release that no message tells of is found a heartbeat period and a quarter of a refresh
// period after the last message, and a look, at most.
func TestReleaseOfATellingHolderThatIsNotHeard(t *testing.T) {
	for i := range 10 {
		inBelled(t, func(t *testing.T, w *world, n *wires) {
			a, b := w.machine("a", n.telling("A")), w.machine("b", n.telling("B"))
			l := a.mustAcquire("x", nil)
			got := started(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
			time.Sleep(2*lease + time.Duration(i)*lease/10)
			n.mu.Lock()
			n.blocked = func(string, string) bool { return true }
			n.mu.Unlock()
			begun := time.Now()
			a.mustRelease(l)
			want(t, <-got, nil)
			if took, most := time.Since(begun), heartbeat+refresh/4+refresh+refresh/4; took > most {
				t.Errorf("found after %v, want %v at most", took, most)
			}
		})
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/ringing"
)

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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// A holder that does not understand requests is not asked, and told so.
func TestRequestToPeer(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		holder := s.openPeer(t, peerOwner, longLease, 0) // nothing else changes the row
		req := waiting(lockName)
		req.Data = binary("theirs")
		must(t, holder, req)
		before := s.Row(t, lockName)
		c := s.open(t, timing(ourOwner, longLease))
		for op, ask := range map[string]func() error{
			"StepDown": func() error { return c.StepDown(t.Context(), lockName, &tenure.StepDownOptions{Reason: "a test"}) },
			"Transfer": func() error {
				return c.StepDown(t.Context(), lockName, &tenure.StepDownOptions{To: "somebody", Reason: "a test"})
			},
			"Revoke": func() error { return c.Revoke(t.Context(), lockName, "a test") },
		} {
			if err := ask(); !errors.Is(err, tenure.ErrForeign) {
				t.Errorf("%s: %v, want ErrForeign", op, err)
			}
			if now := s.Row(t, lockName); !reflect.DeepEqual(now, before) {
				t.Fatalf("%s changed the row from\n%v to\n%v", op, before, now)
			}
		}
		st := status(t, c, lockName)
		if !st.Held || st.State != tenure.StateHeld || st.Owner != peerOwner || st.Lease != longLease || string(st.Data) != "theirs" || st.Request != nil {
			t.Errorf("status: %+v", st)
		}
		must(t, holder, wire.Request{Command: wire.Heartbeat, Name: lockName})
	})
}

// handOver has a lock of ours handed over to an heir, who may not come.
func handOver(t *testing.T, holder, asker *tenure.Client, l *tenure.Lease) {
	t.Helper()
	asked := make(chan error, 1)
	go func() {
		asked <- asker.StepDown(t.Context(), l.Name(), &tenure.StepDownOptions{To: ourHeir, Reason: "a test"})
	}()
	<-l.Context().Done()
	if cause := context.Cause(l.Context()); !errors.Is(cause, tenure.ErrSteppedDown) {
		t.Fatalf("the lease ended: %v", cause)
	}
	release(t, l)
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	if st := status(t, holder, l.Name()); st.State != tenure.StateReserved || st.ReservedFor != ourHeir {
		t.Fatalf("status: %+v", st)
	}
}

const ourHeir = "our-heir"

// While a lock rests for who it was handed over to, nobody renews it, and the
// other client does not take it.
func TestReservedLockIsNotTaken(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		them := s.openPeer(t, peerOwner, lease, heartbeat)
		o := timing(ourOwner, longLease)
		o.RefreshPeriod = longLease / 5 // the reservation goes by it
		c := s.open(t, o)
		l := acquire(t, c, lockName, nil)
		call := them.Begin(waiting(lockName)) // it has seen the lock held before
		handOver(t, c, s.open(t, timing("our-asker", longLease)), l)
		before := s.Row(t, lockName)
		// For longer than the lease that the peer itself has.
		for end := time.Now().Add(2 * lease); time.Now().Before(end); wait.Rest(t.Context(), refresh) {
			a := mustRefuse(t, them, trying(lockName), wire.Held)
			if now := s.Row(t, lockName); !reflect.DeepEqual(now, before) {
				t.Fatalf("the peer, refused as %s: %s, changed the row from\n%v to\n%v", a.Class, a.Message, before, now)
			}
		}
		if s.kind == peers.Java {
			must(t, them, wire.Request{Command: wire.List})
		}
		heir := acquire(t, s.open(t, timing(ourHeir, longLease)), lockName, nil)
		if heir.Token() <= l.Token() {
			t.Errorf("token %d after %d", heir.Token(), l.Token())
		}
		mustRefuse(t, them, trying(lockName), wire.Held)
		release(t, heir)
		if a, err := result(t, call); err != nil || a.Owner != peerOwner {
			t.Errorf("the peer after the heir: %+v, %v", a, err)
		}
	})
}

// A reservation that its heir does not come for lapses for the other client by
// the rule by which it lapses for everybody, and not sooner.
func TestReservationLapses(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		them := s.openPeer(t, peerOwner, longLease, time.Second)
		c := s.open(t, timing(ourOwner, lease))
		l := acquire(t, c, lockName, nil)
		w := s.watch(t, lockName)
		call := them.Begin(waiting(lockName))
		handOver(t, c, s.open(t, timing("our-asker", lease)), l)
		rest := status(t, c, lockName).Lease
		if rest <= 0 || rest > lease {
			t.Fatalf("reserved for %v", rest)
		}
		last, now := w.until(t, peerOwner)
		checkTakeover(t, string(s.kind), last, now, rest, rest+2*refresh)
		if a, err := result(t, call); err != nil || a.Owner != peerOwner {
			t.Fatalf("the peer after the reservation: %+v, %v", a, err)
		}
		must(t, them, s.releasing(lockName, false))
		if next := acquire(t, c, lockName, nil); next.Token() <= l.Token()+1 {
			t.Errorf("token %d after %d and a tenure of the peer", next.Token(), l.Token())
		}
	})
}

// Who is cut off may be at work until its lease has run out. Until then the
// other client does not take the lock either.
func TestRevokedLockIsNotTakenEarly(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		them := s.openPeer(t, peerOwner, longLease, time.Second)
		must(t, s.openOurs(t, ourOwner, lease), wire.Request{Command: wire.Acquire, Name: lockName})
		w := s.watch(t, lockName)
		call := them.Begin(waiting(lockName))
		w.beats(t, 2)
		asker := s.open(t, timing("our-asker", lease))
		if err := asker.Revoke(t.Context(), lockName, "a test"); err != nil {
			t.Fatal(err)
		}
		if a, err := result(t, call); err != nil || a.Owner != peerOwner {
			t.Fatalf("the peer after the revocation: %+v, %v", a, err)
		}
		w.until(t, peerOwner)
		cut, now := w.cut(t, ourOwner, peerOwner)
		checkTakeover(t, string(s.kind), cut, now, lease, lease+3*refresh)
	})
}

// A request gives the row a new version. It must not look free, and the holder
// who drains its work keeps it.
func TestRequestedLockIsNotTaken(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		them := s.openPeer(t, peerOwner, lease, heartbeat)
		o := timing(ourOwner, lease)
		o.StopTimeout = 20 * lease
		c := s.open(t, o)
		l := acquire(t, c, lockName, nil)
		req := waiting(lockName)
		req.WaitMs = peers.Milliseconds(lease)
		asker := s.open(t, timing("our-asker", lease))
		asked := make(chan error, 1)
		call := them.Begin(req)
		go func() { asked <- asker.StepDown(t.Context(), lockName, &tenure.StepDownOptions{Reason: "a test"}) }()
		<-l.Context().Done()
		a, err := result(t, call)
		if err == nil || a.Kind != wire.Timeout {
			t.Errorf("the peer's acquire of a lock that drains: %+v, %v", a, err)
		}
		if err := l.Check(); err != nil {
			t.Errorf("after %.1f s of draining: %v", a.ElapsedMs/1000, err)
		}
		call = them.Begin(waiting(lockName))
		release(t, l)
		if err := <-asked; err != nil {
			t.Errorf("StepDown: %v", err)
		}
		if a, err := result(t, call); err != nil || a.Owner != peerOwner {
			t.Errorf("after the release: %+v, %v", a.Lock, err)
		}
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// busy is what a busy machine may add to what is due at an instant.
const busy = lease

// checkTakeover compares how long the last sign of life of a killed holder stood
// with how long it had to stand, and may have.
func checkTakeover(t *testing.T, who string, last, taken change, least, most time.Duration) {
	t.Helper()
	// The truth lies between: the watch is no better than its reads.
	atLeast, atMost := time.Duration(taken.after-last.before), time.Duration(taken.before-last.after)
	t.Logf("%s took over %v to %v after the last heartbeat; due after %v", who,
		atLeast.Round(time.Millisecond), atMost.Round(time.Millisecond), least.Round(time.Millisecond))
	if atMost < least {
		t.Errorf("%s took over %v after the last heartbeat at most, before %v", who, atMost, least)
	}
	if atLeast > most+busy {
		t.Errorf("%s took over %v after the last heartbeat at least; want about %v", who, atLeast, most)
	}
}

func TestTakeoverFromKilledPeer(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		holder := s.openPeer(t, peerOwner, lease, heartbeat)
		req := waiting(lockName)
		req.Data, req.Attributes = binary("theirs"), map[string]string{"colour": "blue"}
		must(t, holder, req)
		w := s.watch(t, lockName)

		c := s.open(t, timing(ourOwner, lease))
		before := status(t, c, lockName)
		taken := make(chan *tenure.Lease, 1)
		go func() {
			defer close(taken)
			l, err := c.Acquire(t.Context(), lockName, nil)
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			taken <- l
		}()
		w.beats(t, 2) // seen by who waits
		holder.Kill()
		last, now := w.until(t, ourOwner)
		l := <-taken
		if l == nil {
			t.FailNow()
		}
		if last.owner != peerOwner || last.released {
			t.Fatalf("before the takeover there was %+v", last)
		}
		// A look may come that much later than its period, and then the write.
		checkTakeover(t, "Tenure", last, now, foreignWait(lease), foreignWait(lease)+refresh*9/8)

		if l.Token() <= before.Token {
			t.Errorf("token %d after %d of the peer's tenure", l.Token(), before.Token)
		}
		if p, ok := l.Previous(); !ok || p.Owner != peerOwner || string(p.Data) != "theirs" || p.End != tenure.EndExpired {
			t.Errorf("the tenure before: %+v, %v", p, ok)
		}
		if st := status(t, c, lockName); string(st.Data) != "theirs" {
			t.Errorf("data %q", st.Data)
		}
		if r := s.Row(t, lockName); r.Text("colour") != "blue" {
			t.Errorf("the attribute of the peer is gone: %v", r)
		}
		release(t, l)
	})
}

func TestTakeoverFromKilledTenure(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		holder := s.openOurs(t, ourOwner, lease)
		token := *must(t, holder, wire.Request{Command: wire.Acquire, Name: lockName, Data: binary("ours")}).Token
		w := s.watch(t, lockName)
		contender := s.openPeer(t, peerOwner, lease, heartbeat)
		call := contender.Begin(waiting(lockName))
		w.beats(t, 4) // and the peer has seen some of them
		holder.Kill()
		last, now := w.until(t, peerOwner)
		if last.owner != ourOwner || last.released {
			t.Fatalf("before the takeover there was %+v", last)
		}
		a, err := result(t, call)
		if err != nil {
			t.Fatal(err)
		}
		// The peer looks once in a refresh period: it may begin to count that
		// late, and act that late.
		checkTakeover(t, string(s.kind), last, now, lease, lease+2*refresh)
		if a.Owner != peerOwner || a.Data == nil || string(*a.Data) != "ours" {
			t.Errorf("the peer's lock: %+v", a.Lock)
		}

		// The token goes on where the dead process left it.
		must(t, contender, s.releasing(lockName, false))
		l := acquire(t, s.open(t, timing("our-next", lease)), lockName, nil)
		if l.Token() <= token+1 {
			t.Errorf("token %d; want above that of the peer's tenure, which followed %d", l.Token(), token)
		}
		release(t, l)
	})
}

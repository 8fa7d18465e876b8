// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// Tokens rise from tenure to tenure of ours, whatever the peer does to the row
// in between: Java writes it anew without our attributes, dynamolock writes back
// those that it read, and both delete it.
func TestTokensRise(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		them := s.openPeer(t, peerOwner, longLease, 0)
		stale := s.openPeer(t, "their-second", longLease, 0)
		c, other := s.open(t, timing(ourOwner, longLease)), s.open(t, timing("our-second", longLease))
		var last uint64
		ours := func(what string, c *tenure.Client) {
			t.Helper()
			l := acquire(t, c, lockName, nil)
			if l.Token() <= last {
				t.Errorf("%s: token %d after %d", what, l.Token(), last)
			}
			last = l.Token()
			if shown := s.Row(t, lockName).Text("fencingToken"); shown != strconv.FormatUint(last, 10) {
				t.Errorf("%s: the row shows token %q, the lease %d", what, shown, last)
			}
			release(t, l)
		}
		// theirs is a tenure of the peer. The token in the row is what it is
		// known to leave there, or else the test shows nothing.
		theirs := func(ps *peers.Process, remove, update bool) {
			t.Helper()
			req := trying(lockName)
			req.UpdateExisting = update
			existed := s.Row(t, lockName) != nil
			must(t, ps, req)
			left := s.Row(t, lockName).Text("fencingToken")
			switch carries := s.kind == peers.Dynamolock || update; {
			case carries && existed && left == "":
				t.Error("the peer has wiped our token; it was thought to carry it over")
			case !carries && left != "":
				t.Errorf("the peer has left our token %s; it was thought to wipe it", left)
			}
			st := status(t, c, lockName)
			if st.Token <= last || st.Owner == ourOwner {
				t.Errorf("status during the peer's tenure, after ours under %d: %+v", last, st)
			}
			must(t, ps, s.releasing(lockName, remove))
		}

		theirs(them, false, false)
		ours("over a row that only the peer knew", c)
		for range 3 {
			theirs(them, false, false)
			ours("after a tenure of the peer", c)
			theirs(them, false, false)
			theirs(stale, false, false)
			ours("after two", other)
			theirs(them, true, false)
			ours("after a deletion by the peer", c)
			theirs(them, true, false)
			theirs(stale, false, false)
			ours("after a deletion, and a row without our token", other)
			ours("after our own", c)
			if s.kind == peers.Java {
				theirs(them, false, true)
				ours("after an update by the peer", c)
			}
		}

		// A handle that is not the holder's any more cannot bring anything back.
		must(t, them, trying(lockName))
		must(t, them, s.releasing(lockName, false))
		l := acquire(t, c, lockName, nil)
		mustRefuse(t, them, wire.Request{Command: wire.Heartbeat, Name: lockName}, wire.Lost, wire.Other)
		mustRefuse(t, them, s.releasing(lockName, true), wire.Lost, wire.Other)
		if err := l.Renew(t.Context()); err != nil || l.Token() <= last {
			t.Errorf("token %d after %d, heartbeat: %v", l.Token(), last, err)
		}
		release(t, l)
		t.Logf("reached token %d", l.Token())
	})
}

// The Java client lists all items of a table, and fails at one that does not
// look like a lock. None of ours may be such a one.
func TestJavaListsTheTable(t *testing.T) {
	t.Parallel()
	s := newScene(t, peers.Java, dialects[peers.Java])
	them := s.openPeer(t, peerOwner, longLease, 0)
	must(t, them, waiting("theirs"))
	c := s.open(t, timing(ourOwner, longLease))
	held := acquire(t, c, "ours", &tenure.AcquireOptions{History: true, Data: []byte("d")})
	freed := acquire(t, c, "ours-free", nil)
	release(t, freed)
	for range 2 { // two tenures are in the history
		l := acquire(t, c, "ours-past", &tenure.AcquireOptions{History: true})
		release(t, l)
	}
	if past, err := c.History(t.Context(), "ours-past"); err != nil || len(past) == 0 {
		t.Fatalf("history: %v, %v", past, err)
	}
	if _, err := s.store(t, s.shared()).RaiseFence(t.Context(), "ours", held.Token()); err != nil {
		t.Fatal(err)
	}

	a := must(t, them, wire.Request{Command: wire.List})
	owners := map[string]string{}
	for _, lock := range a.Locks {
		owners[lock.Name] = lock.Owner
	}
	for name, owner := range map[string]string{"theirs": peerOwner, "ours": ourOwner, "ours-free": ourOwner, "ours-past": ourOwner} {
		if owners[name] != owner {
			t.Errorf("%s is listed as of %q, want %q: %v", name, owners[name], owner, owners)
		}
	}
	// Or else it was not shown that they do no harm.
	for _, kind := range []string{"token", "fence", "history"} {
		if !hasKind(owners, kind) {
			t.Errorf("no %s item in the list: %v", kind, owners)
		}
	}
	t.Logf("%d items listed", len(a.Locks))

	// The other way round, ours show no items of that kind, and theirs as they are.
	seen := map[string]string{}
	for st, err := range c.Locks(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		seen[st.Name] = st.Owner
	}
	if len(seen) != 4 || seen["theirs"] != peerOwner {
		t.Errorf("Locks: %v", seen)
	}
	for _, name := range []string{"ours", "theirs"} {
		if got := must(t, them, wire.Request{Command: wire.Get, Name: name}); !aws.ToBool(got.Present) || aws.ToBool(got.Released) {
			t.Errorf("the peer on %s: %+v", name, got.Lock)
		}
	}
	release(t, held)
}

// hasKind reports whether there is an item of Tenure's own of a kind.
func hasKind(items map[string]string, kind string) bool {
	for name := range items {
		if strings.HasPrefix(name, driver.OwnPrefix+kind+"/") {
			return true
		}
	}
	return false
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// eachOtherDialect runs a test with each client, on a table where Tenure writes the
// dialect of the other one.
func eachOtherDialect(t *testing.T, test func(*testing.T, *scene)) {
	t.Helper()
	eachInDialect(t, map[peers.Kind]dynamostore.Dialect{peers.Java: dynamostore.Dynamolock, peers.Dynamolock: dynamostore.Java}, test)
}

// A table has one dialect. A client that meets a lock of ours in the other one
// fails: it neither waits for the lock nor takes it.
func TestOtherDialect(t *testing.T) {
	eachOtherDialect(t, func(t *testing.T, s *scene) {
		them := s.openPeer(t, peerOwner, lease, 0)
		c := s.open(t, timing(ourOwner, lease))
		for _, held := range []bool{true, false} {
			l := acquire(t, c, lockName, nil)
			if !held {
				release(t, l)
			}
			want := map[peers.Kind]string{peers.Java: "2s", peers.Dynamolock: "2000"}[s.kind]
			if got := s.Row(t, lockName).Text("leaseDuration"); got != want {
				t.Errorf("our row has the lease %q, want %q", got, want)
			}
			for _, req := range []wire.Request{trying(lockName), waiting(lockName), {Command: wire.Get, Name: lockName}} {
				a := mustRefuse(t, them, req, wire.Other)
				what := map[peers.Kind]string{peers.Java: "java.lang.NumberFormatException", peers.Dynamolock: "missing unit in duration"}[s.kind]
				if !strings.Contains(a.Class+": "+a.Message, what) {
					t.Errorf("%s: %s: %s", req.Command, a.Class, a.Message)
				}
			}
			if r := s.Row(t, lockName); r.Text("ownerName") != ourOwner {
				t.Errorf("the row after it: %v", r)
			}
			if held {
				if err := l.Renew(t.Context()); err != nil {
					t.Error(err)
				}
				release(t, l)
			}
		}
	})
}

// Tenure reads both dialects, whichever it writes.
func TestTenureReadsTheOtherDialect(t *testing.T) {
	eachOtherDialect(t, func(t *testing.T, s *scene) {
		them := s.openPeer(t, peerOwner, longLease, 0)
		req := waiting(lockName)
		req.Data = binary("theirs")
		must(t, them, req)
		c := s.open(t, timing(ourOwner, longLease))
		var held *tenure.HeldError
		if _, err := c.TryAcquire(t.Context(), lockName, nil); !errors.As(err, &held) || held.Owner != peerOwner {
			t.Errorf("TryAcquire: %v", err)
		}
		if st := status(t, c, lockName); st.Lease != longLease || string(st.Data) != "theirs" {
			t.Errorf("status: %+v", st)
		}
		must(t, them, s.releasing(lockName, false))
		l := acquire(t, c, lockName, nil)
		if st := status(t, c, lockName); string(st.Data) != "theirs" || l.Token() < 2 {
			t.Errorf("after the peer's tenure: token %d, %+v", l.Token(), st)
		}
		release(t, l)
	})
}

// Who has not said that the table is shared takes nothing that another client
// wrote, dead or released, because its token could not be kept.
func TestPeerInTableOfOurOwn(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		them := s.openPeer(t, peerOwner, lease, 0)
		must(t, them, waiting("dead")) // it sends no heartbeats
		must(t, them, waiting("released"))
		must(t, them, s.releasing("released", false))
		c := newClient(t, s.store(t, &dynamostore.Options{Dialect: s.dialect}), timing(ourOwner, lease))
		for _, name := range []string{"released", "dead"} {
			before := s.Row(t, name)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			l, err := c.Acquire(ctx, name, nil)
			cancel()
			if err == nil {
				t.Fatalf("%s: taken, token %d", name, l.Token())
			}
			if !strings.Contains(err.Error(), "SharedTable") || !strings.Contains(err.Error(), peerOwner) {
				t.Errorf("%s: %v; want an error that names the owner and what to set", name, err)
			}
			if now := s.Row(t, name); !reflect.DeepEqual(now, before) {
				t.Errorf("%s: the row changed from\n%v to\n%v", name, before, now)
			}
			if st := status(t, c, name); st.Owner != peerOwner {
				t.Errorf("%s: status %+v", name, st)
			}
		}
		if a := must(t, them, wire.Request{Command: wire.Get, Name: "dead"}); !aws.ToBool(a.Present) || a.Owner != peerOwner {
			t.Errorf("the peer on its lock: %+v", a.Lock)
		}
	})
}

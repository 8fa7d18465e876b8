// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// Data go from holder to holder, and attributes that are nobody's of the two
// stay as long as the other client lets them.
func TestDataAreHandedOn(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		them := s.openPeer(t, peerOwner, longLease, 0)
		req := waiting(lockName)
		req.Data, req.Attributes = binary("theirs"), map[string]string{"colour": "blue"}
		must(t, them, req)
		c := s.open(t, timing(ourOwner, longLease))
		if st := status(t, c, lockName); string(st.Data) != "theirs" {
			t.Errorf("data of the peer while it holds: %q", st.Data)
		}
		afterRelease := s.releasing(lockName, false)
		afterRelease.Data = binary("theirs at the end")
		must(t, them, afterRelease)

		l := acquire(t, c, lockName, nil)
		if p, ok := l.Previous(); !ok || p.Owner != peerOwner || string(p.Data) != "theirs at the end" {
			t.Errorf("the tenure before: %+v, %v", p, ok)
		}
		colour := func(when string) {
			t.Helper()
			if r := s.Row(t, lockName); r.Text("colour") != "blue" {
				t.Errorf("the attribute of the peer is gone %s: %v", when, r)
			}
		}
		colour("after a grant")
		if st := status(t, c, lockName); string(st.Data) != "theirs at the end" {
			t.Errorf("data while we hold: %q", st.Data)
		}
		got := must(t, them, wire.Request{Command: wire.Get, Name: lockName})
		if !aws.ToBool(got.Present) || got.Owner != ourOwner || got.Attributes["colour"] != "blue" || aws.ToBool(got.Released) {
			t.Errorf("what the peer sees of our lock: %+v", got.Lock)
		}
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		colour("after a heartbeat")
		if err := l.SetData(t.Context(), []byte("ours")); err != nil {
			t.Fatal(err)
		}
		colour("after new data")
		release(t, l)
		colour("after a release")

		// The peer that keeps data gets ours.
		a := must(t, them, waiting(lockName))
		if a.Data == nil || string(*a.Data) != "ours" {
			t.Errorf("the peer's lock after ours: %+v", a.Lock)
		}
		if s.kind == peers.Dynamolock && a.Attributes["colour"] != "blue" {
			t.Errorf("the attribute of the peer does not come back to it: %+v", a.Lock)
		}
		must(t, them, s.releasing(lockName, false))
		if s.kind == peers.Java {
			// This way it updates the item, with all of our attributes in it.
			req := waiting(lockName)
			req.UpdateExisting = true
			release(t, acquire(t, c, lockName, &tenure.AcquireOptions{Data: []byte("ours again")}))
			if a := must(t, them, req); a.Data == nil || string(*a.Data) != "ours again" {
				t.Errorf("the peer's lock, as an update of ours: %+v", a.Lock)
			}
			if st := status(t, c, lockName); st.Owner != peerOwner || st.End != "" || st.Host != "" {
				t.Errorf("status shows what we left in the item: %+v", st)
			}
			must(t, them, s.releasing(lockName, false))
		}

		// And the one that replaces them leaves its own.
		req = waiting(lockName)
		req.Data, req.ReplaceData = binary("replaced"), aws.Bool(true)
		must(t, them, req)
		must(t, them, s.releasing(lockName, false))
		l = acquire(t, c, lockName, &tenure.AcquireOptions{Data: []byte("ours at last")})
		if p, ok := l.Previous(); !ok || string(p.Data) != "replaced" {
			t.Errorf("the tenure before: %+v, %v", p, ok)
		}
		if got := s.Row(t, lockName).Data(); got != "ours at last" {
			t.Errorf("data in the row: %q", got)
		}
		release(t, l)
	})
}

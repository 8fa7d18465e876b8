// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// promptly is far less than the lease of the holder, and far more than a look.
const promptly = longLease / 3

func TestReleaseOfPeerIsSeen(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		holder := s.openPeer(t, peerOwner, longLease, time.Second)
		waits := make(chan struct{}, 8)
		o := timing(ourOwner, longLease)
		o.OnEvent = func(e tenure.Event) {
			if e.Kind == tenure.EventWaiting {
				waits <- struct{}{}
			}
		}
		c := s.open(t, o)
		for _, remove := range []bool{false, true} {
			req := waiting(lockName)
			req.DeleteOnRelease = aws.Bool(remove)
			must(t, holder, req)
			var held *tenure.HeldError
			if _, err := c.TryAcquire(t.Context(), lockName, nil); !errors.As(err, &held) || held.Owner != peerOwner {
				t.Fatalf("TryAcquire: %v", err)
			}
			type won struct {
				l   *tenure.Lease
				at  int64
				err error
			}
			waited := make(chan won, 1)
			go func() {
				l, err := c.Acquire(t.Context(), lockName, nil)
				waited <- won{l, proc.Monotonic(), err}
			}()
			<-waits
			released := must(t, holder, wire.Request{Command: wire.Release, Name: lockName}) // as it was acquired
			got := <-waited
			if got.err != nil {
				t.Fatal(got.err)
			}
			took := time.Duration(got.at - released.SentNs)
			t.Logf("deleted %v: acquired %v after the release was sent", remove, took.Round(time.Millisecond))
			if took > promptly {
				t.Errorf("deleted %v: acquired %v after the release, of a lease of %v", remove, took, longLease)
			}
			if p, ok := got.l.Previous(); !remove && (!ok || p.Owner != peerOwner || p.End != tenure.EndReleased) {
				t.Errorf("the tenure before: %+v, %v", p, ok)
			}
			release(t, got.l)
		}
	})
}

func TestReleaseOfTenureIsSeen(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		contender := s.openPeer(t, peerOwner, longLease, time.Second)
		c := s.open(t, timing(ourOwner, longLease))
		for _, waits := range []bool{true, false} {
			l := acquire(t, c, lockName, nil)
			mustRefuse(t, contender, trying(lockName), wire.Held)
			var call *peers.Call
			if waits {
				call = contender.Begin(waiting(lockName))
				wait.Rest(t.Context(), 3*refresh) // and looks
			}
			sent := proc.Monotonic()
			release(t, l)
			if r := s.Row(t, lockName); !waits && r.Text("isReleased") != "1" {
				t.Errorf("the row after our release: %v", r)
			}
			if !waits {
				call = contender.Begin(trying(lockName))
			}
			a, err := result(t, call)
			if err != nil {
				t.Fatal(err)
			}
			took := time.Duration(a.GotNs - sent)
			t.Logf("waited %v: the peer has it %v after the release was sent", waits, took.Round(time.Millisecond))
			if a.Owner != peerOwner || took > promptly {
				t.Errorf("the peer acquired %v after our release, of a lease of %v: %+v", took, longLease, a.Lock)
			}
			if _, released := s.Row(t, lockName)["isReleased"]; released {
				t.Error("the row is marked as released while the peer holds it")
			}
			must(t, contender, s.releasing(lockName, false))
		}
	})
}

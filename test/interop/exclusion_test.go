// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// A lock of a living holder stays with it for as long as it lives, whoever else
// wants it. Both directions at once, each on a lock of its own.
func TestLivingHolderIsRespected(t *testing.T) {
	eachPeer(t, func(t *testing.T, s *scene) {
		const theirs, ours = "theirs", "ours"
		c := s.open(t, timing(ourOwner, lease))
		l := acquire(t, c, ours, nil)
		// The peer's row has what a tenure of ours has left there, which is no
		// sign of this holder's life. (Java must be told to leave it there.)
		release(t, acquire(t, c, theirs, nil))
		holder := s.openPeer(t, peerOwner, lease, heartbeat)
		must(t, holder, wire.Request{Command: wire.Acquire, Name: theirs, UpdateExisting: s.kind == peers.Java})
		if s.Row(t, theirs)["tenure"] == nil {
			t.Error("the peer's row has nothing of ours")
		}

		contender := s.openPeer(t, "their-contender", lease, heartbeat)
		mustRefuse(t, contender, trying(ours), wire.Held)
		// The client waits for the lease of the row that it meets, and for this
		// time besides.
		req := waiting(ours)
		req.WaitMs = peers.Milliseconds(2 * lease)
		call := contender.Begin(req)

		ctx, cancel := context.WithTimeout(t.Context(), 3*lease)
		defer cancel()
		waiter := s.open(t, timing("our-waiter", lease))
		waited := make(chan error, 1)
		go func() {
			l, err := waiter.Acquire(ctx, theirs, nil)
			if err == nil {
				err = l.Release(context.WithoutCancel(ctx))
			}
			waited <- err
		}()
		tries := 0
		for ; ctx.Err() == nil; wait.Rest(ctx, refresh) {
			// A second look at the same sign of life would take it, after a lease.
			_, err := c.TryAcquire(t.Context(), theirs, nil)
			var held *tenure.HeldError
			if !errors.As(err, &held) || held.Owner != peerOwner {
				t.Fatalf("TryAcquire of the peer's lock: %v", err)
			}
			if held.FreeIn <= 0 || held.FreeIn > foreignWait(lease) {
				t.Errorf("free in %v, want up to %v", held.FreeIn, foreignWait(lease))
			}
			tries++
		}
		if err := <-waited; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire of the peer's lock for %v: %v, want that the time was up", 3*lease, err)
		}
		if a := must(t, holder, wire.Request{Command: wire.Holds, Name: theirs}); !aws.ToBool(a.Holds) {
			t.Error("the peer has lost its lock")
		}
		must(t, holder, wire.Request{Command: wire.Heartbeat, Name: theirs})

		a, err := result(t, call)
		if err == nil || a.Kind != wire.Timeout || a.ElapsedMs < float64((2*lease).Milliseconds()) {
			t.Errorf("the peer's acquire of our lock: %+v, %v; want a timeout after %v at least", a, err, 2*lease)
		}
		if err := l.Check(); err != nil {
			t.Errorf("our lease: %v", err)
		}
		if owner := s.Row(t, ours).Text("ownerName"); owner != ourOwner {
			t.Errorf("our lock is held by %q", owner)
		}
		release(t, l)
		t.Logf("respected by %d tries of Tenure's, and by %s for %.1f s", tries, s.kind, a.ElapsedMs/1000)
	})
}

// foreignWait is how long Tenure watches a record of another client before it
// takes it over: that one keeps no margin for clocks that drift, so Tenure
// keeps the margin of both.
func foreignWait(lease time.Duration) time.Duration {
	const drift = 0.09 // tenure.Options.MaxClockDrift if zero
	return time.Duration(float64(lease) * (1 + drift) / (1 - drift))
}

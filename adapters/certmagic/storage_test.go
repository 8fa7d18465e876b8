// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurecertmagic_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/tenurelock/tenure"
	tenurecertmagic "github.com/tenurelock/tenure/adapters/certmagic"
	"github.com/tenurelock/tenure/faultstore"
)

// TestOneOrder: three hosts want a certificate. The first host to order it is killed in
// the middle, the storage is slow and fails, and so does the store of the locks. One
// order comes to its end, no two are under way, and all hosts have the certificate.
func TestOneOrder(t *testing.T) {
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			s := newHarness(t, "abc", 30*time.Second, ours)
			var all sync.WaitGroup
			for i, h := range s.hosts {
				h.Faults().Inject(
					faultstore.Rule{Probability: 0.1, Fault: faultstore.LoseReply()},
					faultstore.Rule{Probability: 0.1, Fault: faultstore.Slow(200*time.Millisecond, 300*time.Millisecond)},
				)
				all.Go(func() {
					time.Sleep(time.Duration(i) * time.Second)
					if err := h.obtain(); err != nil && h.ctx.Err() == nil {
						t.Errorf("host %s: %v", h.name, err)
					}
				})
			}
			first := s.ordering()
			time.Sleep(3 * time.Second)
			first.Kill()
			first.end()
			all.Wait()
			s.expect(0)
			if took := time.Since(s.begun); took > 5*time.Minute {
				t.Errorf("it took %v", took)
			}
			if s.world.Held("certmagic/" + lock) {
				t.Error("the lock is held in the end")
			}
		})
	}
}

// TestLostOrder: a host that is cut off from the locks ends its order before the next one
// begins its own; and takes the lock again, and finds the certificate, when it is back.
func TestLostOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHarness(t, "ab", 40*time.Second, ours)
		ended := make(chan error, 2)
		go func() { ended <- s.hosts[0].obtain() }()
		s.ordering()
		go func() { ended <- s.hosts[1].obtain() }()
		time.Sleep(5 * time.Second)
		s.hosts[0].Partition()
		time.Sleep(time.Minute)
		s.hosts[0].Heal()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
		s.expect(2)
	})
}

// TestOutage: an order that ended with its lease is tried again by the same call, as any that
// failed: certmagic must not take it for the end of its own context.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHarness(t, "a", 40*time.Second, ours)
		time.Sleep(faulty)
		ended := make(chan error, 1)
		go func() { ended <- s.hosts[0].config.ObtainCertAsync(t.Context(), domain) }()
		time.Sleep(10 * time.Second)
		s.hosts[0].Partition()
		time.Sleep(30 * time.Second)
		s.hosts[0].Heal()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.expect(2)
	})
}

// TestRenewLockLease: before each try, a lock that was lost is taken again: one outage does
// not end all tries of the thirty days that certmagic goes on for.
func TestRenewLockLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHarness(t, "ab", 0, ours)
		a, b := s.hosts[0], s.hosts[1]
		if err := a.ours.RenewLockLease(t.Context(), lock, time.Hour); !errors.Is(err, tenurecertmagic.ErrNotLocked) {
			t.Errorf("before Lock: %v", err)
		}
		if err := a.ours.Lock(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
		first, err := a.ours.Lease(lock)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // longer than was asked for
		if err := a.ours.RenewLockLease(t.Context(), lock, time.Second); err != nil || first.Check() != nil {
			t.Errorf("while it is held: %v, %v", err, first.Check())
		}
		a.Partition()
		if err := b.ours.Lock(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
		a.Heal()
		soon, end := context.WithTimeout(t.Context(), time.Minute)
		if err := a.ours.RenewLockLease(soon, lock, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while another host has it: %v", err)
		}
		end()
		if err := b.ours.Unlock(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
		if err := a.ours.RenewLockLease(t.Context(), lock, time.Hour); err != nil {
			t.Error(err)
		}
		second, err := a.ours.Lease(lock)
		if err != nil || second.Token() != first.Token()+2 || second.Check() != nil {
			t.Errorf("the lease after it: %v, token %d after %d", err, second.Token(), first.Token())
		}
		if ok, err := b.ours.TryLock(t.Context(), lock); ok || err != nil {
			t.Errorf("TryLock beside it: %v, %v", ok, err)
		}
		if err := a.ours.Unlock(t.Context(), lock); err != nil {
			t.Error(err)
		}
		if ok, err := b.ours.TryLock(t.Context(), lock); !ok || err != nil {
			t.Errorf("TryLock after it: %v, %v", ok, err)
		}
	})
}

// TestLateUnlock: a host that was paused until others have the lock frees its own lease alone;
// within one process, no goroutine has the lock before its predecessor has unlocked.
func TestLateUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHarness(t, "abc", 0, ours)
		a, b, c := s.hosts[0], s.hosts[1], s.hosts[2]
		if err := a.ours.Lock(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
		a.Pause()
		if err := b.ours.Lock(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
		a.Resume()
		time.Sleep(time.Second)

		// Another caller in the paused process does not get in before the Unlock of the first.
		again := make(chan error, 1)
		go func() { again <- a.ours.Lock(t.Context(), lock) }()
		time.Sleep(time.Minute)
		if ok, err := a.ours.TryLock(t.Context(), lock); ok || err != nil {
			t.Errorf("TryLock before the Unlock of the first: %v, %v", ok, err)
		}
		if err := a.ours.Unlock(t.Context(), lock); !errors.Is(err, tenure.ErrLost) {
			t.Errorf("the late Unlock: %v", err)
		}
		if err := b.ours.RenewLockLease(t.Context(), lock, time.Hour); err != nil {
			t.Errorf("the lock of the second host after it: %v", err)
		}
		if ok, err := c.ours.TryLock(t.Context(), lock); ok || err != nil {
			t.Errorf("a third host beside the second: %v, %v", ok, err)
		}
		synctest.Wait()
		select {
		case err := <-again:
			t.Errorf("the paused process beside the second: %v", err)
		default:
		}
		if err := b.ours.Unlock(t.Context(), lock); err != nil {
			t.Error(err)
		}
		if err := <-again; err != nil {
			t.Error(err)
		}
		if err := a.ours.Unlock(t.Context(), lock); err != nil {
			t.Error(err)
		}
		if err := a.ours.Unlock(t.Context(), lock); !errors.Is(err, tenurecertmagic.ErrNotLocked) {
			t.Errorf("Unlock again: %v", err)
		}
	})
}

// TestLockEnds: waiting ends with its context, in the queue of the process and behind another
// one; an outage of the store does not end it.
func TestLockEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHarness(t, "ab", 0, ours)
		a, b := s.hosts[0], s.hosts[1]
		if err := a.ours.Lock(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
		for _, h := range s.hosts {
			soon, end := context.WithTimeout(t.Context(), time.Hour)
			if err := h.ours.Lock(soon, lock); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("host %s: %v", h.name, err)
			}
			end()
		}
		b.Partition()
		got := make(chan error, 1)
		go func() { got <- b.ours.Lock(t.Context(), lock) }()
		time.Sleep(10 * time.Minute)
		b.Heal()
		ended, end := context.WithCancel(t.Context())
		end() // certmagic unlocks while its own context ends
		if err := a.ours.Unlock(ended, lock); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Errorf("after an outage: %v", err)
		}
		certmagic.CleanUpOwnLocks(t.Context(), nil) // knows nothing of this one
		if err := b.ours.Unlock(t.Context(), lock); err != nil {
			t.Error(err)
		}
	})
}

// TestSession: the locks of a session are kept by its heartbeat.
func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHarness(t, "a", 0, ours)
		session, err := s.hosts[0].OpenSession(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		storage := tenurecertmagic.Wrap(&disk{}, session, nil)
		for _, name := range []string{"one", "two"} {
			if err := storage.Lock(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		s.hosts[0].Faults().ResetLog()
		time.Sleep(time.Minute)
		if n := s.hosts[0].Faults().Count(faultstore.OpHeartbeat); n > 25 {
			t.Errorf("%d heartbeats in a minute", n)
		}
		if session.Leases() != 2 {
			t.Errorf("%d leases under the session", session.Leases())
		}
		for _, name := range []string{"one", "two"} {
			if err := storage.Unlock(t.Context(), name); err != nil {
				t.Error(err)
			}
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestIssuerWithoutLock: an order without a lock is refused.
func TestIssuerWithoutLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHarness(t, "a", 0, func(_ *host, inner certmagic.Storage) certmagic.Storage { return unlocked{inner} })
		h := s.hosts[0]
		h.config.Issuers = []certmagic.Issuer{tenurecertmagic.Wrap(&disk{}, h.Client.Client, nil).Issuer(authority{h})}
		time.Sleep(faulty)
		if err := h.config.ObtainCertSync(t.Context(), domain); !errors.Is(err, tenurecertmagic.ErrNotLocked) || s.orders.Load() > 0 {
			t.Errorf("%v, after %d orders", err, s.orders.Load())
		}
		if err := h.config.RevokeCert(t.Context(), domain, 0, false); err == nil {
			t.Error("revoked without a certificate")
		}
	})
}

// unlocked is a storage whose locks are no-ops.
type unlocked struct{ certmagic.Storage }

func (unlocked) Lock(context.Context, string) error   { return nil }
func (unlocked) Unlock(context.Context, string) error { return nil }

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/semaphore"
)

// underSession has the process take its slots under a new session.
func (p *process) underSession(slots int) *tenure.Session {
	p.s.t.Helper()
	session, err := p.client.OpenSession(p.s.t.Context(), nil)
	if err != nil {
		p.s.t.Fatal(err)
	}
	p.Semaphore, err = semaphore.New(p.client.Client, name, slots, &semaphore.Options{Session: session})
	if err != nil {
		p.s.t.Fatal(err)
	}
	return session
}

// Two processes have three slots each, under a session. They cost its heartbeat.
// When one process crashes its slots are free, and the other one's are not.
func TestSlotsUnderASession(t *testing.T) {
	onWorld(t, 6, func(t *testing.T, s *world) {
		a, b, c := s.process("a", 6), s.process("b", 6), s.process("c", 6)
		session := a.underSession(6)
		b.underSession(6)
		var as, bs []*semaphore.Lease
		for range 3 {
			as, bs = append(as, a.hold(t.Context())), append(bs, b.hold(t.Context()))
		}
		if as[0].Session() != session || session.Leases() != 3 {
			t.Errorf("%d leases under the session", session.Leases())
		}
		if _, err := c.TryAcquire(t.Context(), nil); !errors.Is(err, semaphore.ErrFull) {
			t.Fatal(err)
		}
		a.client.Faults().ResetLog()
		time.Sleep(10 * lease)
		heartbeats := int(10 * lease / (lease / 5))
		if n := a.client.Faults().Count() - a.client.Faults().Count(faultstore.OpGet); n > heartbeats+1 {
			t.Errorf("three slots cost %d writes in %d heartbeat periods", n, heartbeats)
		}
		for _, l := range as {
			a.leave(l)
		}
		a.client.Partition()
		begun := time.Now()
		for range 3 {
			l := c.hold(t.Context())
			if l.Token() != 2 {
				t.Errorf("slot %d under token %d", l.Slot(), l.Token())
			}
		}
		if took := time.Since(begun); took > lease+5*refresh {
			t.Errorf("the slots of a crashed process were taken after %v", took)
		}
		for _, l := range as {
			if err := l.Check(); !errors.Is(err, tenure.ErrLost) {
				t.Errorf("slot %d of the crashed process: %v", l.Slot(), err)
			}
		}
		for _, l := range bs {
			if err := l.Check(); err != nil {
				t.Errorf("slot %d: %v", l.Slot(), err)
			}
			b.release(l)
		}
	})
}

// The end of the session ends the wait for a slot under it at once, and no slot
// is granted any more.
func TestSessionEndsTheWait(t *testing.T) {
	ends := map[string]struct {
		end  func(context.Context, *process, *tenure.Session)
		want error
	}{
		"closed": {func(ctx context.Context, p *process, s *tenure.Session) {
			if err := s.Close(ctx); err != nil {
				p.s.t.Error(err)
			}
		}, tenure.ErrSessionClosed},
		"lost": {func(_ context.Context, p *process, s *tenure.Session) {
			p.client.Partition()
			<-s.Context().Done()
		}, tenure.ErrLost},
		"client closed": {func(ctx context.Context, p *process, _ *tenure.Session) {
			if err := p.client.Close(ctx); err != nil {
				p.s.t.Error(err)
			}
		}, tenure.ErrClosed},
	}
	for what, c := range ends {
		t.Run(what, func(t *testing.T) {
			onWorld(t, 1, func(t *testing.T, s *world) {
				holder, p := s.process("holder", 1), s.process("p", 1)
				held := holder.hold(t.Context())
				session := p.underSession(1)
				errs := make(chan error, 2)
				for range 2 { // the second one waits for its turn in the process
					go func() {
						_, err := p.Acquire(t.Context(), &tenure.AcquireOptions{StoreTimeout: -1})
						errs <- err
					}()
				}
				time.Sleep(lease)
				c.end(t.Context(), p, session)
				begun := time.Now()
				for range 2 {
					err := <-errs
					if !errors.Is(err, c.want) || errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("it took %v", took)
				}
				p.client.Heal()
				holder.release(held)
				if l, err := p.TryAcquire(t.Context(), nil); !errors.Is(err, tenure.ErrSessionClosed) {
					t.Errorf("slot %v, error %v", l, err)
				}
				holder.release(holder.hold(t.Context()))
			})
		})
	}
}

// A Resize waits for slots under a session, and asks for them; it waits for those
// of a crashed one no longer than its lease.
func TestResizeOverASession(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash %v", crash), func(t *testing.T) {
			onWorld(t, 3, func(t *testing.T, s *world) {
				p := s.process("p", 3)
				p.underSession(3)
				leases := p.holdAll(3)
				var stops sync.WaitGroup
				for _, l := range leases {
					stops.Go(func() {
						select {
						case <-l.Context().Done():
						case <-time.After(time.Minute):
						}
						time.Sleep(time.Second) // to put things away
						p.leave(l)
						_ = l.Release(t.Context()) // or it was lost
					})
				}
				if crash {
					p.client.Partition()
				}
				begun := time.Now()
				if err := s.process("operator", 3).Resize(t.Context(), 1, &semaphore.ResizeOptions{StepDown: true}); err != nil {
					t.Error(err)
				}
				took := time.Since(begun)
				if want := map[bool]int{false: 1, true: 0}[crash]; s.holding() != want {
					t.Errorf("%d hold after the resize, want %d", s.holding(), want)
				}
				if crash && took > lease+5*refresh || !crash && took > lease/2 {
					t.Errorf("it took %v", took)
				}
				p.client.Heal()
				stops.Wait()
			})
		})
	}
}

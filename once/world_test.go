// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tenuretest"
)

const (
	name  = "nightly"
	lease = 15 * time.Second // the default
	beat  = 3 * time.Second  // the default
)

// world counts how often the work for a slot was begun, and fails the test when that is
// more than it may be. It notes when the store has begun each period of Every.
type world struct {
	*tenuretest.World
	t    *testing.T
	born time.Time

	twice, unordered bool // a slot may be begun again, and after a later one

	mu     sync.Mutex
	starts map[int64]int
	last   int64
	ledger struct {
		ID string
		N  int64
	}
	periods []time.Duration
}

func newWorld(t *testing.T) *world {
	quiet := func(o *tenure.Options) { o.Logger = slog.New(slog.DiscardHandler) }
	s := &world{World: tenuretest.New(t, quiet), t: t, born: time.Now(), starts: map[int64]int{}, last: -1 << 63}
	s.Observe(func(w tenuretest.Write) {
		s.mu.Lock()
		defer s.mu.Unlock()
		before := s.ledger
		s.ledger.ID = ""
		if json.Unmarshal(w.Next.Data, &s.ledger) == nil && s.ledger.ID == before.ID && s.ledger.N == before.N+1 {
			s.periods = append(s.periods, time.Since(s.born))
		}
	})
	return s
}

// onHosts runs the test in a bubble, with two hosts.
func onHosts(t *testing.T, test func(t *testing.T, s *world, a, b *host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t)
		test(t, s, s.host("a", 1), s.host("b", 1))
	})
}

// work returns work that is counted.
func (s *world) work(work once.Work) once.Work {
	return func(ctx context.Context, turn *once.Turn) error {
		s.mu.Lock()
		slot := turn.Slot()
		if turn.Attempt() == 1 {
			if s.starts[slot]++; s.starts[slot] > 1 && !s.twice {
				s.t.Errorf("slot %d was begun %d times", slot, s.starts[slot])
			}
			if slot < s.last && !s.twice && !s.unordered {
				s.t.Errorf("slot %d was begun after slot %d", slot, s.last)
			}
			s.last = slot
		}
		s.mu.Unlock()
		if err := turn.Check(); err != nil {
			s.t.Errorf("%s begins slot %d: %v", turn.Owner(), slot, err)
		}
		if work == nil {
			return nil
		}
		return work(ctx, turn)
	}
}

func (s *world) count(slot int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts[slot]
}

// host is a client with a clock that runs at a rate of its own.
type host struct {
	*tenuretest.Client
	s *world
}

func (s *world) host(owner string, rate float64, edit ...func(*tenure.Options)) *host {
	h := &host{Client: s.Client(owner, edit...), s: s}
	h.SetRate(rate)
	return h
}

// once runs work for a slot, which is counted.
func (h *host) once(slot int64, o *once.Options, work once.Work) (once.Result, error) {
	return h.onceIn(h.s.t.Context(), slot, o, work)
}

func (h *host) onceIn(ctx context.Context, slot int64, o *once.Options, work once.Work) (once.Result, error) {
	return once.Once(ctx, h.Client.Client, name, slot, o, h.s.work(work))
}

// begins has the host begin work in the background, and returns when it is at work.
func (h *host) begins(slot int64, o *once.Options, work once.Work) {
	go func() { _, _ = h.once(slot, o, work) }()
	synctest.Wait()
}

// dies has the host begin the slot, and crash in the middle of it.
func (h *host) dies(slot int64) {
	h.begins(slot, nil, func(ctx context.Context, _ *once.Turn) error {
		h.Partition()
		<-ctx.Done()
		return ctx.Err()
	})
}

func (h *host) show() once.Status {
	h.s.t.Helper()
	st, err := once.Show(h.s.t.Context(), h.Client.Client, name)
	if err != nil {
		h.s.t.Fatal(err)
	}
	return st
}

// takes is work that takes that long, and ends with its context.
func takes(d time.Duration) once.Work {
	return func(ctx context.Context, _ *once.Turn) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func as[E error](t *testing.T, err error) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("error %v, want a %T", err, e)
	}
	return e
}

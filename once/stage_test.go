// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/once"
)

const (
	name  = "nightly"
	lease = 15 * time.Second // the default
	beat  = 3 * time.Second  // the default
)

// stage is where hosts act, inside a synctest bubble. It counts how often the work
// for a slot was begun, and fails the test when that is more than it may be.
type stage struct {
	t       *testing.T
	records *memstore.Store
	born    time.Time

	mu     sync.Mutex
	starts map[int64]int
	last   int64

	twice, unordered bool // a slot may be begun again, and after a later one
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{t: t, records: memstore.New(), born: time.Now(), starts: map[int64]int{}, last: -1 << 63}
}

// began notes that work for a slot was begun.
func (s *stage) began(slot int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starts[slot]++; s.starts[slot] > 1 && !s.twice {
		s.t.Errorf("slot %d was begun %d times", slot, s.starts[slot])
	}
	if slot < s.last && !s.twice && !s.unordered {
		s.t.Errorf("slot %d was begun after slot %d", slot, s.last)
	}
	s.last = slot
}

func (s *stage) count(slot int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts[slot]
}

// clock is an elapsed clock that runs at a rate of its own. Stepped adds to what a
// holder counts, as a step of the wall clock does.
type clock struct {
	born time.Time
	rate float64

	mu      sync.Mutex
	stepped time.Duration
}

func (c *clock) Contender() time.Duration {
	return time.Duration(c.rate * float64(time.Since(c.born)))
}

func (c *clock) Holder() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Contender() + c.stepped
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stepped += d
}

// host is a client on a store that can fail.
type host struct {
	s      *stage
	owner  string
	clock  *clock
	client *tenure.Client
	faults *faultstore.Store
}

// host starts a host whose elapsed clock runs at a rate.
func (s *stage) host(owner string, rate float64, edit ...func(*tenure.Options)) *host {
	s.t.Helper()
	h := s.newHost(owner, rate, edit...)
	s.t.Cleanup(h.close)
	return h
}

func (s *stage) newHost(owner string, rate float64, edit ...func(*tenure.Options)) *host {
	s.t.Helper()
	h := &host{s: s, owner: owner, faults: faultstore.New(s.records.Open(), nil), clock: &clock{born: s.born, rate: rate}}
	o := &tenure.Options{Owner: owner, Clock: h.clock}
	for _, e := range edit {
		e(o)
	}
	var err error
	if h.client, err = tenure.New(h.faults.Driver(), o); err != nil {
		s.t.Fatal(err)
	}
	return h
}

func (h *host) close() {
	h.faults.SetBlackHole(false)
	if err := h.client.Close(context.WithoutCancel(h.s.t.Context())); err != nil && !errors.Is(err, tenure.ErrClosed) {
		h.s.t.Errorf("close of %s: %v", h.owner, err)
	}
	h.faults.Close()
}

// discard takes a killed host off the stage. Nothing of it reaches the store.
func (h *host) discard() {
	_ = h.faults.Close()
	_ = h.client.Close(context.WithoutCancel(h.s.t.Context()))
}

// crash cuts a host off for good, as if it were killed: nothing that it does reaches
// the store any more.
func (h *host) crash() { h.faults.SetBlackHole(true) }

// once runs work for a slot, which is counted.
func (h *host) once(slot int64, o *once.Options, work once.Work) (once.Result, error) {
	return h.onceIn(h.s.t.Context(), slot, o, work)
}

// quietly is once for what ends in a way that is no matter of the test.
func (h *host) quietly(slot int64, o *once.Options, work once.Work) { _, _ = h.once(slot, o, work) }

func (h *host) onceIn(ctx context.Context, slot int64, o *once.Options, work once.Work) (once.Result, error) {
	return once.Once(ctx, h.client, name, slot, o, func(ctx context.Context, turn *once.Turn) error {
		if turn.Attempt() == 1 {
			h.s.began(turn.Slot())
		}
		if err := turn.Check(); err != nil {
			h.s.t.Errorf("%s begins slot %d: %v", h.owner, turn.Slot(), err)
		}
		if work == nil {
			return nil
		}
		return work(ctx, turn)
	})
}

func (h *host) show() once.Status {
	h.s.t.Helper()
	st, err := once.Show(h.s.t.Context(), h.client, name)
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tenuretest"
)

const (
	name  = "nightly"
	lease = 15 * time.Second // the default
	beat  = 3 * time.Second  // the default
)

// host is a client whose work is counted.
type host struct {
	*tenuretest.Client
	s *world
}

func (s *world) host(owner string, edit ...func(*tenure.Options)) *host {
	return &host{s.Client(owner, edit...), s}
}

func quiet(o *tenure.Options) { o.Logger = slog.New(slog.DiscardHandler) }

// onHosts runs the test in a bubble, with two hosts.
func onHosts(t *testing.T, test func(t *testing.T, s *world, a, b *host)) {
	t.Helper()
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		s := newWorld(t, w)
		test(t, s, s.host("a"), s.host("b"))
	}, quiet)
}

// once runs work for a slot.
func (h *host) once(slot int64, o *once.Options, work once.Work) (once.Result, error) {
	return once.Once(h.s.t.Context(), h.Client.Client, name, slot, o, h.s.work(work))
}

// begins has the host begin work in the background, and returns when it is at work.
func (h *host) begins(slot int64, o *once.Options, work once.Work) {
	go func() { _, _ = h.once(slot, o, work) }()
	synctest.Wait()
}

// dies has the host begin the slot, and crash in the middle of it.
func (h *host) dies(slot int64) {
	h.begins(slot, nil, takes(time.Hour))
	h.Partition()
}

func (h *host) show() once.Status {
	h.s.t.Helper()
	return testutil.Must(once.Show(h.s.t.Context(), h.Client.Client, name))(h.s.t)
}

func (s *world) count(slot int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts[slot]
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

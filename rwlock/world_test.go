// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/tenuretest"
)

// world fails the test when a process writes beside another.
type world struct {
	*tenuretest.World
	t    *testing.T
	mu   sync.Mutex
	held []*rwlock.Lease
}

// onWorld runs the test in a bubble, with a world.
func onWorld(t *testing.T, test func(t *testing.T, s *world)) {
	t.Helper()
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) { test(t, &world{World: w, t: t}) })
}

// got returns the lease, whose holder is at work until it releases or loses the lease.
func (s *world) got(l *rwlock.Lease, err error) *rwlock.Lease {
	s.t.Helper()
	testutil.Must(l, err)(s.t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = slices.DeleteFunc(s.held, func(l *rwlock.Lease) bool { return errors.Is(l.Check(), tenure.ErrReleased) })
	for _, other := range s.held {
		if other.Check() == nil && l.Check() == nil && (l.Writing() || other.Writing()) {
			s.t.Errorf("one lease has %d, beside another with %d", l.Token(), other.Token())
		}
	}
	s.held = append(s.held, l)
	return l
}

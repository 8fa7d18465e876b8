// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tenuretest"
)

type (
	world   = tenuretest.World
	machine = tenuretest.Client
)

// The timing of a client with the defaults.
const (
	lease          = 15 * time.Second
	heartbeat      = lease / 5
	refresh        = time.Second
	requestTimeout = lease / 10
)

// inWorld runs the test in a bubble, with a world.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) { t.Helper(); inPages(t, 0, test) }

// inPages is inWorld where a list has pages of the given size, 0 for the store's own.
func inPages(t *testing.T, size int, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		records := memstore.New()
		records.PageSize = size
		w := tenuretest.On(t, func() driver.Store { return records.Open() })
		w.BoundReads(12)
		test(t, w)
	})
}

func mustOpen(m *machine) *tenure.Session {
	t := m.World().T()
	t.Helper()
	return testutil.Must(m.OpenSession(t.Context(), nil))(t)
}

func mustRelease(m *machine, l *tenure.Lease) {
	t := m.World().T()
	t.Helper()
	testutil.Want(t, l.Release(t.Context()), nil)
}

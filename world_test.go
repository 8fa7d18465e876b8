// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tenuretest"
)

type (
	world   = tenuretest.World
	machine = tenuretest.Client
)

// The default timing of a client, and how long after sending a confirmed write its holder
// may act: the lease less a drift of 9 % and the grace.
const (
	lease, heartbeat, refresh   = 15 * time.Second, lease / 5, time.Second
	requestTimeout, stopTimeout = lease / 10, lease

	usable = lease*(100-9)/(100+9) - lease/8
)

// newWorld returns a world on the engine, or in memory.
func newWorld(t *testing.T) *world {
	if engine != nil {
		return worldOn(t, engine(t))
	}
	records := memstore.New()
	return worldOn(t, func() driver.Store { return records.Open() })
}

func worldOn(t *testing.T, open func() driver.Store) *world {
	w := tenuretest.On(t, open, func(o *tenure.Options) {
		o.Host, o.Logger = "host-of-"+o.Owner, slog.New(slog.DiscardHandler)
	})
	if engine == nil { // there a second is one of the machine's
		w.BoundReads(12) // looks are a refresh period apart; the rest is for what tests ask for
	}
	return w
}

// inWorld runs the test in a bubble, with a world; inWorldRun a subtest.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

func inWorldRun(t *testing.T, name string, test func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) { inWorld(t, test) })
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// patience bounds the wait for events that must come.
const patience = time.Minute

// TestServers runs the suite on an ensemble of three, each client at a server of its own.
func TestServers(t *testing.T) {
	servers := enginetest.StartZooKeeper(t, 3, "forceSync=no")
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		root := rootOf(t)
		h := harness(t, root, servers[0].Addr)
		h.Ops = 100
		for _, z := range servers {
			h.Servers = append(h.Servers, func(t *testing.T) driver.Store { return mustOpen(t, root, z.Addr) })
		}
		return h
	})
}

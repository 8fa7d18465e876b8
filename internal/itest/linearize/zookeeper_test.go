// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize_test

import (
	"crypto/rand"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/itest/linearize"
	"github.com/tenurelock/tenure/zkstore"
)

// Each client is at a server of its own. ZooKeeper answers a transaction that cannot be
// carried out with a code alone: what stands in the way is read behind it.
func TestZooKeeper(t *testing.T) {
	servers := enginetest.StartZooKeeper(t, 3, "forceSync=no")
	root, next := "/test-"+rand.Text(), 0
	linearize.Check(t, func(t *testing.T) driver.Store {
		next++
		s, err := zkstore.Open(t.Context(), []string{servers[next%len(servers)].Addr}, &zkstore.Options{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, &linearize.Options{ConflictsReadLater: true})
}

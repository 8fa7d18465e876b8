// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// patience bounds what must come.
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

// TestLeaderKilledUnderLoad kills the leader again and again. No lock has two holders,
// and no token is given twice.
func TestLeaderKilledUnderLoad(t *testing.T) {
	servers := enginetest.StartZooKeeper(t, 3)
	var hosts []string
	for _, z := range servers {
		hosts = append(hosts, z.Addr)
	}
	root := rootOf(t)
	var book enginetest.Ledger
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i := range 6 {
		client, err := tenure.New(mustOpen(t, root, hosts...), &tenure.Options{Owner: fmt.Sprint("w", i), LeaseDuration: 4 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		working.Go(func() {
			defer client.Close(context.WithoutCancel(ctx))
			for ctx.Err() == nil {
				lease, err := client.Acquire(ctx, "lock", &tenure.AcquireOptions{StoreTimeout: -1})
				if err != nil {
					continue
				}
				book.Enter(t, lease) // it works until the next one comes, or it releases the lock
				_ = lease.Release(context.WithoutCancel(ctx))
			}
		})
	}
	for range 3 {
		before := book.Count()
		eventually(t, "tenures", func(context.Context) error {
			if book.Count() < before+5 {
				return errors.New("too few")
			}
			return nil
		})
		eventually(t, "a leader to be killed", func(context.Context) error {
			for _, z := range servers {
				if z.Mode() == "leader" {
					z.Kill()
					z.Start()
					return nil
				}
			}
			return errors.New("there is none")
		})
	}
	stop()
	working.Wait()
	t.Logf("%d tenures", book.Count())
}

// eventually tries until there is no error.
func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err = try(ctx)
		cancel()
		if err == nil {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Fatalf("%s did not come: %v", what, err)
}

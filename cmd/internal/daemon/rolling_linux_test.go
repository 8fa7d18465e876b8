// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestRollingRestart restarts three replicas, one after the other, while 1000 programs hold
// a lock each: none of them loses it.
func TestRollingRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute: run without -short")
	}
	testRollingRestart(t, newFleet(t, 3, "--lease", "60s", "--heartbeat", "3s", "--drain", "2s"))
}

// TestPostgresRollingRestart is the same on the store of the Compose file.
func TestPostgresRollingRestart(t *testing.T) {
	database := enginetest.Database(t, enginetest.PostgreSQL(t))
	if out, err := exec.CommandContext(t.Context(), "tenure", "table", "create", "--store", database).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	testRollingRestart(t, newFleetOn(t, database, 3, "--lease", "60s", "--heartbeat", "3s", "--drain", "2s"))
}

func testRollingRestart(t *testing.T, f *fleet) {
	const holders = 1000
	c := newCaller(f.token, nil, f.balance())
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()

	var failed, retried atomic.Int64
	fail := func(what, name string, err error) {
		if failed.Add(1) <= 5 {
			t.Errorf("%s of %s: %v", what, name, err)
		}
	}
	all := make([]*held, holders)
	each(all, 32, func(i int) {
		h, err := c.acquire(ctx, fmt.Sprintf("lock-%04d", i), fmt.Sprintf("holder-%d", i), 0)
		if err != nil {
			fail("acquire", fmt.Sprint(i), err)
		}
		all[i] = h
	})
	if failed.Load() > 0 {
		t.FailNow()
	}

	keeping, stop := context.WithCancel(ctx)
	var keepers sync.WaitGroup
	for _, h := range all {
		keepers.Go(func() {
			if err := h.keep(ctx, keeping); err != nil {
				fail("keeping", h.Name, err)
			}
		})
	}
	waited := make(chan error, 1)
	go func() { // it is told to ask elsewhere by each replica, and has the lock in the end
		h, err := c.acquire(ctx, all[0].Name, "waiter", 20*time.Second)
		if err == nil {
			err = h.release(ctx)
		}
		waited <- err
	}()

	begun := time.Now()
	for _, r := range f.all {
		r.stop(syscall.SIGTERM, 0)
		r.start()
	}
	restarted := time.Since(begun)
	// Each holder has sent some heartbeats meanwhile, and sends two more.
	pause(ctx, 2*all[0].beat)
	stop()
	keepers.Wait()

	least, reasons := all[0].least, map[string]int{}
	for _, h := range all {
		least = min(least, h.least)
		for _, why := range h.again {
			reasons[why]++
		}
		retried.Add(int64(len(h.again)))
	}
	tokens := f.tokens(c)
	for _, h := range all {
		if tokens[h.Name] != 1 {
			fail("token", h.Name, fmt.Errorf("%d", tokens[h.Name]))
		}
	}
	each(all, 32, func(i int) {
		if err := all[i].renew(ctx); err != nil {
			fail("last heartbeat", all[i].Name, err)
		}
		if err := all[i].release(ctx); err != nil {
			fail("release", all[i].Name, err)
		}
	})
	if err := <-waited; err != nil {
		t.Error("the waiter:", err)
	}
	t.Logf("%d holders, 3 restarts in %v: %d have failed, %d heartbeats were sent again %v, and no lease had less than %v left of %v",
		holders, restarted.Round(100*time.Millisecond), failed.Load(), retried.Load(), reasons, least.Round(100*time.Millisecond), all[0].lease)
	if failed.Load() > 0 || len(tokens) != holders {
		t.Error(errors.New("not all locks were kept"))
	}
}

// each calls work for all of them, several at once.
func each(all []*held, atOnce int, work func(i int)) {
	var working sync.WaitGroup
	next := atomic.Int64{}
	for range atOnce {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	working.Wait()
}

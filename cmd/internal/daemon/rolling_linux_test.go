// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestRollingRestart restarts three replicas, one after the other, while 1000 programs hold
// a lock each: none of them loses it.
func TestRollingRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute: run without -short")
	}
	f := newFleet(t, 3, "--lease", "60s", "--heartbeat", "3s", "--drain", "2s")
	const holders = 1000
	c := newCaller(f.token, nil, f.balance())
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()

	var failed atomic.Int64
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
	var renewals sync.WaitGroup
	for _, h := range all {
		renewals.Go(func() {
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

	for _, r := range f.all {
		r.stop(syscall.SIGTERM, 0)
		r.start()
	}
	// Each holder has sent some heartbeats meanwhile, and sends two more.
	pause(ctx, 2*all[0].beat)
	stop()
	renewals.Wait()

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

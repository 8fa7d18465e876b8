// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
)

// On the clocks of this machine: nothing runs after Close. In a bubble
// synctest itself sees to that, in all tests of package tenure.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	ctx, records := t.Context(), memstore.New()
	var clients [2]*tenure.Client
	for i := range clients {
		c, err := tenure.New(records.Open(), &tenure.Options{
			LeaseDuration: time.Second, StopTimeout: 50 * time.Millisecond, OnEvent: func(tenure.Event) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		clients[i] = c
	}
	a, b := clients[0], clients[1]
	for i := range 100 {
		l, err := a.Acquire(ctx, fmt.Sprint(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			forgotten, _ := l.Bind(ctx) // the lease ends it
			_ = forgotten
			_ = l.Release(ctx)
		}
	}
	for range 20 {
		go func() { _, _ = b.Acquire(ctx, "1", nil) }()
		go func() {
			for _, err := range b.Election("1", nil).Observe(ctx) {
				_ = err
			}
		}()
	}
	for _, c := range clients {
		go func() {
			_ = c.Election("x", nil).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
	}
	for i := len(clients) - 1; i >= 0; i-- {
		// Leases that no caller released are left behind, and reported.
		if err := clients[i].Close(ctx); errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	goleak.VerifyNone(t, ignore)
}

// Close meets everything else at once, on real clocks, for the race detector.
func TestCloseRacesWithEverything(t *testing.T) {
	for range 30 {
		records := memstore.New()
		// Far more than a busy machine needs: what is not released was forgotten.
		c, err := tenure.New(records, &tenure.Options{LeaseDuration: time.Minute, StopTimeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		var all sync.WaitGroup
		for i := range 16 {
			name := fmt.Sprint(i % 3)
			all.Go(func() {
				for {
					l, err := c.TryAcquire(ctx, name, nil)
					if errors.Is(err, tenure.ErrClosed) {
						return
					}
					if err != nil {
						continue
					}
					if l.Check() == nil {
						_ = l.SetData(ctx, []byte(name))
					}
					_ = l.Renew(ctx)
					if err := l.Release(ctx); errors.Is(err, tenure.ErrLost) {
						t.Error(err)
					}
				}
			})
			all.Go(func() {
				for {
					if err := c.Run(ctx, name, nil, func(context.Context, *tenure.Lease) error { return nil }); err != nil {
						return
					}
				}
			})
			all.Go(func() {
				for {
					if _, err := c.Status(ctx, name); err != nil {
						return
					}
				}
			})
			all.Go(func() {
				for _, err := range c.Election(name, nil).Observe(ctx) {
					_ = err
				}
			})
		}
		for range 2000 {
			runtime.Gosched()
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}

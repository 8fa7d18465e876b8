// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// BenchmarkAcquireRelease takes and releases locks, each goroutine one of its own, through
// the whole of the library and by etcd's own mutex, whose session stands before. An
// operation is a pair.
func BenchmarkAcquireRelease(b *testing.B) {
	address := enginetest.Shared(b, enginetest.Etcd, "etcd")
	for _, goroutines := range []int{1, 32} {
		b.Run(fmt.Sprintf("tenure/goroutines=%d", goroutines), func(b *testing.B) {
			c, err := tenure.New(mustOpen(b, fmt.Sprintf("bench/%d/%d/", goroutines, b.N), address), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close(context.WithoutCancel(b.Context()))
			pairs(b, goroutines, func(i int) func() error {
				name := fmt.Sprint("lock-", i)
				return func() error {
					l, err := c.Acquire(b.Context(), name, nil)
					if err != nil {
						return err
					}
					return l.Release(b.Context())
				}
			})
		})
		b.Run(fmt.Sprintf("mutex/goroutines=%d", goroutines), func(b *testing.B) {
			client := mustOpen(b, "bench/", address).client
			session, err := concurrency.NewSession(client)
			if err != nil {
				b.Fatal(err)
			}
			defer session.Close()
			pairs(b, goroutines, func(i int) func() error {
				m := concurrency.NewMutex(session, fmt.Sprint("bench/mutex/", i))
				return func() error {
					if err := m.Lock(b.Context()); err != nil {
						return err
					}
					return m.Unlock(b.Context())
				}
			})
		})
	}
}

// pairs has goroutines make b.N pairs together.
func pairs(b *testing.B, goroutines int, of func(i int) func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range goroutines {
		pair := of(i)
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := pair(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// BenchmarkAcquireRelease takes and releases locks, each goroutine one of its own: through
// the whole of the library, by the store alone, by two plain updates that are as durable,
// and by PostgreSQL's advisory locks, which are not: they have no token, and end with their
// connection. An operation is a pair. The server flushes, as an engine in use does.
func BenchmarkAcquireRelease(b *testing.B) {
	server := enginetest.StartPostgreSQL(b, "fsync=on", "full_page_writes=on")
	schema, _ := Schema("")
	mustExec(b, server.URL, schema)
	mustExec(b, server.URL, "CREATE TABLE plain (key text PRIMARY KEY, owner text) WITH (fillfactor = 50)")
	for _, goroutines := range []int{1, 32} {
		url := with(b, server.URL, "pool_max_conns", fmt.Sprint(goroutines))
		name := func(i int) string { return fmt.Sprintf("lock-%d-%d", goroutines, i) }
		b.Run(fmt.Sprintf("tenure/goroutines=%d", goroutines), func(b *testing.B) {
			c, err := tenure.New(mustOpen(b, url), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close(context.WithoutCancel(b.Context()))
			pairs(b, goroutines, func(i int) func() error {
				return func() error {
					l, err := c.Acquire(b.Context(), name(i), nil)
					if err != nil {
						return err
					}
					return l.Release(b.Context())
				}
			})
		})
		b.Run(fmt.Sprintf("store/goroutines=%d", goroutines), func(b *testing.B) {
			s := mustOpen(b, url)
			pairs(b, goroutines, func(i int) func() error {
				n := 0
				return func() error {
					n++
					rec := held("store-" + name(i))
					rec.Version = fmt.Sprintf("%s-%d", rec.Version, n)
					rec, _, err := s.Claim(b.Context(), rec)
					if err != nil {
						return err
					}
					next := released(rec)
					next.Version = fmt.Sprintf("%s-%d-r", next.Version, n)
					_, err = s.Swap(b.Context(), rec, next)
					return err
				}
			})
		})
		b.Run(fmt.Sprintf("updates/goroutines=%d", goroutines), func(b *testing.B) {
			pool := mustOpen(b, url).pool
			pairs(b, goroutines, func(i int) func() error {
				if _, err := pool.Exec(b.Context(), "INSERT INTO plain VALUES ($1, '') ON CONFLICT DO NOTHING", name(i)); err != nil {
					return func() error { return err }
				}
				return func() error {
					for _, owner := range []string{"me", ""} {
						if _, err := pool.Exec(b.Context(), "UPDATE plain SET owner = $2 WHERE key = $1", name(i), owner); err != nil {
							return err
						}
					}
					return nil
				}
			})
		})
		b.Run(fmt.Sprintf("advisory/goroutines=%d", goroutines), func(b *testing.B) {
			pool := mustOpen(b, url).pool
			pairs(b, goroutines, func(i int) func() error {
				return func() error {
					conn, err := pool.Acquire(b.Context())
					if err != nil {
						return err
					}
					defer conn.Release()
					if _, err := conn.Exec(b.Context(), "SELECT pg_advisory_lock($1)", i); err != nil {
						return err
					}
					_, err = conn.Exec(b.Context(), "SELECT pg_advisory_unlock($1)", i)
					return err
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// Each goroutine has a lock of its own, as a process with many leases does.
func benchmark(b *testing.B, op func(s *Store, rec driver.Record) (driver.Record, error)) {
	for _, mode := range []struct{ name, sync string }{{"asis", ""}, {"full", syncFull}, {"normal", syncNormal}} {
		for _, workers := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", mode.name, workers), func(b *testing.B) {
				s := mustOpen(b, filepath.Join(b.TempDir(), "locks.db"))
				s.forceSync = mode.sync
				recs := make([]driver.Record, workers)
				for i := range recs {
					recs[i] = enginetest.Claim(b, s, held(fmt.Sprintf("lock-%04d", i), "a"))
				}
				b.ResetTimer()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for _, rec := range recs {
					wg.Go(func() {
						var err error
						for left.Add(-1) >= 0 {
							if rec, err = op(s, rec); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	benchmark(b, func(s *Store, rec driver.Record) (driver.Record, error) {
		return s.Swap(b.Context(), rec, next(rec))
	})
}

func BenchmarkReleaseClaim(b *testing.B) {
	benchmark(b, func(s *Store, rec driver.Record) (driver.Record, error) {
		rec, err := s.Swap(b.Context(), rec, released(rec))
		if err == nil {
			rec, _, err = s.Claim(b.Context(), held(rec.Key, "a"))
		}
		return rec, err
	})
}

// BenchmarkHeartbeatLongData shows whether a heartbeat rewrites data that stay.
func BenchmarkHeartbeatLongData(b *testing.B) {
	s := mustOpen(b, filepath.Join(b.TempDir(), "locks.db"))
	rec := held("k", "a")
	rec.Data = make([]byte, driver.MaxDataLen)
	rec = enginetest.Claim(b, s, rec)
	b.ResetTimer()
	for b.Loop() {
		rec = enginetest.Swap(b, s, rec, next(rec))
	}
}

func BenchmarkGet(b *testing.B) {
	s := mustOpen(b, filepath.Join(b.TempDir(), "locks.db"))
	enginetest.Claim(b, s, held("k", "a"))
	b.ResetTimer()
	for b.Loop() {
		enginetest.Get(b, s, "k")
	}
}

// BenchmarkClaimHeld is a claim that finds the lock held.
func BenchmarkClaimHeld(b *testing.B) {
	s := mustOpen(b, filepath.Join(b.TempDir(), "locks.db"))
	enginetest.Claim(b, s, held("k", "a"))
	b.ResetTimer()
	for b.Loop() {
		if _, _, err := s.Claim(b.Context(), held("k", "b")); err == nil {
			b.Fatal("claimed")
		}
	}
}

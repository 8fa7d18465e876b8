// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tenurelock/tenure"
)

// BenchmarkAcquireRelease takes and releases locks through the whole of the
// library, each goroutine one of its own. An operation is a pair.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, workers := range []int{1, 32} {
		b.Run(fmt.Sprintf("goroutines=%d", workers), func(b *testing.B) {
			s := mustOpen(b, filepath.Join(b.TempDir(), "locks.db"))
			c, err := tenure.New(s, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = c.Close(b.Context()) }() // nothing is held
			b.ResetTimer()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for i := range workers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						l, err := c.Acquire(b.Context(), fmt.Sprintf("lock-%04d", i), nil)
						if err != nil {
							b.Error(err)
							return
						}
						if err := l.Release(b.Context()); err != nil {
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

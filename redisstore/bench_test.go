// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// BenchmarkPairs claims and releases a lock: one after the other, and 32 locks at once.
func BenchmarkPairs(b *testing.B) {
	server := enginetest.StartRedis(b)
	s := created(b, server.Addr, Options{})
	for _, n := range []int{1, 32} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			begin := cpu(b, server.Addr)
			defer func() {
				b.ReportMetric(float64((cpu(b, server.Addr)-begin).Nanoseconds())/float64(b.N), "server-ns/op")
			}()
			b.SetParallelism(n) // of each processor
			if n == 1 {
				for b.Loop() {
					pair(b, s, "one")
				}
				return
			}
			b.RunParallel(func(p *testing.PB) {
				key := fresh()
				for p.Next() {
					pair(b, s, key)
				}
			})
		})
	}
}

// cpu is the time of a processor that the server has used.
func cpu(b *testing.B, addr string) (sum time.Duration) {
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info(b, addr, "cpu", name), 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}

func pair(b *testing.B, s *Store, key string) {
	rec := mustClaim(b, s, held(key))
	mustSwap(b, s, rec, next(rec, driver.Released))
}

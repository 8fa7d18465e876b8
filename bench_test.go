// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

// checked returns a lease on the clocks of this machine, whose store answers,
// or whose heartbeat hangs. It beats ten times a second.
func checked(tb testing.TB, hangs bool) *tenure.Lease {
	tb.Helper()
	store := faultstore.New(memstore.New(), nil)
	c := testutil.Must(tenure.New(store.Driver(), &tenure.Options{
		LeaseDuration: time.Hour, HeartbeatPeriod: time.Second / 10,
	}))(tb)
	tb.Cleanup(func() { store.Close() })
	l, err := c.Acquire(tb.Context(), "x", nil)
	if err != nil {
		tb.Fatal(err)
	}
	if hangs {
		hung := make(chan struct{})
		store.Inject(faultstore.Rule{Count: 1, Decide: func(faultstore.Call) faultstore.Fault {
			close(hung)
			return faultstore.BlackHole()
		}})
		<-hung
	}
	return l
}

func TestCheckAllocatesNothing(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		l := checked(t, hangs)
		if n := testing.AllocsPerRun(1000, func() {
			if err := l.Check(); err != nil {
				t.Fatal(err)
			}
			_ = l.Remaining()
		}); n > 0.1 { // a heartbeat in between allocates
			t.Errorf("%v allocations", n)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	b.Run("time.Now", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = time.Now()
		}
	})
	for _, hangs := range []bool{false, true} {
		b.Run(fmt.Sprint("hanging heartbeat ", hangs), func(b *testing.B) {
			l := checked(b, hangs)
			b.ReportAllocs()
			for b.Loop() {
				if l.Check() != nil {
					b.Fatal("lost")
				}
			}
		})
	}
	b.Run("parallel", func(b *testing.B) {
		l := checked(b, false)
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if l.Check() != nil {
					b.Error("lost")
				}
			}
		})
	})
}

func BenchmarkAcquireRelease(b *testing.B) {
	for _, bench := range []struct {
		name       string
		goroutines int
		session    bool
		key        func(i int) string
	}{
		{"1 goroutine", 1, false, func(int) string { return "x" }},
		{"1 goroutine under a session", 1, true, func(int) string { return "x" }},
		{"32 goroutines 32 keys", 32, false, func(i int) string { return fmt.Sprint("x", i) }},
		{"32 goroutines 1 key", 32, false, func(int) string { return "x" }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			c, err := tenure.New(memstore.New(), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close(b.Context())
			acquire := c.Acquire
			if bench.session {
				s, err := c.OpenSession(b.Context(), nil)
				if err != nil {
					b.Fatal(err)
				}
				acquire = s.Acquire
			}
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for i := range bench.goroutines {
				all.Go(func() {
					key := bench.key(i)
					for n := i; n < b.N; n += bench.goroutines {
						l, err := acquire(b.Context(), key, nil)
						if err == nil {
							err = l.Release(b.Context())
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// BenchmarkTenThousandLocks holds 10,000 locks for two lease durations of 15 s
// in real time, over a store whose calls take 10 ms each.
func BenchmarkTenThousandLocks(b *testing.B) {
	const locks = 10_000
	for b.Loop() {
		store := &far{Store: memstore.New(), away: 10 * time.Millisecond}
		var lost atomic.Int64
		before, base := memory(), runtime.NumGoroutine()
		c, err := tenure.New(store, &tenure.Options{OnEvent: func(e tenure.Event) {
			if e.Kind == tenure.EventLost {
				lost.Add(1)
			}
		}})
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		leases := acquireAll(b, c, locks)
		b.ReportMetric(time.Since(start).Seconds(), "s-to-acquire")
		after, busy, most := memory(), cpu(), 0
		tick := time.NewTicker(time.Second / 10)
		for start = time.Now(); time.Since(start) < 2*lease; <-tick.C {
			most = max(most, runtime.NumGoroutine()-base-int(store.underWay.Load()))
		}
		tick.Stop()
		b.ReportMetric(100*(cpu()-busy)/time.Since(start).Seconds(), "%-of-a-cpu")
		b.ReportMetric(float64(most), "goroutines")
		b.ReportMetric(float64(store.most.Load()), "requests-at-once")
		b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/locks, "B/lock")
		for _, l := range leases {
			if err := l.Check(); err != nil {
				b.Error(err)
			}
		}
		releaseAll(b, leases)
		if err := c.Close(b.Context()); err != nil {
			b.Error(err)
		}
		b.ReportMetric(float64(lost.Load()), "lost")
	}
}

// BenchmarkHeapOfALock holds 10,000 locks, each with its own lease or all under one session. It
// does not count the memory of the store.
func BenchmarkHeapOfALock(b *testing.B) {
	const locks = 10_000
	for _, session := range []bool{false, true} {
		b.Run(fmt.Sprint("session ", session), func(b *testing.B) {
			for b.Loop() {
				store := memstore.New()
				c := testutil.Must(tenure.New(store, nil))(b)
				acquire := c.Acquire
				if session {
					s, err := c.OpenSession(b.Context(), nil)
					if err != nil {
						b.Fatal(err)
					}
					acquire = s.Acquire
				}
				leases := make([]*tenure.Lease, locks)
				for i := range leases {
					l, err := acquire(b.Context(), fmt.Sprint("job-", i), nil)
					if err != nil {
						b.Fatal(err)
					}
					leases[i] = l
				}
				held := memory()
				releaseAll(b, leases)
				clear(leases)
				if err := c.Close(b.Context()); err != nil {
					b.Error(err)
				}
				b.ReportMetric((float64(held.HeapAlloc)-float64(memory().HeapAlloc))/locks, "B/lock")
				runtime.KeepAlive(store)
			}
		})
	}
}

// memory returns what the heap holds after a collection.
func memory() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// cpu returns how many seconds of processor time the program has used.
func cpu() float64 {
	runtime.GC() // the figures are of the end of the last collection
	s := []metrics.Sample{{Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64() - s[1].Value.Float64()
}

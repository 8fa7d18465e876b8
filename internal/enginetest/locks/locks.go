// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package locks measures ways to lock beside each other, in one run: this library, and the
// locks that engines and other clients bring.
package locks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

// Way is a way to lock, which is measured beside others.
type Way struct {
	Name string
	// Client makes a client of its own, which ends with the benchmark. What it returns
	// makes a lock of a name, for one goroutine.
	Client func(b *testing.B) func(name string) Lock
}

// Lock is taken and released. Take waits until it has the lock.
type Lock struct{ Take, Release func(context.Context) error }

// Tenure is the way of this library, on stores that open makes.
func Tenure(open func(b *testing.B) driver.Store) Way {
	return Way{"tenure", func(b *testing.B) func(string) Lock {
		c, err := tenure.New(open(b), nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close(context.WithoutCancel(b.Context())) })
		return func(name string) Lock {
			var l *tenure.Lease
			return Lock{
				func(ctx context.Context) (err error) {
					l, err = c.Acquire(ctx, name, nil)
					return err
				},
				func(ctx context.Context) error { return l.Release(ctx) },
			}
		}
	}}
}

// Pairs takes and releases locks: one client, and each goroutine one lock of its own.
// An operation is a pair.
func Pairs(b *testing.B, ways ...Way) {
	for _, goroutines := range []int{1, 32} {
		for _, way := range ways {
			b.Run(fmt.Sprintf("%s/goroutines=%d", way.Name, goroutines), func(b *testing.B) {
				newLock := way.Client(b)
				pairs(b, goroutines, func(i int) Lock { return newLock(fmt.Sprintf("pairs-%d-%d", goroutines, i)) })
			})
		}
	}
}

// pairs has goroutines do b.N pairs together. Each does one before, which is not counted: the
// first may make something that stays.
func pairs(b *testing.B, goroutines int, newLock func(i int) Lock) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	ready.Add(goroutines)
	for i := range goroutines {
		lock := newLock(i)
		pair := func() error {
			if err := lock.Take(b.Context()); err != nil {
				return err
			}
			return lock.Release(b.Context())
		}
		done.Go(func() {
			err := pair()
			ready.Done()
			<-begin
			for err == nil && left.Add(-1) >= 0 {
				err = pair()
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	ready.Wait()
	b.ResetTimer()
	close(begin)
	done.Wait()
}

// settled is how long a waiter has until it waits. A watch of etcd may tell nothing in its
// first tenth of a second.
const settled = 150 * time.Millisecond

// HandOver measures from a release to the grant at another client, which waits. The
// metric is the median.
func HandOver(b *testing.B, ways ...Way) {
	for _, way := range ways {
		b.Run(way.Name, func(b *testing.B) {
			holders := [2]Lock{way.Client(b)("hand-over"), way.Client(b)("hand-over")}
			if err := holders[0].Take(b.Context()); err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				from, to := holders[i%2], holders[(i+1)%2]
				granted := make(chan error, 1)
				var at time.Time
				go func() {
					err := to.Take(b.Context())
					at = time.Now()
					granted <- err
				}()
				<-time.After(settled)
				begun := time.Now()
				if err := from.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
				if err := <-granted; err != nil {
					b.Fatal(err)
				}
				took = append(took, at.Sub(begun))
			}
			if err := holders[len(took)%2].Release(b.Context()); err != nil {
				b.Error(err)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-median")
			b.ReportMetric(0, "ns/op") // mostly settled
		})
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zookeeper_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/zkstore"
)

// BenchmarkAcquireRelease takes and releases locks, each goroutine one of its own: through
// the whole of the library, through the store alone, and by the lock of another client,
// whose session stands before. An operation is a pair.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, goroutines := range []int{1, 32} {
		b.Run(fmt.Sprintf("tenure/goroutines=%d", goroutines), func(b *testing.B) {
			c := newClient(b, newStore(b, "/bench-"+rand.Text()))
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
		b.Run(fmt.Sprintf("store/goroutines=%d", goroutines), func(b *testing.B) {
			s := newStore(b, "/bench-"+rand.Text())
			pairs(b, goroutines, func(i int) func() error {
				key := fmt.Sprint("lock-", i)
				return func() error {
					v := rand.Text()
					now, _, err := s.Claim(b.Context(), driver.Record{Key: key, Version: v, Beat: v, Owner: "o", Lease: time.Second, State: driver.Held})
					if err != nil {
						return err
					}
					next := now
					next.Version, next.State, next.End = rand.Text(), driver.Released, driver.EndReleased
					_, err = s.Swap(b.Context(), now, next)
					return err
				}
			})
		})
		b.Run(fmt.Sprintf("native/goroutines=%d", goroutines), func(b *testing.B) {
			conn, root := native(b), "/native-"+rand.Text()
			pairs(b, goroutines, func(i int) func() error {
				l := zk.NewLock(conn, fmt.Sprint(root, "/lock-", i), zk.WorldACL(zk.PermAll))
				return func() error {
					if err := l.Lock(); err != nil {
						return err
					}
					return l.Unlock()
				}
			})
		})
	}
}

// BenchmarkHandOver measures from a release to the grant at another client, which waits.
func BenchmarkHandOver(b *testing.B) {
	b.Run("tenure", func(b *testing.B) {
		root := "/bench-" + rand.Text()
		handOver(b, func() (take, release func() error) {
			c := newClient(b, newStore(b, root))
			var l *tenure.Lease
			take = func() (err error) {
				l, err = c.Acquire(b.Context(), "lock", nil)
				return err
			}
			return take, func() error { return l.Release(b.Context()) }
		})
	})
	b.Run("native", func(b *testing.B) {
		path := "/native-" + rand.Text()
		handOver(b, func() (take, release func() error) {
			l := zk.NewLock(native(b), path, zk.WorldACL(zk.PermAll))
			return l.Lock, l.Unlock
		})
	})
}

// settled is how long a waiter has until it waits.
const settled = 30 * time.Millisecond

func handOver(b *testing.B, newHolder func() (take, release func() error)) {
	type holder struct{ take, release func() error }
	var holders [2]holder
	for i := range holders {
		holders[i].take, holders[i].release = newHolder()
	}
	if err := holders[0].take(); err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		from, to := holders[i%2], holders[(i+1)%2]
		granted := make(chan error, 1)
		var at time.Time
		go func() {
			err := to.take()
			at = time.Now()
			granted <- err
		}()
		<-time.After(settled)
		begun := time.Now()
		if err := from.release(); err != nil {
			b.Fatal(err)
		}
		if err := <-granted; err != nil {
			b.Fatal(err)
		}
		took = append(took, at.Sub(begun))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-median")
	b.ReportMetric(0, "ns/op") // mostly settled
}

func newStore(b *testing.B, root string) *zkstore.Store {
	b.Helper()
	s, err := zkstore.Open(b.Context(), []string{enginetest.Shared(b, enginetest.ZooKeeper, "zookeeper")}, &zkstore.Options{Root: root})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

func newClient(b *testing.B, s driver.Store) *tenure.Client {
	b.Helper()
	c, err := tenure.New(s, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close(context.WithoutCancel(b.Context())) })
	return c
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// native returns a connection of the other client.
func native(b *testing.B) *zk.Conn {
	b.Helper()
	address := enginetest.Shared(b, enginetest.ZooKeeper, "zookeeper")
	conn, _, err := zk.Connect([]string{address}, 10*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	if _, _, err := conn.Exists("/"); err != nil {
		b.Fatal(err)
	}
	return conn
}

// pairs has goroutines make b.N pairs together. Each makes one before, which is not
// counted: the first one makes the nodes.
func pairs(b *testing.B, goroutines int, of func(i int) func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	ready.Add(goroutines)
	for i := range goroutines {
		pair := of(i)
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
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

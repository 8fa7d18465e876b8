// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zookeeper_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/locks"
	"github.com/tenurelock/tenure/zkstore"
)

// ways are the library, and the lock of another client, whose session stands before.
func ways(b *testing.B) []locks.Way {
	address := enginetest.Shared(b, enginetest.ZooKeeper, "zookeeper")
	root := "/bench-" + rand.Text()
	open := func(b *testing.B) driver.Store {
		s, err := zkstore.Open(b.Context(), []string{address}, &zkstore.Options{Root: root})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		return s
	}
	native := locks.Way{Name: "native", Client: func(b *testing.B) func(string) locks.Lock {
		conn, _, err := zk.Connect([]string{address}, time.Minute, zk.WithLogger(silent{}), zk.WithLogInfo(false))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(conn.Close)
		if _, _, err := conn.Exists("/"); err != nil {
			b.Fatal(err)
		}
		return func(name string) locks.Lock {
			l := zk.NewLock(conn, root+"-native/"+name, zk.WorldACL(zk.PermAll))
			return locks.Lock{
				Take:    func(context.Context) error { return l.Lock() },
				Release: func(context.Context) error { return l.Unlock() },
			}
		}
	}}
	return []locks.Way{locks.Tenure(open), native}
}

func BenchmarkAcquireRelease(b *testing.B) { locks.Pairs(b, ways(b)...) }

func BenchmarkHandOver(b *testing.B) { locks.HandOver(b, ways(b)...) }

type silent struct{}

func (silent) Printf(string, ...any) {}

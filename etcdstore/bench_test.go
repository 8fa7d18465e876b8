// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"crypto/rand"
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/locks"
)

// ways are the library, and etcd's own mutex, whose session stands before.
func ways(b *testing.B) []locks.Way {
	address := enginetest.Shared(b, enginetest.Etcd, "etcd")
	prefix := "bench/" + rand.Text() + "/"
	open := func(b *testing.B) driver.Store { return mustOpen(b, prefix, address) }
	mutex := locks.Way{Name: "mutex", Client: func(b *testing.B) func(string) locks.Lock {
		session, err := concurrency.NewSession(mustOpen(b, prefix, address).client)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = session.Close() })
		return func(name string) locks.Lock {
			m := concurrency.NewMutex(session, prefix+name)
			return locks.Lock{Take: m.Lock, Release: m.Unlock}
		}
	}}
	return []locks.Way{locks.Tenure(open), mutex}
}

func BenchmarkAcquireRelease(b *testing.B) { locks.Pairs(b, ways(b)...) }

func BenchmarkHandOver(b *testing.B) { locks.HandOver(b, ways(b)...) }

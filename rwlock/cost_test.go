// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/rwlock"
)

// batching is a store that reads many records in one call, as DynamoDB and PostgreSQL do.
// Each call but a batch is counted by the store behind faults.
type batching struct {
	driver.Store
	faults  *faultstore.Store
	records driver.Store
	batches atomic.Int64
}

func (b *batching) GetBatch(ctx context.Context, keys []string, c driver.Consistency) ([]driver.Lookup, error) {
	b.batches.Add(1)
	list := make([]driver.Lookup, len(keys))
	for i, key := range keys {
		list[i].Record, list[i].Err = b.records.Get(ctx, key, c)
	}
	return list, nil
}

// counted returns how many calls are sent for what f does.
func (b *batching) counted(f func()) int {
	b.faults.ResetLog()
	b.batches.Store(0)
	f()
	return b.faults.Count() + int(b.batches.Load())
}

// The calls that the package comment promises.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := memstore.New()
		open := func(owner string, o *rwlock.Options, under bool) (*rwlock.Lock, *batching, *tenure.Client) {
			b := &batching{records: records.Open(), faults: faultstore.New(records.Open(), nil)}
			b.Store = struct{ driver.Store }{b.faults.Driver()} // which cannot watch
			client, err := tenure.New(b, &tenure.Options{Owner: owner, Clock: tenure.MonotonicClock()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) }) // released by then
			if under {
				session, err := client.OpenSession(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				o = &rwlock.Options{Session: session}
			}
			l, err := rwlock.New(client, name, o)
			if err != nil {
				t.Fatal(err)
			}
			return l, b, client
		}
		read := func(l *rwlock.Lock) *rwlock.Lease {
			lease, err := l.AcquireRead(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return lease
		}
		write := func(l *rwlock.Lock) *rwlock.Lease {
			lease, err := l.AcquireWrite(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return lease
		}
		release := func(l *rwlock.Lease) {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		a, as, _ := open("a", nil, false)
		b, bs, _ := open("b", nil, false)
		want := func(s *batching, most int, what string, f func()) {
			t.Helper()
			if n := s.counted(f); n != most {
				t.Errorf("%s: %d calls instead of %d: %v", what, n, most, s.faults.Log())
			}
		}
		var l *rwlock.Lease
		want(as, 8, "the first use", func() { l = read(a) })
		release(l)
		want(as, 2, "a process begins to read", func() { l = read(a) })
		want(as, 0, "a thousand further readers", func() {
			for range 1000 {
				release(read(a))
			}
		})
		time.Sleep(2 * refresh)
		want(as, 1, "further readers, when the gate was not looked at for a refresh period", func() {
			for range 1000 {
				release(read(a))
			}
		})
		want(as, 1, "the last reader leaves", func() { release(l) })
		want(bs, 3, "the first writer of a process", func() { l = write(b) })
		release(l)
		want(bs, 2, "a writer without readers", func() { l = write(b) })
		want(bs, 2, "a downgrade", func() {
			if err := l.Downgrade(t.Context()); err != nil {
				t.Error(err)
			}
		})
		want(bs, 1, "it leaves", func() { release(l) })

		// Under a session the heartbeats of any number of locks are one.
		c, cs, client := open("c", nil, true)
		l = read(c)
		d, err := rwlock.New(client, "another", &rwlock.Options{Session: l.Session()})
		if err != nil {
			t.Fatal(err)
		}
		m := write(d)
		beats := cs.counted(func() { time.Sleep(10 * lease) })
		if most := int(10*lease/client.Options().HeartbeatPeriod) + 1; beats > most {
			t.Errorf("a reader and a writer under a session cost %d calls in ten leases, of %d heartbeats", beats, most)
		}
		release(l)
		release(m)
		if err := m.Session().Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

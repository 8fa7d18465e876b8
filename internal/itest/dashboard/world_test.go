// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/server/dashboard"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/tenuretest"
)

// rootToken is the secret of alice, who has all rights.
const rootToken = "secret-of-alice-0123456789"

// world is a store, processes that hold locks in it, and the pages over it.
type world struct {
	*tenuretest.World
	t      *testing.T
	away   *faultstore.Store // of the server
	pages  *dashboard.Dashboard
	server *httptest.Server
	url    string
	gone   atomic.Bool // the server answers nothing
}

// newWorld makes the pages over an empty store.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: tenuretest.New(t), t: t}
	client := w.Client("tenured-1")
	w.away = client.Faults()
	principals, err := server.ParsePrincipals("alice " + rootToken + " admin:")
	if err != nil {
		t.Fatal(err)
	}
	service, err := server.New(client.Client, server.Options{Principals: principals})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := dashboard.New(dashboard.Options{Server: service, Title: "production"})
	if err != nil {
		t.Fatal(err)
	}
	w.pages = pages
	s := httptest.NewServer(http.HandlerFunc(func(r http.ResponseWriter, q *http.Request) {
		if w.gone.Load() {
			panic(http.ErrAbortHandler)
		}
		pages.ServeHTTP(r, q)
	}))
	w.server, w.url = s, s.URL
	t.Cleanup(func() {
		_ = service.Shutdown(context.WithoutCancel(t.Context()))
		pages.Close()
		s.Close()
	})
	return w
}

// holder takes a lock in the name of a process, and keeps it until the test ends.
func (w *world) holder(name string, o tenure.Options) *tenure.Lease {
	w.t.Helper()
	c := w.Client(o.Owner, func(own *tenure.Options) { *own = o })
	l, err := c.Acquire(w.t.Context(), name, &tenure.AcquireOptions{History: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = l.Release(context.WithoutCancel(w.t.Context())) })
	return l
}

// obeys has the holder make way as soon as it is asked.
func (w *world) obeys(l *tenure.Lease) {
	var running sync.WaitGroup
	running.Go(func() {
		<-l.Context().Done()
		_ = l.Release(context.Background())
	})
	w.t.Cleanup(func() {
		_ = l.Release(context.Background()) // if it was not asked
		running.Wait()
	})
}

// plant writes a lock and its history, the oldest tenure first, as others would who have long
// been there. Nobody renews it: it is held, in doubt or expired by its periods.
func (w *world) plant(rec driver.Record, history ...driver.Record) {
	w.t.Helper()
	swap := func(now driver.Record, err error) driver.Record {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
		return now
	}
	claim := func(next driver.Record) driver.Record {
		w.t.Helper()
		now, _, err := w.Store().Claim(w.t.Context(), next)
		return swap(now, err)
	}
	for i, past := range history {
		past.Key, past.Version, past.State = protocol.HistoryKey(rec.Key, uint64(i)+1), "v", driver.Past
		past.Host, past.Lease = past.Owner+".example", 15*time.Second
		claim(past)
	}
	next := rec
	next.Version, next.Beat, next.State, next.Until, next.End = "v1", "v1", driver.Held, time.Time{}, ""
	now := claim(next)
	for i := range history {
		next.Token, next.Version = uint64(i)+2, fmt.Sprint("v", i+2)
		now = swap(w.Store().Swap(w.t.Context(), now, next))
	}
	if rec.State == driver.Released {
		next.State, next.Version, next.Until, next.End = rec.State, "free", rec.Until, rec.End
		swap(w.Store().Swap(w.t.Context(), now, next))
	}
}

// workers makes a group, and runs its workers until the test ends. The last one comes when the
// others have all partitions, and the first one takes its time to hand over.
func (w *world) workers(group string, partitions int, names ...string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var complete atomic.Bool // the last one is to come
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for i, name := range names {
		c := w.Client(name, func(o *tenure.Options) {
			o.Host, o.Label, o.LeaseDuration, o.StopTimeout = name+".example", "v7", 3*time.Second, time.Minute
			o.RefreshPeriod = 100 * time.Millisecond
		})
		g, err := shard.New(c.Client, group, &shard.Options{Partitions: partitions, LeaveTimeout: -1})
		if err != nil {
			w.t.Fatal(err)
		}
		if i == len(names)-1 {
			w.Until("each partition has an owner", func() bool {
				st, err := shard.Read(w.t.Context(), c.Client, group)
				return err == nil && st.Unowned == 0 && st.Moving == 0
			})
			complete.Store(true)
		}
		running.Go(func() {
			_ = g.Run(ctx, func(of context.Context, p *shard.Partition) error {
				_ = p.Checkpoint(of, []byte("offset 4711"))
				<-of.Done()
				if i == 0 && complete.Load() {
					<-ctx.Done()
				}
				return nil
			})
		})
	}
}

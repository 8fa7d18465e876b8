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
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/server/dashboard"
	"github.com/tenurelock/tenure/shard"
)

// rootToken is the secret of alice, who has all rights.
const rootToken = "secret-of-alice-0123456789"

// world is a store, processes that hold locks in it, and the pages over it.
type world struct {
	t      *testing.T
	memory *memstore.Store
	now    *shifted // the store of holders, whose wall clocks can be wrong
	away   *faultstore.Store
	pages  *dashboard.Dashboard
	server *httptest.Server
	url    string
	gone   atomic.Bool // the server answers nothing
}

// newWorld makes the pages over an empty store.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, memory: memstore.New()}
	w.now = &shifted{Store: w.memory}
	w.away = faultstore.New(w.memory, nil)
	t.Cleanup(func() { _ = w.away.Close() })
	client := w.client(w.away.Driver(), tenure.Options{Owner: "tenured-1", LeaseDuration: 15 * time.Second})
	principals, err := server.ParsePrincipals("alice " + rootToken + " admin:")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := dashboard.New(dashboard.Options{Client: client, Access: principals, Title: "production"})
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
		pages.Close()
		s.Close()
	})
	return w
}

// closePatience bounds how long a client is waited for whose store is out of reach.
const closePatience = time.Second

// client returns a client that ends with the test.
func (w *world) client(s driver.Store, o tenure.Options) *tenure.Client {
	w.t.Helper()
	c, err := tenure.New(s, &o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// holder takes a lock in the name of a process, and keeps it until the test ends.
func (w *world) holder(name string, o tenure.Options) *tenure.Lease {
	w.t.Helper()
	l, err := w.client(w.now, o).Acquire(w.t.Context(), name, &tenure.AcquireOptions{History: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		_ = l.Release(ctx)
	})
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

// silent takes a lock in the name of a process that shows no more life: its store is out of
// reach from then on.
func (w *world) silent(name string, o tenure.Options) {
	w.t.Helper()
	faults := faultstore.New(w.now, nil)
	w.t.Cleanup(func() { _ = faults.Close() })
	_, err := w.client(faults.Driver(), o).Acquire(w.t.Context(), name, &tenure.AcquireOptions{History: true})
	if err != nil {
		w.t.Fatal(err)
	}
	faults.Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
}

// past is a tenure that is over: it began so long ago, and lasted so long.
type past struct {
	owner, label string
	ago, lasted  time.Duration
	end          func(*tenure.Lease) error
	crash        bool // it shows no more life at the end
}

// held has the tenures happen, the oldest first.
func (w *world) held(name string, all ...past) {
	w.t.Helper()
	for _, p := range all {
		w.now.set(-p.ago)
		faults := faultstore.New(w.now, nil)
		c, err := tenure.New(faults.Driver(), &tenure.Options{
			Owner: p.owner, Host: p.owner + ".example", Label: p.label, LeaseDuration: time.Second,
			RefreshPeriod: 20 * time.Millisecond,
		})
		if err != nil {
			w.t.Fatal(err)
		}
		l, err := c.Acquire(w.t.Context(), name, &tenure.AcquireOptions{History: true})
		if err != nil {
			w.t.Fatal(err)
		}
		w.now.set(-p.ago + p.lasted)
		switch {
		case p.crash:
			faults.Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
			p.end = func(*tenure.Lease) error { return nil }
		case p.end == nil:
			p.end = func(l *tenure.Lease) error { return l.Release(context.Background()) }
		}
		if err := p.end(l); err != nil {
			w.t.Fatalf("%s, %s: %v", name, p.owner, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		_ = c.Close(ctx) // of one that has crashed it leaves the lease behind
		cancel()
		_ = faults.Close()
	}
	w.now.set(0)
}

// steppedDown ends a tenure as one that was asked to.
func steppedDown(by, reason string) func(*tenure.Lease) error {
	return func(l *tenure.Lease) error {
		if err := l.StepDown(by + ": " + reason); err != nil {
			return err
		}
		return l.Release(context.Background())
	}
}

// failed ends a tenure as one whose work has failed.
func failed(reason string) func(*tenure.Lease) error {
	return func(l *tenure.Lease) error {
		return l.ReleaseWith(context.Background(), &tenure.ReleaseOptions{Failed: fmt.Errorf("%s", reason)})
	}
}

// workers makes a group, and runs its workers until the test ends. The last one comes when the
// others have all partitions, and the first one takes its time to hand over.
func (w *world) workers(group string, partitions int, names ...string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for i, name := range names {
		c := w.client(w.now, tenure.Options{
			Owner: name, Host: name + ".example", Label: "v7", LeaseDuration: 3 * time.Second, StopTimeout: time.Minute,
			RefreshPeriod: 100 * time.Millisecond,
		})
		g, err := shard.New(c, group, &shard.Options{Partitions: partitions, LeaveTimeout: -1})
		if err != nil {
			w.t.Fatal(err)
		}
		if i == len(names)-1 {
			w.owned(c, group)
		}
		running.Go(func() {
			_ = g.Run(ctx, func(of context.Context, p *shard.Partition) error {
				_ = p.Checkpoint(of, []byte("offset 4711"))
				<-of.Done()
				if i == 0 {
					<-ctx.Done()
				}
				return nil
			})
		})
	}
}

// owned waits until each partition of a group has an owner.
func (w *world) owned(c *tenure.Client, group string) {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		st, err := shard.Read(w.t.Context(), c, group)
		if err == nil && st.Unowned == 0 && st.Moving == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("%s: %+v, %v", group, st, err)
		}
	}
}

// shifted is a store whose users have a wall clock that is wrong, by an amount that can be
// changed: so a history of days is made in a second. Instants that are not about now were
// shifted before, and stay as they are.
type shifted struct {
	driver.Store
	by atomic.Int64
}

func (s *shifted) set(by time.Duration) { s.by.Store(int64(by)) }

func (s *shifted) at(t time.Time) time.Time {
	if t.IsZero() || time.Since(t).Abs() > time.Minute {
		return t
	}
	return t.Add(time.Duration(s.by.Load()))
}

// Close leaves the store open, which others use.
func (s *shifted) Close() error { return nil }

func (s *shifted) record(r driver.Record) driver.Record {
	r.Since, r.Until = s.at(r.Since), s.at(r.Until)
	if r.Prev != nil {
		prev := *r.Prev
		prev.Since, prev.Until = s.at(prev.Since), s.at(prev.Until)
		r.Prev = &prev
	}
	return r
}

func (s *shifted) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	return s.Store.Claim(ctx, s.record(next))
}

func (s *shifted) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.Store.Swap(ctx, prev, s.record(next))
}

// Watch is that of the store in memory.
func (s *shifted) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	return s.Store.(driver.Watcher).Watch(ctx, key, hint)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/tenuretest"
)

const (
	name    = "orders"
	lease   = 15 * time.Second // the default
	refresh = time.Second      // the default
	beat    = lease / 5        // the default

	// silence is how long others see no heartbeat before they take a worker for dead: a
	// lease, and how wrong their clocks may be by default.
	silence = lease * 109 / 100
)

// onWorld runs the test in a bubble, with a world.
func onWorld(t *testing.T, options shard.Options, test func(t *testing.T, s *world), edit ...func(*tenure.Options)) {
	t.Helper()
	edit = append(edit, func(o *tenure.Options) { o.Logger = slog.New(slog.DiscardHandler) })
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		test(t, &world{World: w, t: t, options: options, desks: map[string]*desk{}})
	}, edit...)
}

// worker is a client with a group.
type worker struct {
	*shard.Group
	s      *world
	owner  string
	client *tenuretest.Client
	stop   context.CancelFunc
	done   chan struct{} // closed when Run has returned
	err    error         // that it returned
	drain  atomic.Int64  // how long a handler takes to stop, in nanoseconds
	died   time.Time     // when it crashed, or zero
	events []shard.Event
}

// make returns a worker that does not run yet.
func (s *world) make(owner string, edit ...func(*shard.Options)) *worker {
	s.t.Helper()
	w := &worker{s: s, owner: owner, client: s.Client(owner), done: make(chan struct{})}
	if s.blind {
		w.client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHint}, Fault: faultstore.LoseRequest()})
	}
	w.client.Faults().Inject(s.faults...)
	o := s.options
	o.OnEvent = func(e shard.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.events = append(w.events, e)
	}
	for _, e := range edit {
		e(&o)
	}
	w.Group = testutil.Must(shard.New(w.client.Client, name, &o))(s.t)
	s.workers = append(s.workers, w)
	return w
}

// worker starts a worker.
func (s *world) worker(owner string, edit ...func(*shard.Options)) *worker {
	s.t.Helper()
	w := s.make(owner, edit...)
	w.start(w.handle)
	return w
}

// come starts workers, and calls then after each.
func (s *world) come(n int, then func(), edit ...func(*shard.Options)) []*worker {
	s.t.Helper()
	for i := range n {
		s.worker(fmt.Sprint("w", i), edit...)
		then()
	}
	return slices.Clone(s.workers)
}

func atOnce() {}
func linger() { time.Sleep(rand.N(refresh)) } // so that they do not look at the same moment

// start starts the worker. It is killed at the end of the test.
func (w *worker) start(handler shard.Handler) {
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.WithoutCancel(w.s.t.Context()))
	go func() {
		w.err = w.Run(ctx, handler)
		close(w.done)
	}()
	w.s.t.Cleanup(func() {
		w.client.Kill()
		_ = w.quit()
	})
}

// of returns the events of a kind until now, or all.
func (w *worker) of(kind ...shard.EventKind) []shard.Event {
	synctest.Wait()
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.events), func(e shard.Event) bool {
		return len(kind) > 0 && e.Kind != kind[0]
	})
}

// handle is a handler that holds the world's rules against what happens.
func (w *worker) handle(ctx context.Context, p *shard.Partition) error {
	defer w.enter(p)()
	<-ctx.Done()
	time.Sleep(time.Duration(w.drain.Load()))
	return nil
}

// crash cuts a worker off for good, as if it were killed: nothing that it does
// reaches the store any more.
func (w *worker) crash() {
	w.client.Partition()
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.died = time.Now()
}

// quit has the worker leave, and waits until it has.
func (w *worker) quit() error {
	w.stop()
	<-w.done
	return w.err
}

// each calls f with each partition that was ever worked on.
func (s *world) each(f func(id string, d *desk)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.desks {
		f(id, d)
	}
}

// at returns the living owners of the partitions.
func (s *world) at() map[string]string {
	at := map[string]string{}
	s.each(func(id string, d *desk) {
		if d.left.IsZero() && d.p.Check() == nil && d.w.died.IsZero() {
			at[id] = d.w.owner
		}
	})
	return at
}

// owned returns how many partitions have an owner that is alive, or have that one.
func (s *world) owned(by ...string) (n int) {
	for _, owner := range s.at() {
		if len(by) == 0 || owner == by[0] {
			n++
		}
	}
	return n
}

// gap fails the test if a partition had no owner for longer since reset, and returns
// the longest time.
func (s *world) gap(most time.Duration) (longest time.Duration) {
	s.t.Helper()
	s.each(func(id string, d *desk) {
		if longest = max(longest, d.gap); d.gap > most {
			s.t.Errorf("partition %s had no owner for %v, more than %v", id, d.gap, most)
		}
	})
	return longest
}

// moves returns how often partitions have come to a worker since reset, in all,
// and the most for one.
func (s *world) moves() (all, most int) {
	s.each(func(_ string, d *desk) { all, most = all+d.begun, max(most, d.begun) })
	return all, most
}

// reset forgets gaps and moves.
func (s *world) reset() { s.each(func(_ string, d *desk) { d.gap, d.begun = 0, 0 }) }

// until waits until f returns true, and returns how long that took. The calls meanwhile
// are in no log: many workers make many.
func (s *world) until(what string, most time.Duration, f func() bool) time.Duration {
	s.t.Helper()
	begun := time.Now()
	for ; !f(); time.Sleep(100 * time.Millisecond) {
		if time.Since(begun) > most {
			s.t.Fatalf("not within %v: %s\n%s", most, what, s.dump())
		}
		for _, w := range s.workers {
			w.client.Faults().ResetLog()
		}
	}
	return time.Since(begun)
}

// all waits until each of so many partitions is owned, and returns how long that took.
func (s *world) all(partitions int, most time.Duration) time.Duration {
	s.t.Helper()
	return s.until(fmt.Sprintf("%d are owned", partitions), most, func() bool { return s.owned() == partitions })
}

// settle waits until n workers have all partitions as planned, and returns how long that took.
func (s *world) settle(n, partitions int) time.Duration {
	s.t.Helper()
	what := fmt.Sprintf("%d workers have %d partitions as planned", n, partitions)
	return s.until(what, 10*time.Minute, func() bool {
		alive, held := 0, 0
		for _, w := range s.workers {
			st := w.Stats()
			if !w.died.IsZero() || st.Place < 0 {
				continue
			}
			if alive++; st.Held != st.Planned || st.Surplus > 0 || st.Members != n || st.MovingIn+st.Claiming > 0 {
				return false
			}
			held += st.Held
		}
		return alive == n && held == partitions
	})
}

// dump shows the numbers of all workers, and their last events.
func (s *world) dump() (text string) {
	for _, w := range s.workers {
		events := w.of()
		text += fmt.Sprintf("%s: %+v\n  %+v\n", w.owner, w.Stats(), events[max(0, len(events)-5):])
	}
	return text
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/shard"
)

const (
	name    = "orders"
	lease   = 15 * time.Second // the default
	refresh = time.Second      // the default
	beat    = lease / 5        // the default
)

// stage is where workers act, inside a synctest bubble. It keeps who has which
// partition, and fails the test when two have the same one.
type stage struct {
	t       *testing.T
	records *memstore.Store
	gate    *fence.Gate
	options shard.Options // of all workers
	blind   bool          // the store cannot watch, as many cannot
	narrow  *narrow       // not nil: what all write through
	light   bool          // the stores keep no log of what is done
	timing  tenure.Timing // of all clients

	mu      sync.Mutex
	at      map[string]*shard.Partition // at work, and not cut off
	by      map[string]string           // the worker that has it
	tokens  map[string]uint64
	left    map[string]time.Time     // when nobody was at work any more
	gaps    map[string]time.Duration // the longest one of each partition
	begun   map[string]int           // how often a partition has come to a worker
	workers []*worker
	looks   *tenure.Client
}

func newStage(t *testing.T, options shard.Options) *stage {
	t.Helper()
	s := &stage{
		t: t, records: memstore.New(), gate: fence.NewGate(nil), options: options,
		at: map[string]*shard.Partition{}, by: map[string]string{}, tokens: map[string]uint64{},
		left: map[string]time.Time{}, gaps: map[string]time.Duration{}, begun: map[string]int{},
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, w := range s.workers {
			wg.Go(w.close)
		}
		wg.Wait()
	})
	return s
}

// onStage runs the test in a bubble, with a stage.
func onStage(t *testing.T, options shard.Options, test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newStage(t, options)) })
}

// worker is a client with a group, on a store that can fail.
type worker struct {
	*shard.Group
	s      *stage
	owner  string
	client *tenure.Client
	faults *faultstore.Store
	cord   *cord // nil but on a light stage
	stop   context.CancelFunc
	done   chan error
	drain  atomic.Int64 // how long a handler takes to stop, in nanoseconds
	dead   bool

	mu     sync.Mutex
	events []shard.Event
}

// make returns a worker that does not run yet.
func (s *stage) make(owner string, edit ...func(*shard.Options)) *worker {
	s.t.Helper()
	w := &worker{s: s, owner: owner, faults: faultstore.New(s.records.Open(), nil), done: make(chan error, 1)}
	var err error
	store := w.faults.Driver()
	if s.blind {
		store = struct{ driver.Store }{store}
	}
	if s.narrow != nil {
		store = &narrow{store, s.narrow.turn, s.narrow.each}
	}
	if s.light {
		w.cord = &cord{Store: s.records.Open()}
		store = w.cord
	}
	if w.client, err = tenure.New(store, &tenure.Options{
		Owner: owner, Clock: tenure.MonotonicClock(),
		LeaseDuration: s.timing.LeaseDuration, HeartbeatPeriod: s.timing.HeartbeatPeriod, RefreshPeriod: s.timing.RefreshPeriod,
	}); err != nil {
		s.t.Fatal(err)
	}
	o := s.options
	o.OnEvent = w.note
	for _, e := range edit {
		e(&o)
	}
	if w.Group, err = shard.New(w.client, name, &o); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = append(s.workers, w)
	return w
}

// worker starts a worker.
func (s *stage) worker(owner string, edit ...func(*shard.Options)) *worker {
	s.t.Helper()
	w := s.make(owner, edit...)
	w.start(w.handle)
	return w
}

func (w *worker) start(handler shard.Handler) {
	ctx, stop := context.WithCancel(context.WithoutCancel(w.s.t.Context()))
	w.stop = stop
	go func() { w.done <- w.Run(ctx, handler) }()
}

func (w *worker) close() {
	if w.stop != nil {
		w.stop()
	}
	w.faults.SetBlackHole(true)                                // it takes no more time
	_ = w.client.Close(context.WithoutCancel(w.s.t.Context())) // it cannot release anything
	if w.stop != nil {
		<-w.done //nolint:errcheck // it was cut off
	}
	w.faults.Close()
}

// cut cuts the worker off its store.
func (w *worker) cut() {
	w.faults.SetBlackHole(true)
	if w.cord != nil {
		w.cord.cut.Store(true)
	}
}

// cord is a store that can be cut off for good, and remembers nothing.
type cord struct {
	driver.Store
	cut atomic.Bool
}

func (c *cord) Get(ctx context.Context, key string, how driver.Consistency) (driver.Record, error) {
	if c.cut.Load() {
		<-ctx.Done()
		return driver.Record{}, ctx.Err()
	}
	return c.Store.Get(ctx, key, how)
}

func (c *cord) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if c.cut.Load() {
		<-ctx.Done()
		return now, prev, ctx.Err()
	}
	return c.Store.Claim(ctx, next)
}

func (c *cord) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if c.cut.Load() {
		<-ctx.Done()
		return driver.Record{}, ctx.Err()
	}
	return c.Store.Swap(ctx, prev, next)
}

func (w *worker) note(e shard.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

func (w *worker) count(kind shard.EventKind) int { return len(w.of(kind)) }

func (w *worker) of(kind shard.EventKind) []shard.Event {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.events), func(e shard.Event) bool { return e.Kind != kind })
}

// handle is a handler that holds the stage's rules against what happens.
func (w *worker) handle(ctx context.Context, p *shard.Partition) error {
	w.enter(p)
	<-ctx.Done()
	if d := time.Duration(w.drain.Load()); d > 0 {
		time.Sleep(d)
	}
	w.leave(p)
	return nil
}

// enter notes that a handler is at work, and lays a trace in what is fenced.
func (w *worker) enter(p *shard.Partition) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	id := p.ID()
	if other := s.at[id]; other != nil && other.Check() == nil && p.Check() == nil {
		s.t.Errorf("%s has partition %s under token %d, which %s has under %d", w.owner, id, p.Token(), s.by[id], other.Token())
	}
	if p.Token() <= s.tokens[id] {
		s.t.Errorf("%s has partition %s under token %d, after %d", w.owner, id, p.Token(), s.tokens[id])
	}
	if err := s.gate.Do(context.Background(), p.Name(), p.Token(), func(context.Context) error { return nil }); err != nil {
		s.t.Errorf("%s: %v", w.owner, err)
	}
	if since, was := s.left[id]; was {
		s.gaps[id] = max(s.gaps[id], time.Since(since))
		delete(s.left, id)
	}
	s.at[id], s.by[id], s.tokens[id] = p, w.owner, p.Token()
	s.begun[id]++
}

func (w *worker) leave(p *shard.Partition) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at[p.ID()] == p {
		delete(s.at, p.ID())
		delete(s.by, p.ID())
		s.left[p.ID()] = time.Now()
	}
}

// crash cuts a worker off for good, as if it were killed: nothing that it does
// reaches the store any more.
func (w *worker) crash() {
	w.cut()
	w.dead = true
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, by := range s.by {
		if by == w.owner {
			s.left[id] = time.Now()
		}
	}
}

// quit has the worker leave, and waits until it has.
func (w *worker) quit() error {
	w.s.t.Helper()
	w.stop()
	err := <-w.done
	w.done <- err
	return err
}

// owned returns how many partitions each worker has, and how many have one that
// is alive.
func (s *stage) owned() (by map[string]int, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dead := map[string]bool{}
	for _, w := range s.workers {
		dead[w.owner] = w.dead
	}
	by = map[string]int{}
	for id, p := range s.at {
		if owner := s.by[id]; p.Check() == nil && !dead[owner] {
			by[owner]++
			all++
		}
	}
	return by, all
}

// until waits until f returns true, and returns how long that took.
func (s *stage) until(what string, most time.Duration, f func() bool) time.Duration {
	s.t.Helper()
	begun := time.Now()
	for !f() {
		if time.Since(begun) > most {
			by, all := s.owned()
			s.t.Fatalf("not within %v: %s; %d owned: %v\n%s", most, what, all, by, s.dump())
		}
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(begun)
}

// dump shows the numbers of all workers, and their last events.
func (s *stage) dump() string {
	synctest.Wait()
	var b strings.Builder
	for _, w := range s.workers {
		fmt.Fprintf(&b, "%s: %+v\n", w.owner, w.Stats())
		w.mu.Lock()
		for _, e := range w.events[max(0, len(w.events)-5):] {
			fmt.Fprintf(&b, "  %v %s %s from %q place %d epoch %d count %d took %v: %v\n", e.Time.Format("05.000"), e.Kind, e.Partition, e.Peer, e.Place, e.Epoch, e.Count, e.Took, e.Err)
		}
		w.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := shard.LockName(name, "")
	page, err := s.records.List(context.Background(), at, "")
	if err != nil {
		fmt.Fprintf(&b, "the locks: %v\n", err)
	}
	for _, rec := range page.Records {
		if s.at[strings.TrimPrefix(rec.Key, at)] == nil {
			fmt.Fprintf(&b, "nobody is at work on %s: %s, owner %q, token %d, session %q\n", rec.Key, rec.State, rec.Owner, rec.Token, rec.Session)
		}
	}
	return b.String()
}

// calm says that n workers have all partitions as planned.
func (s *stage) calm(n, partitions int) bool {
	s.mu.Lock()
	workers := slices.Clone(s.workers)
	s.mu.Unlock()
	alive, held := 0, 0
	for _, w := range workers {
		st := w.Stats()
		if w.dead || st.Place < 0 {
			continue
		}
		if alive++; st.Held != st.Planned || st.Surplus > 0 || st.Members != n || st.MovingIn+st.Claiming > 0 {
			return false
		}
		held += st.Held
	}
	return alive == n && held == partitions
}

// settle waits until n workers have all partitions as planned.
func (s *stage) settle(n, partitions int) time.Duration {
	s.t.Helper()
	return s.until(fmt.Sprintf("%d workers have %d partitions as planned", n, partitions), 10*time.Minute, func() bool { return s.calm(n, partitions) })
}

// worst returns the longest time for which a partition had nobody, since reset.
func (s *stage) worst() (id string, gap time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, g := range s.gaps {
		if g > gap {
			id, gap = i, g
		}
	}
	return id, gap
}

// reset forgets gaps and moves.
func (s *stage) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.gaps)
	clear(s.begun)
}

// moves returns how often partitions have come to a worker since reset, in all,
// and the most for one.
func (s *stage) moves() (all, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.begun {
		all += n
		most = max(most, n)
	}
	return all, most
}

// holding returns how many partitions have an owner that is alive, at less cost
// than owned.
func (s *stage) holding() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for id := range s.at {
		if _, left := s.left[id]; !left {
			n++
		}
	}
	return n
}

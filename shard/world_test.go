// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/fence"
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

// world keeps which worker has which partition, and fails the test when two have the
// same one.
type world struct {
	*tenuretest.World
	t       *testing.T
	gate    *fence.Gate
	options shard.Options // of all workers
	blind   bool          // no hint of the store arrives, as from those that cannot watch
	slow    time.Duration // not 0: how long a write takes, one after the other
	timing  tenure.Timing // of all clients
	light   bool          // for many workers: no log of their calls is kept

	mu      sync.Mutex
	busy    time.Time                   // until when a slow store writes
	at      map[string]*shard.Partition // at work, and not cut off
	by      map[string]string           // the worker that has it
	tokens  map[string]uint64
	left    map[string]time.Time     // when nobody was at work any more
	gaps    map[string]time.Duration // the longest one of each partition
	begun   map[string]int           // how often a partition has come to a worker
	workers []*worker
	looks   *tenuretest.Client
}

// onWorld runs the test in a bubble, with a world.
func onWorld(t *testing.T, options shard.Options, test func(t *testing.T, s *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &world{
			World: tenuretest.New(t, func(o *tenure.Options) { o.Logger = slog.New(slog.DiscardHandler) }),
			t:     t, gate: fence.NewGate(nil), options: options,
			at: map[string]*shard.Partition{}, by: map[string]string{}, tokens: map[string]uint64{},
			left: map[string]time.Time{}, gaps: map[string]time.Duration{}, begun: map[string]int{},
		}
		defer func() {
			for _, w := range s.workers {
				w.client.Kill()
				if w.stop != nil {
					w.stop()
					<-w.done //nolint:errcheck // it was killed
				}
			}
		}()
		test(t, s)
	})
}

// worker is a client with a group.
type worker struct {
	*shard.Group
	s      *world
	owner  string
	client *tenuretest.Client
	stop   context.CancelFunc
	done   chan error
	drain  atomic.Int64 // how long a handler takes to stop, in nanoseconds
	dead   bool

	mu     sync.Mutex
	events []shard.Event
}

// make returns a worker that does not run yet.
func (s *world) make(owner string, edit ...func(*shard.Options)) *worker {
	s.t.Helper()
	w := &worker{s: s, owner: owner, done: make(chan error, 1)}
	w.client = s.Client(owner, func(o *tenure.Options) {
		o.LeaseDuration, o.HeartbeatPeriod, o.RefreshPeriod = s.timing.LeaseDuration, s.timing.HeartbeatPeriod, s.timing.RefreshPeriod
	})
	if s.blind {
		w.client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHint}, Fault: faultstore.LoseRequest()})
	}
	if s.slow > 0 {
		w.client.Faults().Inject(faultstore.Rule{
			Match:  func(c faultstore.Call) bool { return c.Op.IsWrite() },
			Decide: func(faultstore.Call) faultstore.Fault { return faultstore.Slow(s.queue(), 0) },
		})
	}
	o := s.options
	o.OnEvent = w.note
	for _, e := range edit {
		e(&o)
	}
	var err error
	if w.Group, err = shard.New(w.client.Client, name, &o); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = append(s.workers, w)
	return w
}

// queue returns how long a write takes on a store that makes one at a time, for all.
func (s *world) queue() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.busy.Before(now) {
		s.busy = now
	}
	s.busy = s.busy.Add(s.slow)
	return time.Until(s.busy)
}

// worker starts a worker.
func (s *world) worker(owner string, edit ...func(*shard.Options)) *worker {
	s.t.Helper()
	w := s.make(owner, edit...)
	w.start(w.handle)
	return w
}

// staggered starts workers that do not look at the same moment.
func (s *world) staggered(n int, edit ...func(*shard.Options)) []*worker {
	workers := make([]*worker, n)
	for i := range workers {
		workers[i] = s.worker(fmt.Sprintf("w%d", i), edit...)
		time.Sleep(rand.N(refresh))
	}
	return workers
}

func (w *worker) start(handler shard.Handler) {
	ctx, stop := context.WithCancel(context.WithoutCancel(w.s.t.Context()))
	w.stop = stop
	go func() { w.done <- w.Run(ctx, handler) }()
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

// handle is a handler that holds the world's rules against what happens.
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
	w.write(p)
	if since, was := s.left[id]; was {
		s.gaps[id] = max(s.gaps[id], time.Since(since))
		delete(s.left, id)
	}
	s.at[id], s.by[id], s.tokens[id] = p, w.owner, p.Token()
	s.begun[id]++
}

// write writes to what is fenced.
func (w *worker) write(p *shard.Partition) {
	if err := w.s.gate.Do(context.Background(), p.Name(), p.Token(), func(context.Context) error { return nil }); err != nil {
		w.s.t.Errorf("%s writes for partition %s: %v", w.owner, p.ID(), err)
	}
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
	w.client.Partition()
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
	w.stop()
	err := <-w.done
	w.done <- err
	return err
}

// owned returns how many partitions each worker has, and how many have one that
// is alive.
func (s *world) owned() (by map[string]int, all int) {
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

// all waits until each of so many partitions is owned, and returns how long that took.
func (s *world) all(partitions int, most time.Duration) time.Duration {
	s.t.Helper()
	return s.until("all are owned", most, func() bool { _, n := s.owned(); return n == partitions })
}

// until waits until f returns true, and returns how long that took.
func (s *world) until(what string, most time.Duration, f func() bool) time.Duration {
	s.t.Helper()
	begun := time.Now()
	for !f() {
		if time.Since(begun) > most {
			by, all := s.owned()
			s.t.Fatalf("not within %v: %s; %d owned: %v\n%s", most, what, all, by, s.dump())
		}
		time.Sleep(100 * time.Millisecond)
		for _, w := range s.workers {
			if s.light {
				w.client.Faults().ResetLog()
			}
		}
	}
	return time.Since(begun)
}

// dump shows the numbers of all workers, and their last events.
func (s *world) dump() string {
	synctest.Wait()
	var b strings.Builder
	for _, w := range s.workers {
		fmt.Fprintf(&b, "%s: %+v\n", w.owner, w.Stats())
		w.mu.Lock()
		for _, e := range w.events[max(0, len(w.events)-5):] {
			fmt.Fprintf(&b, "  %+v\n", e)
		}
		w.mu.Unlock()
	}
	return b.String()
}

// calm says that n workers have all partitions as planned.
func (s *world) calm(n, partitions int) bool {
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
func (s *world) settle(n, partitions int) time.Duration {
	s.t.Helper()
	what := fmt.Sprintf("%d workers have %d partitions as planned", n, partitions)
	return s.until(what, 10*time.Minute, func() bool { return s.calm(n, partitions) })
}

// gap fails the test if a partition had nobody for longer since reset, and returns the
// longest time.
func (s *world) gap(most time.Duration) (longest time.Duration) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, gap := range s.gaps {
		if longest = max(longest, gap); gap > most {
			s.t.Errorf("partition %s had nobody for %v, more than %v", id, gap, most)
		}
	}
	return longest
}

// reset forgets gaps and moves.
func (s *world) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.gaps)
	clear(s.begun)
}

// moves returns how often partitions have come to a worker since reset, in all,
// and the most for one.
func (s *world) moves() (all, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.begun {
		all += n
		most = max(most, n)
	}
	return all, most
}

// stopAll stops workers at once, and returns how long it takes until the last one
// has gone. None may say that it left early.
func (s *world) stopAll(workers ...*worker) time.Duration {
	s.t.Helper()
	begun := time.Now()
	for _, w := range workers {
		w.stop()
	}
	for _, w := range workers {
		if err := w.quit(); err != nil {
			s.t.Errorf("%s: %v", w.owner, err)
		}
	}
	return time.Since(begun)
}

// free fails the test if somebody has a partition, or one is reserved for somebody.
func (s *world) free(partitions int) {
	s.t.Helper()
	for id := range partitions {
		st, err := s.looker().Status(s.t.Context(), shard.LockName(name, fmt.Sprint(id)))
		if err != nil || st.Held || st.ReservedFor != "" {
			s.t.Errorf("partition %d: held %v by %s, reserved for %q, %v", id, st.Held, st.Owner, st.ReservedFor, err)
		}
	}
}

// looker returns a client that only looks.
func (s *world) looker() *tenuretest.Client {
	if s.looks == nil {
		s.looks = s.Client("looker")
	}
	return s.looks
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/test/bed/wait"
)

// worker works on the partitions of a group that it gets.
type worker struct {
	*replica
	reads, writes atomic.Int64 // calls of the store

	mu   sync.Mutex
	live map[*hold]bool // those whose Check passes
	late sync.WaitGroup // writes that come late
}

// join works in the group until ctx ends.
func (w *worker) join(ctx context.Context) error {
	group, err := shard.New(w.client, w.Group.Name, &shard.Options{
		Partitions: w.Group.Partitions, Weight: w.Group.Weight, Claims: w.Group.Claims,
		OnEvent: func(e shard.Event) {
			if e.Kind == shard.EventLost {
				w.say(Line{Kind: Lost, Text: fmt.Sprint(e.Err)})
			}
		},
	})
	if err != nil {
		return err
	}
	observing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var observer sync.WaitGroup
	observer.Go(func() { w.observe(observing, group) })
	left := Line{Kind: Left}
	if err = group.Run(ctx, w.handle); err != nil {
		left.Text = err.Error()
	}
	w.say(left)
	stop()
	observer.Wait()
	w.late.Wait()
	return err
}

// passes calls the Check of a handler, and tells if it does not pass any more. The caller holds mu.
func (w *worker) passes(h *hold) bool {
	from, _, err := h.check()
	switch {
	case err == nil:
		h.last = from
	case w.live[h]:
		delete(w.live, h)
		h.say(Line{Kind: Failed})
	}
	return err == nil
}

// observe has each handler's Check called again and again. What it tells now and then is that of
// all that have begun and have not failed or ended the Check has passed since an instant; and
// what the group says of this worker, when it changes.
func (w *worker) observe(ctx context.Context, group *shard.Group) {
	var last shard.Stats
	for n := 1; wait.For(ctx, 20*time.Millisecond) == nil; n++ {
		w.mu.Lock()
		began := w.watch.Now()
		for h := range w.live {
			w.passes(h)
		}
		if n%5 == 0 && len(w.live) > 0 {
			w.say(Line{Kind: Held, From: began})
		}
		w.mu.Unlock()
		if s := group.Stats(); n%5 == 0 && s != last {
			last = s
			w.say(Line{Kind: Planned, Stats: &s})
		}
	}
}

// handle is what a partition's owner does: it checks, writes now and then, and takes a moment to
// stop. Some time later it writes once more, as one would that had been paused right after its
// last Check.
func (w *worker) handle(ctx context.Context, p *shard.Partition) error {
	h := &hold{replica: w.replica, lease: p, lock: p.Name(), owner: w.Name, token: p.Token(), last: w.watch.Now()}
	if p.Check() != nil {
		return nil
	}
	w.mu.Lock() // what is told of all is of those that have begun
	h.say(Line{Kind: Granted, To: w.watch.Now()})
	w.live[h] = true
	w.mu.Unlock()
	passes := func() (last int64, passed bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		passed = w.passes(h)
		return h.last, passed
	}
	for next := rand.N(w.Group.Write); wait.For(ctx, next) == nil; next = w.Group.Write {
		if last, passed := passes(); passed {
			h.write(ctx, last)
		}
	}
	ctx = context.WithoutCancel(ctx)
	if p.Check() == nil {
		wait.Rest(ctx, w.Group.Drain)
	}
	last, _ := passes()
	w.mu.Lock()
	delete(w.live, h)
	w.mu.Unlock()
	w.late.Go(func() {
		wait.Rest(ctx, w.Group.Write*5/4) // its next owner has written by then
		h.write(ctx, last)
	})
	h.say(Line{Kind: Ended, From: last})
	return nil
}

// counted counts the calls of a store that are made while nothing changes, and tells of heartbeats.
type counted struct {
	driver.Store
	w *worker
}

// countedBatch has its batches, too.
type countedBatch struct {
	counted
	batch driver.BatchGetter
}

// count returns the store, its calls counted, with what it has beside.
func (w *worker) count(s driver.Store) driver.Store {
	c := counted{s, w}
	if batch, has := s.(driver.BatchGetter); has {
		return countedBatch{c, batch}
	}
	if watcher, has := s.(driver.Watcher); has {
		return struct {
			counted
			driver.Watcher
		}{c, watcher}
	}
	return c
}

func (s counted) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	s.w.reads.Add(1)
	return s.Store.Get(ctx, key, c)
}

func (s counted) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	s.w.reads.Add(1)
	return s.Store.List(ctx, prefix, cursor)
}

func (s countedBatch) GetBatch(ctx context.Context, keys []string, c driver.Consistency) ([]driver.Lookup, error) {
	s.w.reads.Add(1)
	return s.batch.GetBatch(ctx, keys, c)
}

func (s counted) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	s.w.writes.Add(1)
	sent := s.w.watch.Now()
	now, err := s.Store.Swap(ctx, prev, next)
	if err == nil && prev.Beat != next.Beat && next.State == driver.Alive &&
		strings.HasPrefix(next.Key, driver.SessionPrefix) {
		s.w.say(Line{Kind: Beat, From: sent, Reads: s.w.reads.Load(), Writes: s.w.writes.Load()})
	}
	return now, err
}

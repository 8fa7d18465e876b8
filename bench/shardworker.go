// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/interop/peer/wire"
	"github.com/tenurelock/tenure/shard"
)

// shardEnv makes this program one worker of a group, or one that claims locks to
// see how fast that goes.
const shardEnv = "TENURE_BENCH_SHARD"

// task is what a worker is told at its start, in a line.
type task struct {
	Name       string        `json:"name"`
	Store      place         `json:"store"`
	Lease      time.Duration `json:"lease"`
	Heartbeat  time.Duration `json:"heartbeat"`
	Refresh    time.Duration `json:"refresh"`
	Partitions int           `json:"partitions"`
	Weight     float64       `json:"weight"`
	Claims     int           `json:"claims"`
	Resource   string        `json:"resource"` // what its handlers write to
	Write      time.Duration `json:"write"`    // how often
	Drain      time.Duration `json:"drain"`    // how long a handler works on when it is told to stop
	Log        string        `json:"log"`
	Probe      bool          `json:"probe,omitempty"` // it only claims locks
}

// note is what a worker tells: a line each.
type note struct {
	Kind      noted        `json:"k"`
	At        int64        `json:"at,omitempty"` // of wire.Monotonic
	Partition int          `json:"p,omitempty"`
	Token     uint64       `json:"t,omitempty"`
	Took      int64        `json:"took,omitempty"`
	Since     int64        `json:"since,omitempty"`
	Reads     int64        `json:"reads,omitempty"`
	Writes    int64        `json:"writes,omitempty"`
	Text      string       `json:"text,omitempty"`
	Stats     *shard.Stats `json:"stats,omitempty"`
}

type noted string

const (
	notedReady  noted = "ready"
	notedBegin  noted = "begin"   // a handler has begun: its Check has passed
	notedTold   noted = "told"    // its context has ended
	notedEnd    noted = "end"     // it returns now
	notedMoved  noted = "moved"   // a partition has come that another worker was asked for
	notedClosed noted = "closed"  // as coordinator: a dead worker's session is closed
	notedStats  noted = "stats"   // what the group says of this worker has changed
	notedLost   noted = "lost"    // the session is lost
	notedCount  noted = "counted" // calls of the store so far
	notedLeft   noted = "left"    // Run has returned, with Text or in order
	notedDone   noted = "done"    // of a probe
)

// Words that a worker is told later, in a line each.
const (
	sayCount = "count"
	takeAll  = "take"  // of a probe: locks, and leave them under a closed session
	claimAll = "claim" // of a probe: claim them from there
)

// shardWorker is one life of a worker.
type shardWorker struct {
	task
	out struct {
		sync.Mutex
		io.Writer
	}
	client *tenure.Client
	calls  *calls
	log    *claimLog
	http   *http.Client

	mu   sync.Mutex
	live map[stint]*tenureOfHandler
	late sync.WaitGroup // writes that come late
}

// stint names the time in which one owner has a partition.
type stint struct {
	partition int
	token     uint64
}

// tenureOfHandler is a partition in hand.
type tenureOfHandler struct {
	*shard.Partition
	slot slot
}

// check is the handler's Check, noted if it has passed. The caller holds mu of the
// worker.
func (t *tenureOfHandler) check() {
	if at := wire.Monotonic(); t.Check() == nil {
		t.slot.passed(at)
	}
}

// serveShard works until it is told to stop by SIGTERM.
func serveShard(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return errors.Join(errors.New("no task"), lines.Err())
	}
	w := &shardWorker{live: map[stint]*tenureOfHandler{}}
	w.out.Writer = out
	if err := json.Unmarshal(lines.Bytes(), &w.task); err != nil {
		return err
	}
	var err error
	if w.log, err = createLog(w.Log); err != nil {
		return err
	}
	store, calls, err := w.Store.open(w.log.beat)
	if err != nil {
		return err
	}
	w.calls = calls
	defer func() { _ = store.Close() }() // the process ends
	w.client, err = tenure.New(store, &tenure.Options{
		LeaseDuration: w.Lease, HeartbeatPeriod: w.Heartbeat, RefreshPeriod: w.Refresh, Owner: w.Name,
	})
	if err != nil {
		return err
	}
	w.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, MaxConnsPerHost: 8}, Timeout: w.Lease}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w.say(note{Kind: notedReady, Text: strconv.Itoa(os.Getpid())})
	if w.Probe {
		for lines.Scan() {
			if err := w.probe(ctx, lines.Bytes()); err != nil {
				return err
			}
		}
		return lines.Err()
	}
	go w.listen(lines)
	return w.work(ctx)
}

// say writes a line. When nobody reads any more, the process ends.
func (w *shardWorker) say(n note) {
	line, err := json.Marshal(n)
	w.out.Lock()
	defer w.out.Unlock()
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(1)
	}
}

func (w *shardWorker) listen(lines *bufio.Scanner) {
	for lines.Scan() {
		if lines.Text() == sayCount {
			w.say(note{Kind: notedCount, At: wire.Monotonic(), Reads: w.calls.reads.Load(), Writes: w.calls.writes.Load()})
		}
	}
	os.Exit(1) // nobody is there any more
}

func (w *shardWorker) work(ctx context.Context) error {
	group, err := shard.New(w.client, "bench", &shard.Options{
		Partitions: w.Partitions, Weight: w.Weight, Claims: w.Claims, OnEvent: w.event,
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { w.sweep(ended) })
	watching.Go(func() { w.watch(group, ended) })
	err = group.Run(ctx, w.handle)
	left := note{Kind: notedLeft, At: wire.Monotonic()}
	if err != nil {
		left.Text = err.Error()
	}
	w.say(left)
	close(ended)
	watching.Wait()
	w.late.Wait()
	return w.client.Close(context.WithoutCancel(ctx))
}

func (w *shardWorker) event(e shard.Event) {
	switch e.Kind {
	case shard.EventMemberDead:
		w.say(note{Kind: notedClosed, At: wire.Monotonic(), Text: e.Peer})
	case shard.EventLost:
		w.say(note{Kind: notedLost, At: wire.Monotonic(), Text: fmt.Sprint(e.Err)})
	case shard.EventMovedIn:
		if i, err := strconv.Atoi(e.Partition); err == nil {
			w.say(note{Kind: notedMoved, At: wire.Monotonic(), Partition: i, Token: e.Token, Took: int64(e.Took)})
		}
	}
}

// Periods of a worker that looks after its own.
const (
	sweepPeriod = 20 * time.Millisecond
	statsPeriod = 100 * time.Millisecond
)

// sweep has each handler's Check called again and again.
func (w *shardWorker) sweep(ended <-chan struct{}) {
	each(sweepPeriod, ended, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, t := range w.live {
			t.check()
		}
	})
}

// watch tells what the group says of this worker when it changes.
func (w *shardWorker) watch(group *shard.Group, ended <-chan struct{}) {
	var last shard.Stats
	each(statsPeriod, ended, func() {
		if s := group.Stats(); s != last {
			last = s
			w.say(note{Kind: notedStats, At: wire.Monotonic(), Stats: &s})
		}
	})
}

func each(period time.Duration, ended <-chan struct{}, f func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f()
		case <-ended:
			return
		}
	}
}

// handle is what a partition's owner does: it checks, writes now and then, and
// takes a moment to stop. Some time later it writes once more, as one would that
// had been paused right after its last Check.
func (w *shardWorker) handle(ctx context.Context, p *shard.Partition) error {
	if p.Check() != nil {
		return nil
	}
	now := wire.Monotonic()
	s, err := w.log.open(p.Index(), p.Token(), now)
	if err != nil {
		return err
	}
	t := &tenureOfHandler{p, s}
	key := stint{p.Index(), p.Token()}
	w.mu.Lock()
	w.live[key] = t
	w.mu.Unlock()
	about := note{Partition: key.partition, Token: key.token}
	tell := func(kind noted, at int64) {
		about.Kind, about.At = kind, at
		w.say(about)
	}
	tell(notedBegin, now)
	timer := time.NewTimer(rand.N(w.Write))
	for ctx.Err() == nil {
		select {
		case <-timer.C:
			if p.Check() == nil {
				w.write(ctx, p)
			}
			timer.Reset(w.Write)
		case <-ctx.Done():
		}
	}
	timer.Stop()
	tell(notedTold, wire.Monotonic())
	if p.Check() == nil {
		_ = pause(context.WithoutCancel(ctx), w.Drain)
	}
	w.mu.Lock()
	t.check()
	delete(w.live, key)
	w.mu.Unlock()
	late := fence.Fixed(p.Name(), p.Token())
	w.late.Go(func() {
		_ = pause(context.WithoutCancel(ctx), w.Write+w.Write/4) // by then its next owner has written, if there is one
		w.write(context.WithoutCancel(ctx), late)
	})
	tell(notedEnd, wire.Monotonic())
	return nil
}

// write writes to the partition's resource. Whether it was refused is counted
// there.
func (w *shardWorker) write(ctx context.Context, grant fence.Grant) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.Resource, http.NoBody)
	if err != nil {
		return
	}
	fence.SetHeader(r.Header, grant)
	if answer, err := w.http.Do(r); err == nil {
		_ = answer.Body.Close() // it is empty, or tells of the refusal
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
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
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/shard"
)

// worker is one life of a worker.
type worker struct {
	task
	out    *proc.Lines
	client *tenure.Client
	calls  *calls
	log    *claimLog
	http   *http.Client

	mu   sync.Mutex
	live map[stint]*tenureOfHandler
	late sync.WaitGroup // writes that come late
}

// tenureOfHandler is a partition in hand.
type tenureOfHandler struct {
	*shard.Partition
	slot slot
}

// check is the handler's Check, noted if it has passed. The caller holds mu of the
// worker.
func (t *tenureOfHandler) check() {
	if at := proc.Monotonic(); t.Check() == nil {
		t.slot.passed(at)
	}
}

// serveWorker works until it is told to stop by SIGTERM.
func serveWorker(in io.Reader, out io.Writer) error {
	lines := json.NewDecoder(in)
	w := &worker{live: map[stint]*tenureOfHandler{}, out: proc.NewLines(out)}
	if err := lines.Decode(&w.task); err != nil {
		return fmt.Errorf("task: %w", err)
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
		return w.obey(lines, func(o order) error { return probe(ctx, w.client, o, w.say) })
	}
	go func() {
		_ = w.obey(lines, func(order) error {
			w.say(note{Kind: notedCount, At: proc.Monotonic(), Reads: w.calls.reads.Load(), Writes: w.calls.writes.Load()})
			return nil
		})
		os.Exit(1) // nobody is there any more
	}()
	return w.work(ctx)
}

// obey carries out orders until there are no more.
func (w *worker) obey(lines *json.Decoder, carryOut func(order) error) error {
	for {
		var o order
		err := lines.Decode(&o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = carryOut(o)
		}
		if err != nil {
			return err
		}
	}
}

// say writes a line. When nobody reads any more, the process ends.
func (w *worker) say(n note) {
	if w.out.Say(n) != nil {
		os.Exit(1)
	}
}

func (w *worker) work(ctx context.Context) error {
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
	left := note{Kind: notedLeft, At: proc.Monotonic()}
	if err != nil {
		left.Text = err.Error()
	}
	w.say(left)
	close(ended)
	watching.Wait()
	w.late.Wait()
	return w.client.Close(context.WithoutCancel(ctx))
}

func (w *worker) event(e shard.Event) {
	switch e.Kind {
	case shard.EventMemberDead:
		w.say(note{Kind: notedClosed, At: proc.Monotonic(), Text: e.Peer})
	case shard.EventLost:
		w.say(note{Kind: notedLost, At: proc.Monotonic(), Text: fmt.Sprint(e.Err)})
	case shard.EventMovedIn:
		if i, err := strconv.Atoi(e.Partition); err == nil {
			w.say(note{Kind: notedMoved, At: proc.Monotonic(), Partition: i, Token: e.Token, Took: int64(e.Took)})
		}
	}
}

// Periods of a worker that looks after its own.
const (
	sweepPeriod = 20 * time.Millisecond
	statsPeriod = 100 * time.Millisecond
)

// sweep has each handler's Check called again and again.
func (w *worker) sweep(ended <-chan struct{}) {
	each(sweepPeriod, ended, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, t := range w.live {
			t.check()
		}
	})
}

// watch tells what the group says of this worker when it changes.
func (w *worker) watch(group *shard.Group, ended <-chan struct{}) {
	var last shard.Stats
	each(statsPeriod, ended, func() {
		if s := group.Stats(); s != last {
			last = s
			w.say(note{Kind: notedStats, At: proc.Monotonic(), Stats: &s})
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
func (w *worker) handle(ctx context.Context, p *shard.Partition) error {
	if p.Check() != nil {
		return nil
	}
	now := proc.Monotonic()
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
	tell(notedTold, proc.Monotonic())
	if p.Check() == nil {
		wait.Rest(context.WithoutCancel(ctx), w.Drain)
	}
	w.mu.Lock()
	t.check()
	delete(w.live, key)
	w.mu.Unlock()
	late := fence.Fixed(p.Name(), p.Token())
	w.late.Go(func() {
		wait.Rest(context.WithoutCancel(ctx), w.Write+w.Write/4) // by then its next owner has written, if there is one
		w.write(context.WithoutCancel(ctx), late)
	})
	tell(notedEnd, proc.Monotonic())
	return nil
}

// write writes to the partition's resource. Whether it was refused is counted
// there.
func (w *worker) write(ctx context.Context, grant fence.Grant) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.Resource, http.NoBody)
	if err != nil {
		return
	}
	fence.SetHeader(r.Header, grant)
	if answer, err := w.http.Do(r); err == nil {
		_ = answer.Body.Close() // it is empty, or tells of the refusal
	}
}

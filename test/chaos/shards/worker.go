// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shards

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/peers"
)

// worker is one life of a worker.
type worker struct {
	task
	out    *proc.Lines
	client *tenure.Client
	http   *http.Client

	mu   sync.Mutex
	live map[stint]*handler
	late sync.WaitGroup // writes that come late
}

// handler is a partition in hand.
type handler struct {
	*shard.Partition
	last   int64 // before its last Check that passed
	failed bool  // its Check does not pass any more
}

// check is the handler's Check, noted if it has passed. The caller holds mu.
func (w *worker) check(h *handler) bool {
	at := proc.Monotonic()
	switch {
	case h.Check() == nil:
		h.last = at
		return true
	case !h.failed:
		h.failed = true
		w.say(note{Kind: notedFailed, Partition: h.Index(), Token: h.Token()})
	}
	return false
}

// serveWorker works until it is told to stop by SIGTERM.
func serveWorker(in io.Reader, out io.Writer) error {
	w := &worker{live: map[stint]*handler{}, out: proc.NewLines(out)}
	if err := json.NewDecoder(in).Decode(&w.task); err != nil {
		return fmt.Errorf("task: %w", err)
	}
	store, err := open(w.Store, func(at, reads, writes int64) {
		w.say(note{Kind: notedBeat, At: at, Reads: reads, Writes: writes})
	})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // the process ends
	options := w.Options()
	options.Owner = w.Name
	w.client, err = tenure.New(store, options)
	if err != nil {
		return err
	}
	w.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, MaxConnsPerHost: 8}, Timeout: w.Lease}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return w.work(ctx)
}

// say writes a line. When nobody reads any more, the process ends.
func (w *worker) say(n note) {
	if w.out.Say(n) != nil {
		os.Exit(1)
	}
}

func (w *worker) work(ctx context.Context) error {
	group, err := shard.New(w.client, w.Group, &shard.Options{
		Partitions: w.Partitions, Weight: w.Weight, Claims: w.Claims, OnEvent: w.event,
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { w.watch(group, ended) })
	err = group.Run(ctx, w.handle)
	left := note{Kind: notedLeft}
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
	if e.Kind == shard.EventLost {
		w.say(note{Kind: notedLost, Text: fmt.Sprint(e.Err)})
	}
}

// watch has each handler's Check called again and again. What it tells now and then is that of
// all that have begun and have not failed or ended the Check has passed since an instant; and
// what the group says of this worker, when it changes.
func (w *worker) watch(group *shard.Group, ended <-chan struct{}) {
	var last shard.Stats
	for n := 1; wait.Unless(20*time.Millisecond, ended, nil); n++ {
		w.mu.Lock()
		began := proc.Monotonic()
		for _, h := range w.live {
			w.check(h)
		}
		if n%5 == 0 && len(w.live) > 0 {
			w.say(note{Kind: notedChecked, At: began})
		}
		w.mu.Unlock()
		if s := group.Stats(); n%5 == 0 && s != last {
			last = s
			w.say(note{Kind: notedStats, Stats: &s})
		}
	}
}

// handle is what a partition's owner does: it checks, writes now and then, and
// takes a moment to stop. Some time later it writes once more, as one would that
// had been paused right after its last Check.
func (w *worker) handle(ctx context.Context, p *shard.Partition) error {
	h := &handler{Partition: p, last: proc.Monotonic()}
	if p.Check() != nil {
		return nil
	}
	key := stint{p.Index(), p.Token()}
	w.mu.Lock() // what is told of all is of those that have begun
	w.say(note{Kind: notedBegin, At: proc.Monotonic(), Partition: p.Index(), Token: p.Token(), Text: p.Name()})
	w.live[key] = h
	w.mu.Unlock()
	check := func() (last int64, passed bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		passed = w.check(h)
		return h.last, passed
	}
	for next := rand.N(w.Write); wait.For(ctx, next) == nil; next = w.Write {
		if at, passed := check(); passed {
			w.write(ctx, p, at)
		}
	}
	if p.Check() == nil {
		wait.Rest(context.WithoutCancel(ctx), w.Drain)
	}
	last, _ := check()
	w.mu.Lock()
	delete(w.live, key)
	w.mu.Unlock()
	w.late.Go(func() {
		wait.Rest(context.WithoutCancel(ctx), w.Write+w.Write/4) // its next owner has written by then
		w.write(context.WithoutCancel(ctx), p, last)
	})
	w.say(note{Kind: notedEnd, At: proc.Monotonic(), Partition: p.Index(), Token: p.Token(), Since: last})
	return nil
}

// write writes to the partition's resource, as a Check allowed. Whether it was refused is
// counted there.
func (w *worker) write(ctx context.Context, p *shard.Partition, checked int64) {
	e := trial.Effect{Lock: p.Name(), Token: p.Token(), Owner: w.Name, Checked: checked}
	_, _ = e.Send(ctx, w.http, w.Resource)
}

// task is what a worker is told at its start, in a line.
type task struct {
	peers.Timing
	Name       string        `json:"name"`
	Group      string        `json:"group"`
	Store      string        `json:"store"`
	Partitions int           `json:"partitions"`
	Weight     float64       `json:"weight"`
	Claims     int           `json:"claims"`
	Resource   string        `json:"resource"` // what its handlers write to
	Write      time.Duration `json:"write"`    // how often
	Drain      time.Duration `json:"drain"`    // how long a handler works on when it is told to stop
}

// note is what a worker tells: a line each.
type note struct {
	Kind      noted        `json:"k"`
	At        int64        `json:"at,omitempty"` // of proc.Monotonic
	Partition int          `json:"p,omitempty"`
	Token     uint64       `json:"t,omitempty"`
	Since     int64        `json:"since,omitempty"`
	Reads     int64        `json:"reads,omitempty"`
	Writes    int64        `json:"writes,omitempty"`
	Text      string       `json:"text,omitempty"`
	Stats     *shard.Stats `json:"stats,omitempty"`
}

type noted string

const (
	notedBegin   noted = "begin"   // a handler has begun: its Check has passed
	notedChecked noted = "checked" // the Check of all handlers has passed since
	notedFailed  noted = "failed"  // that of one does not pass any more
	notedEnd     noted = "end"     // it returns now; its last Check that passed began at Since
	notedBeat    noted = "beat"    // a heartbeat was confirmed that was sent at that instant, after so many calls
	notedStats   noted = "stats"   // what the group says of this worker has changed
	notedLost    noted = "lost"    // the session is lost
	notedLeft    noted = "left"    // Run has returned, with Text or in order
)

// stint names the time in which one owner has a partition.
type stint struct {
	partition int
	token     uint64
}

// roleName is the role of a worker.
const roleName = "shard"

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/test/bed/must"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/chaos/trial"
)

// group is a group of worker processes, and what they have told.
type group struct {
	size             size
	name, store, dir string
	now              func() int64
	to               *trial.Resource

	mu     sync.Mutex
	all    []*worker
	begins []begun          // since the last reset
	ends   map[stint]int64  // when handlers returned, since the start
	owners map[string]begun // of each partition: the last one, until it ends
	lost   []string
	failed error
}

// begun says that a handler has begun.
type begun struct {
	stint
	by *worker
	at int64
}

// stint is the time in which one owner has a partition.
type stint struct {
	lock  string
	token uint64
}

// worker is one life of a worker.
type worker struct {
	proc.Process
	g    *group
	name string

	// What follows is guarded by mu of the group.
	holds  map[stint]*trial.Hold // of its handlers
	live   map[stint]*trial.Hold // of these, those whose Check passes
	beat   replica.Line          // its last heartbeat
	dead   bool                  // killed, or left
	paused bool                  // at some time
	stats  shard.Stats
	left   *replica.Line // nil while it is there
}

// start starts a worker, and does not wait until it has joined. The weight 0 is the usual one.
func (g *group) start(ctx context.Context, weight float64, claims int) *worker {
	// Nothing is taken down of one that is not known yet.
	g.mu.Lock()
	defer g.mu.Unlock()
	w := &worker{
		g: g, name: fmt.Sprintf("worker-%d", len(g.all)+1), holds: map[stint]*trial.Hold{},
		live: map[stint]*trial.Hold{},
	}
	c := replica.Config{
		Name: w.name, Do: replica.Work, Store: g.store, Resource: g.to.URL(), Lease: g.size.Lease,
		Page: filepath.Join(g.dir, g.name+w.name),
		Group: &replica.Group{
			Timing: g.size.Timing, Name: g.name, Partitions: g.size.Partitions, Weight: weight, Claims: claims,
			Write: g.size.Write, Drain: g.size.Drain,
		},
	}
	must.Do(startReplica(&w.Process, c, proc.Command{Stderr: os.Stderr, Line: w.heard, Ended: w.ended}))
	context.AfterFunc(ctx, w.Kill)
	g.all = append(g.all, w)
	return w
}

// heard takes down what the process tells.
func (w *worker) heard(line []byte) {
	var l replica.Line
	err := json.Unmarshal(line, &l)
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	if err != nil || l.Kind == replica.Trouble {
		w.g.failed = errors.Join(w.g.failed, fmt.Errorf("%s says %.200q: %w", w.name, line, err))
	} else {
		w.g.take(w, l)
	}
}

func (w *worker) ended(state *os.ProcessState) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	if !w.dead {
		w.g.failed = errors.Join(w.g.failed, fmt.Errorf("%s has ended: %v", w.name, state))
	}
	w.dead = true
}

// take takes a line down. The caller holds mu.
func (g *group) take(w *worker, l replica.Line) {
	key := stint{l.Lock, l.Token}
	switch l.Kind {
	case replica.Granted:
		h := &trial.Hold{Lock: l.Lock, Owner: w.name, Token: l.Token, Begin: l.To, Last: l.To, Killed: true}
		w.holds[key], w.live[key] = h, h
		b := begun{key, w, l.To}
		g.begins = append(g.begins, b)
		if g.owners[l.Lock].token < l.Token {
			g.owners[l.Lock] = b
		}
	case replica.Held:
		for _, h := range w.live {
			h.Last = max(h.Last, l.From)
		}
	case replica.Failed:
		delete(w.live, key)
	case replica.Beat:
		w.beat = l
	case replica.Ended:
		delete(w.live, key)
		if h := w.holds[key]; h != nil {
			h.Last, h.Killed = max(h.Last, l.From), false
		}
		g.ends[key] = l.At
		if g.owners[l.Lock].token == l.Token {
			delete(g.owners, l.Lock)
		}
	case replica.Planned:
		w.stats = *l.Stats
	case replica.Lost:
		if !w.paused { // else it must
			g.lost = append(g.lost, w.name+": "+l.Text)
		}
	case replica.Left:
		w.left, w.dead = &l, true
	}
}

// workers returns those that are there.
func (g *group) workers() []*worker {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.living()
}

// living returns the workers that are there. The caller holds mu.
func (g *group) living() (all []*worker) {
	for _, p := range g.all {
		if !p.dead {
			all = append(all, p)
		}
	}
	return all
}

// owned returns how many partitions have an owner that lives. The caller holds mu.
func (g *group) owned() (n int) {
	for _, b := range g.owners {
		if !b.by.dead {
			n++
		}
	}
	return n
}

// settled says that all is as planned: every worker is in the membership, has what it is
// to have, and nothing else. The caller holds mu.
func (g *group) settled() bool {
	living := g.living()
	for _, p := range living {
		s := p.stats
		if !s.Joined || s.Members != len(living) || s.Held != s.Planned || s.Surplus+s.Claiming+s.MovingIn > 0 ||
			s.Epoch != living[0].stats.Epoch {
			return false
		}
	}
	return g.whole()
}

// held returns how many partitions a worker has. The caller holds mu.
func (g *group) held(w *worker) (n int) {
	for _, b := range g.owners {
		if b.by == w {
			n++
		}
	}
	return n
}

// whole says that all partitions have an owner. The caller holds mu.
func (g *group) whole() bool { return g.owned() == g.size.Partitions }

// patience bounds every wait for the group.
const patience = 90 * time.Second

// until waits until something is so. The condition is called with mu held.
func (g *group) until(ctx context.Context, what string, holds func() bool) {
	so := wait.Within(ctx, patience, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.failed != nil || holds()
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	if !so || g.failed != nil {
		must.Do(errors.Join(g.failed, context.Cause(ctx), fmt.Errorf(
			"not so within %v: %s; %d workers, %d partitions owned", patience, what, len(g.living()), g.owned())))
	}
}

// beats returns the last heartbeat of each worker that lives.
func (g *group) beats() map[*worker]replica.Line {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[*worker]replica.Line{}
	for _, p := range g.living() {
		all[p] = p.beat
	}
	return all
}

// close ends all workers, and returns the log of what they did.
func (g *group) close() (*trial.Log, error) {
	g.mu.Lock()
	for _, p := range g.all {
		p.dead = true
	}
	g.mu.Unlock()
	l := &trial.Log{}
	for _, p := range g.all {
		p.Kill() // nothing is heard of it any more
		for _, h := range p.holds {
			l.Holds = append(l.Holds, *h)
		}
	}
	var bad []string
	if l.Effects, bad = g.to.Seen(); len(bad) > 0 {
		return l, errors.New(strings.Join(bad, "\n"))
	}
	l.EndKilled()
	return l, nil
}

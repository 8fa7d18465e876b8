// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/shard"
)

// group is a group of worker processes, and what they have told.
type group struct {
	size  size
	place place
	to    *guarded
	dir   string

	mu      sync.Mutex
	changed *sync.Cond
	lives   int
	all     []*process
	begins  []begun          // since the last reset
	ends    map[stint]ending // of handlers, since the start
	owners  map[int]begun    // of each partition: the last one, until it ends
	moved   map[stint]int64  // how long a partition took to come that was asked for
	closed  map[string]int64 // when a dead worker's session was closed, by the worker's name
	lost    []string
	failed  error
}

// begun says that a handler has begun, and ending how it ended.
type begun struct {
	stint
	by *process
	at int64
}

type ending struct {
	by        *process
	told, end int64
}

// process is one life of a worker, or a probe.
type process struct {
	task
	proc.Process
	g *group

	// What follows is guarded by mu of the group.
	ready  bool
	dead   bool // killed, or left
	paused bool // at some time
	left   *note
	stats  shard.Stats
	counts []note
	done   []note
}

func newGroup(size size, at place, to *guarded, dir string) *group {
	g := &group{
		size: size, place: at, to: to, dir: dir,
		ends: map[stint]ending{}, owners: map[int]begun{}, moved: map[stint]int64{}, closed: map[string]int64{},
	}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// start starts a worker, and does not wait until it has joined.
func (g *group) start(ctx context.Context, change func(*task)) (*process, error) {
	g.mu.Lock()
	g.lives++
	name := fmt.Sprintf("worker-%d", g.lives)
	g.mu.Unlock()
	t := task{
		Name: name, Store: g.place, Lease: g.size.Lease, Heartbeat: g.size.Heartbeat, Refresh: g.size.Refresh,
		Partitions: g.size.partitions, Claims: g.size.claims, Resource: g.to.URL, Write: g.size.write, Drain: g.size.drain, Log: filepath.Join(g.dir, name+".log"),
	}
	if change != nil {
		change(&t)
	}
	p := &process{task: t, g: g}
	command := proc.Command{Role: roleName, Stderr: os.Stderr, Line: p.heard, Ended: p.ended}
	// Nothing is taken down of one that is not known yet.
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := p.Start(command); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, p.Kill)
	g.all = append(g.all, p)
	return p, p.Send(t)
}

// heard takes down what the process tells.
func (p *process) heard(line []byte) {
	var n note
	err := json.Unmarshal(line, &n)
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if err != nil {
		p.g.failed = errors.Join(p.g.failed, fmt.Errorf("%s says %.200q, which is no note", p.Name, line))
	} else {
		p.g.take(p, n)
	}
	p.g.changed.Broadcast()
}

func (p *process) ended(state *os.ProcessState) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if !p.dead && !p.Probe {
		p.g.failed = errors.Join(p.g.failed, fmt.Errorf("%s has ended: %v", p.Name, state))
	}
	p.dead = true
	p.g.changed.Broadcast()
}

// take takes a note down. The caller holds mu.
func (g *group) take(p *process, n note) {
	key := stint{n.Partition, n.Token}
	switch n.Kind {
	case notedReady:
		p.ready = true
	case notedBegin:
		b := begun{key, p, n.At}
		g.begins = append(g.begins, b)
		if g.owners[n.Partition].token < n.Token {
			g.owners[n.Partition] = b
		}
	case notedTold:
		g.ends[key] = ending{by: p, told: n.At}
	case notedEnd:
		e := g.ends[key]
		e.end = n.At
		g.ends[key] = e
		if g.owners[n.Partition].token == n.Token {
			delete(g.owners, n.Partition)
		}
	case notedMoved:
		g.moved[key] = n.Took
	case notedClosed:
		if g.closed[n.Text] == 0 {
			g.closed[n.Text] = n.At
		}
	case notedStats:
		p.stats = *n.Stats
	case notedLost:
		if p.paused {
			return // as it must
		}
		g.lost = append(g.lost, p.Name+": "+n.Text)
	case notedCount:
		p.counts = append(p.counts, n)
	case notedLeft:
		p.left, p.dead = &n, true
	case notedDone:
		p.done = append(p.done, n)
	}
}

// living returns the workers that are there. The caller holds mu.
func (g *group) living() (all []*process) {
	for _, p := range g.all {
		if !p.dead && !p.Probe {
			all = append(all, p)
		}
	}
	return all
}

// owned returns how many partitions have an owner that lives. The caller holds
// mu.
func (g *group) owned() int {
	n := 0
	for _, b := range g.owners {
		if !b.by.dead {
			n++
		}
	}
	return n
}

// settled says that all is as planned: every worker is on the roll, has what it is
// to have, and nothing else. The caller holds mu.
func (g *group) settled() bool {
	living := g.living()
	for _, p := range living {
		s := p.stats
		if !s.Joined || s.Members != len(living) || s.Held != s.Planned || s.Surplus+s.Claiming+s.MovingIn > 0 || s.Epoch != living[0].stats.Epoch {
			return false
		}
	}
	return g.owned() == g.size.partitions
}

// held returns how many partitions a worker has. The caller holds mu.
func (g *group) held(p *process) int {
	n := 0
	for _, b := range g.owners {
		if b.by == p {
			n++
		}
	}
	return n
}

// coordinator returns the worker that says that it is the coordinator. The caller
// holds mu.
func (g *group) coordinator() *process {
	for _, p := range g.living() {
		if p.stats.Coordinator {
			return p
		}
	}
	return nil
}

// patience bounds every wait for the group.
const patience = 90 * time.Second

// until waits until something is so. The condition is called with mu held.
func (g *group) until(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not so within %v: %s", patience, what))
	defer cancel()
	wake := context.AfterFunc(ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.changed.Broadcast()
	})
	defer wake()
	g.mu.Lock()
	defer g.mu.Unlock()
	for !holds() {
		if g.failed != nil {
			return g.failed
		}
		if ctx.Err() != nil {
			living := g.living()
			return fmt.Errorf("%w; %d workers, %d partitions owned", context.Cause(ctx), len(living), g.owned())
		}
		g.changed.Wait()
	}
	return nil
}

func (g *group) untilSettled(ctx context.Context) error {
	return g.until(ctx, "all partitions are where they are planned", g.settled)
}

// reset forgets who has begun, and returns what it was.
func (g *group) reset() []begun {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.begins
	g.begins = nil
	return was
}

// count returns how many calls of the store all workers have made.
func (g *group) count(ctx context.Context) (reads, writes int64, err error) {
	g.mu.Lock()
	living := g.living()
	before := map[*process]int{}
	for _, p := range living {
		before[p] = len(p.counts)
	}
	g.mu.Unlock()
	for _, p := range living {
		if err := p.Send(order{Do: sayCount}); err != nil {
			return 0, 0, err
		}
	}
	err = g.until(ctx, "all have counted", func() bool {
		return !slices.ContainsFunc(living, func(p *process) bool { return len(p.counts) == before[p] })
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range living {
		if n := len(p.counts); n > 0 {
			reads += p.counts[n-1].Reads
			writes += p.counts[n-1].Writes
		}
	}
	return reads, writes, err
}

// close ends all workers, and returns what their logs say.
func (g *group) close() (all []tenureOf, err error) {
	g.mu.Lock()
	processes := slices.Clone(g.all)
	for _, p := range processes {
		p.dead = true
	}
	g.mu.Unlock()
	for _, p := range processes {
		p.Kill()
	}
	for _, p := range processes {
		tenures, _, failed := readLog(p.Log, p.Name)
		if failed != nil && !errors.Is(failed, os.ErrNotExist) {
			err = errors.Join(err, failed)
		}
		all = append(all, tenures...)
	}
	return all, err
}

// times returns how often each partition that is named there has begun.
func times(begins []begun) (most int, all int) {
	n := map[int]int{}
	for _, b := range begins {
		n[b.partition]++
	}
	return slices.Max(append(slices.Collect(maps.Values(n)), 0)), len(begins)
}

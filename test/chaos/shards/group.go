// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/chaos/trial"
)

// group is a group of worker processes, and what they have told.
type group struct {
	size        size
	name, store string
	to          *trial.Resource

	mu     sync.Mutex
	all    []*process
	begins []begun         // since the last reset
	ends   map[stint]int64 // when handlers returned, since the start
	owners map[int]begun   // of each partition: the last one, until it ends
	lost   []string
	failed error
}

// begun says that a handler has begun.
type begun struct {
	stint
	by *process
	at int64
}

// process is one life of a worker.
type process struct {
	task
	proc.Process
	g *group

	// What follows is guarded by mu of the group.
	holds  map[stint]*trial.Hold // of its handlers
	live   map[stint]*trial.Hold // of these, those whose Check passes
	beat   note                  // its last heartbeat
	dead   bool                  // killed, or left
	paused bool                  // at some time
	stats  shard.Stats
	left   *note // nil while it is there
}

func newGroup(size size, name, store string, to *trial.Resource) *group {
	return &group{size: size, name: name, store: store, to: to, ends: map[stint]int64{}, owners: map[int]begun{}}
}

// start starts a worker, and does not wait until it has joined.
func (g *group) start(ctx context.Context, change func(*task)) (*process, error) {
	// Nothing is taken down of one that is not known yet.
	g.mu.Lock()
	defer g.mu.Unlock()
	t := task{
		Name: fmt.Sprintf("worker-%d", len(g.all)+1), Group: g.name, Store: g.store, Timing: g.size.Timing,
		Partitions: g.size.Partitions, Claims: g.size.Claims, Resource: g.to.URL(), Write: g.size.Write,
		Drain: g.size.Drain,
	}
	if change != nil {
		change(&t)
	}
	p := &process{task: t, g: g, holds: map[stint]*trial.Hold{}, live: map[stint]*trial.Hold{}}
	command := proc.Command{Role: roleName, Stderr: os.Stderr, Line: p.heard, Ended: p.ended}
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
}

func (p *process) ended(state *os.ProcessState) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if !p.dead {
		p.g.failed = errors.Join(p.g.failed, fmt.Errorf("%s has ended: %v", p.Name, state))
	}
	p.dead = true
}

// take takes a note down. The caller holds mu.
func (g *group) take(p *process, n note) {
	key := stint{n.Partition, n.Token}
	switch n.Kind {
	case notedBegin:
		h := &trial.Hold{Lock: n.Text, Owner: p.Name, Token: n.Token, Begin: n.At, Last: n.At, Killed: true}
		p.holds[key], p.live[key] = h, h
		b := begun{key, p, n.At}
		g.begins = append(g.begins, b)
		if g.owners[n.Partition].token < n.Token {
			g.owners[n.Partition] = b
		}
	case notedChecked:
		for _, h := range p.live {
			h.Last = max(h.Last, n.At)
		}
	case notedFailed:
		delete(p.live, key)
	case notedBeat:
		p.beat = n
	case notedEnd:
		delete(p.live, key)
		if h := p.holds[key]; h != nil {
			h.Last, h.Killed = max(h.Last, n.Since), false
		}
		g.ends[key] = n.At
		if g.owners[n.Partition].token == n.Token {
			delete(g.owners, n.Partition)
		}
	case notedStats:
		p.stats = *n.Stats
	case notedLost:
		if p.paused {
			return // as it must
		}
		g.lost = append(g.lost, p.Name+": "+n.Text)
	case notedLeft:
		p.left, p.dead = &n, true
	}
}

// living returns the workers that are there. The caller holds mu.
func (g *group) living() (all []*process) {
	for _, p := range g.all {
		if !p.dead {
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
		if !s.Joined || s.Members != len(living) || s.Held != s.Planned || s.Surplus+s.Claiming+s.MovingIn > 0 ||
			s.Epoch != living[0].stats.Epoch {
			return false
		}
	}
	return g.whole()
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

// whole says that all partitions have an owner. The caller holds mu.
func (g *group) whole() bool { return g.owned() == g.size.Partitions }

// patience bounds every wait for the group.
const patience = 90 * time.Second

// until waits until something is so. The condition is called with mu held.
func (g *group) until(ctx context.Context, what string, holds func() bool) error {
	so := false
	wait.Within(ctx, patience, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		so = g.failed == nil && holds()
		return so || g.failed != nil
	})
	if so {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.failed, context.Cause(ctx), fmt.Errorf("not so within %v: %s; %d workers, %d partitions owned",
		patience, what, len(g.living()), g.owned()))
}

// beats returns the last heartbeat of each worker that lives.
func (g *group) beats() map[*process]note {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[*process]note{}
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
	for _, p := range g.all {
		p.Kill()
	}
	l := &trial.Log{}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.all {
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

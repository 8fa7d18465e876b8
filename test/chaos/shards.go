// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/harness/machine"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
)

// size is how much the steps of a shards run do.
type size struct {
	peers.Timing
	Workers    int
	Partitions int
	Kills      int           // of a worker; and one of the coordinator
	Write      time.Duration // how often a handler writes to the resource
	Drain      time.Duration // how long it works on after its context ended
	Quick      bool          // the times mean nothing
}

// manyClaims is how many claims a worker has under way where there are many workers.
const manyClaims = 16

var (
	full = size{
		Timing:  peers.Timing{Lease: 5 * time.Second, Heartbeat: time.Second, Refresh: 500 * time.Millisecond},
		Workers: 20, Partitions: 2000, Kills: 2,
		Write: 4 * time.Second, Drain: 20 * time.Millisecond,
	}
	quick = size{
		Timing:  peers.Timing{Lease: 4 * time.Second, Heartbeat: time.Second / 2, Refresh: time.Second / 4},
		Workers: 4, Partitions: 60, Kills: 1,
		Write: time.Second, Drain: 20 * time.Millisecond, Quick: true,
	}
)

// measureShards measures package shard on each engine: workers of a group, a process each, are
// killed, stopped and started again. It fails if a partition is ever owned twice, or is without an
// owner for too long. Like its steps it is for [must.Try].
func measureShards(ctx context.Context, engines []string, size size, say func(string, ...any)) *results {
	all := &results{Machine: machine.Here(), Setting: size}
	for _, engine := range engines {
		f := &finding{Store: "SQLite, a file"}
		if kind, err := launcher.Find(engine); err == nil {
			f.Store = fmt.Sprintf("DynamoDB's API: %s %s, on loopback", kind.Name, kind.Version)
		}
		var scope peers.Scope
		scope.Run(func() {
			dir := must.Have(os.MkdirTemp("", "tenure-chaos-shards-"))
			scope.After(func() { _ = os.RemoveAll(dir) }) // it is the system's to clean, then
			f.measure(ctx, plan{Engine: engine}.open(ctx, dir, &scope), dir, size, say)
		})
		all.Stores = append(all.Stores, f)
	}
	all.Machine.LoadAfter = machine.Load()
	return all
}

// measure runs all steps on one store.
func (f *finding) measure(ctx context.Context, on engine, dir string, size size, say func(string, ...any)) {
	watch := must.Have(replica.NewWatch())
	f.Date = time.Now().UTC().Format(time.DateTime) + " UTC"
	for i, play := range []func(context.Context, *group, func(string, ...any)){f.many, f.alone} {
		g := &group{
			size: size, name: fmt.Sprint("group-", i), store: on.store(-1), dir: dir, now: watch,
			to: trial.OpenResource(watch, false), ends: map[trial.Term]int64{}, owners: map[string]begun{},
		}
		err := must.Try(func() {
			play(ctx, g, func(format string, args ...any) { say(f.Store+": "+format, args...) })
		})
		log, closed := g.close()
		g.to.Close()
		f.take(log)
		f.Lost = append(f.Lost, g.lost...)
		if err := errors.Join(err, closed); err != nil {
			f.miss("%s: %v", g.name, err)
		}
	}
	f.judge(size)
	must.Do(context.Cause(ctx))
}

// many runs a group whose workers are killed, paused and restarted, and leave and join.
func (f *finding) many(ctx context.Context, g *group, say func(string, ...any)) {
	for _, s := range []struct {
		name string
		run  func(context.Context, *group)
	}{
		{"fill", f.fill},
		{"kill", f.killings},
		{"pause", f.pausing},
		{"leave", f.leaving},
		{"join", func(ctx context.Context, g *group) {
			f.during(ctx, g, oneComes, nil, func() { g.start(ctx, 0, manyClaims) }, g.settled)
		}},
		{"roll", f.rolling},
	} {
		began := time.Now()
		s.run(ctx, g)
		g.until(ctx, "all partitions are where they are planned", g.settled)
		say("%s: %.1f s", s.name, time.Since(began).Seconds())
	}
}

func (f *finding) fill(ctx context.Context, g *group) {
	began := g.now()
	for range g.size.Workers {
		g.start(ctx, 0, manyClaims)
	}
	g.until(ctx, "all partitions are owned", g.whole)
	f.Filled = seconds(g.now() - began)
}

// during calls f, which may end a worker, and notes the effect: when others had all partitions of
// the lost worker; or, without a loss, what moved until all was as planned.
func (f *finding) during(ctx context.Context, g *group, what string, lost *worker, do func(), so func() bool) {
	g.mu.Lock()
	had := g.of(lost)
	g.begins = nil
	g.mu.Unlock()
	began := g.now()
	do()
	g.until(ctx, "all is as it is to be after "+what, so)
	c := change{What: what, Took: seconds(g.now() - began)}
	if lost == nil {
		g.until(ctx, "all is as planned after "+what, g.settled)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if lost != nil {
		c.lost(g, lost, had, began)
	} else {
		c.moved(g)
	}
	f.Changes = append(f.Changes, c)
}

// lost notes when others had all partitions of a worker. They had to see that it shows no life
// for what was left of its lease, and to look. The caller holds mu.
func (c *change) lost(g *group, lost *worker, had map[string]begun, began int64) {
	c.Partitions, c.Took = len(had), 0
	c.Lease = g.size.Lease.Seconds() - seconds(began-lost.beat.From)
	c.Expected = c.Lease + g.size.Refresh.Seconds()
	for _, b := range g.begins {
		if _, had := had[b.lock]; had && b.by != lost {
			c.Took = max(c.Took, seconds(b.at-began))
		}
	}
}

// moved reports what began after the orderly end of another handler. The caller
// holds mu.
func (c *change) moved(g *group) {
	c.Share = float64(g.size.Partitions) / float64(g.size.Workers)
	times := map[string]int{}
	var gaps []float64
	for _, b := range g.begins {
		times[b.lock]++
		c.Most = max(c.Most, times[b.lock])
		if before := g.ends[trial.Hold{Lock: b.lock, Token: b.token - 1}.Term()]; before > 0 {
			gaps = append(gaps, seconds(b.at-before))
		}
	}
	c.Moves, c.Gaps = len(g.begins), stretchOf(gaps)
}

// killings kills workers, each started again before the next, and then the coordinator.
func (f *finding) killings(ctx context.Context, g *group) {
	for i := range g.size.Kills + 1 {
		what, living := "SIGKILL of the coordinator", g.workers()
		at := slices.IndexFunc(living, func(w *worker) bool { return w.stats.Coordinator })
		if at < 0 {
			must.Do(errors.New("no worker coordinates"))
		}
		victim := living[at]
		if i < g.size.Kills { // not the coordinator, not the worker that was started last
			what, victim = fmt.Sprintf("%s (%d)", killOfWorker, i+1), living[(at+1+i)%len(living)]
		}
		f.during(ctx, g, what, victim, func() { g.kill(victim) }, g.whole)
		g.start(ctx, 0, manyClaims)
		g.until(ctx, "all partitions are where they are planned", g.settled)
	}
}

// pausing stops a worker for two leases, as a machine that hangs, and lets it go
// on: its handlers do not know yet that others have what they had.
func (f *finding) pausing(ctx context.Context, g *group) {
	living := g.workers()
	victim := living[len(living)/2]
	g.mu.Lock()
	victim.paused = true
	g.mu.Unlock()
	began := time.Now()
	stop := func() { must.Do(victim.Hang()) }
	elsewhere := func() bool { return len(g.owners) == g.size.Partitions && len(g.of(victim)) == 0 }
	defer victim.Continue()
	f.during(ctx, g, "SIGSTOP of a worker", victim, stop, elsewhere)
	must.Do(wait.For(ctx, 2*g.size.Lease-time.Since(began)))
}

// leaving has one worker leave in order.
func (f *finding) leaving(ctx context.Context, g *group) {
	living := g.workers()
	leave := func() { g.leave(ctx, living[len(living)/3]) }
	f.during(ctx, g, plannedLeave, nil, leave, func() bool { return true })
}

// leave has a worker leave, and waits until it has.
func (g *group) leave(ctx context.Context, w *worker) {
	must.Do(w.SendLine(replica.OrderEnd))
	g.until(ctx, "a worker has left", func() bool { return w.left != nil })
	if w.left.Text != "" {
		must.Do(fmt.Errorf("%s left: %s", w.name, w.left.Text))
	}
}

// rolling restarts the workers one after the other, each when the one before has joined.
func (f *finding) rolling(ctx context.Context, g *group) {
	f.during(ctx, g, rollingRestart, nil, func() {
		for _, w := range g.workers() {
			g.leave(ctx, w)
			next := g.start(ctx, 0, manyClaims)
			g.until(ctx, "a worker that was started again has joined", func() bool { return next.stats.Joined })
		}
	}, g.settled)
}

// alone kills a worker that has all partitions, by its weight, while two others have none.
func (f *finding) alone(ctx context.Context, g *group, _ func(string, ...any)) {
	for _, weight := range []float64{1e6, 1e-3, 1e-3} {
		g.start(ctx, weight, 64) // so many claims a worker of a group has under way by default
		g.until(ctx, "one worker has all partitions", g.settled)
	}
	f.during(ctx, g, "SIGKILL of the worker that has all", g.all[0], func() { g.kill(g.all[0]) }, g.whole)
}

// group is a group of worker processes, and what they have reported.
type group struct {
	size             size
	name, store, dir string
	now              func() int64
	to               *trial.Resource

	mu     sync.Mutex
	all    []*worker
	begins []begun              // since the last reset
	ends   map[trial.Term]int64 // when handlers returned, since the start
	owners map[string]begun     // of each partition: the last one, until it ends
	lost   []string
	failed error
}

// begun says that a handler has begun.
type begun struct {
	lock  string
	token uint64
	by    *worker
	at    int64
}

// worker is one life of a worker.
type worker struct {
	process

	// What follows is guarded by mu of the group.
	beat   replica.Line // its last heartbeat
	dead   bool         // killed, or left
	paused bool         // at some time
	stats  shard.Stats
	left   *replica.Line // nil while it is there
}

// start starts a worker, and does not wait until it has joined. The weight 0 is the usual one.
func (g *group) start(ctx context.Context, weight float64, claims int) *worker {
	// Nothing is noted about a worker that is not known yet.
	g.mu.Lock()
	defer g.mu.Unlock()
	w := &worker{process: process{name: fmt.Sprintf("worker-%d", len(g.all)+1)}}
	c := replica.Config{
		Name: w.name, Do: replica.Work, Store: g.store, Resource: g.to.URL(), Lease: g.size.Lease,
		Page: filepath.Join(g.dir, g.name+w.name),
		Group: &replica.Group{
			Timing: g.size.Timing, Name: g.name, Partitions: g.size.Partitions, Weight: weight, Claims: claims,
			Write: g.size.Write, Drain: g.size.Drain,
		},
	}
	must.Do(w.startReplica(c, proc.Command{Ended: func(state *os.ProcessState) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !w.dead {
			g.failed = errors.Join(g.failed, fmt.Errorf("%s has ended: %v\n%s", w.name, state, w.Stderr()))
		}
		w.dead = true
	}}, func(l replica.Line) { g.heard(w, l) }))
	context.AfterFunc(ctx, w.Kill)
	g.all = append(g.all, w)
	return w
}

// heard notes a line.
func (g *group) heard(w *worker, l replica.Line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch l.Kind {
	case replica.Trouble:
		g.failed = errors.Join(g.failed, fmt.Errorf("%s: %s", w.name, l.Text))
	case replica.Granted:
		b := begun{l.Lock, l.Token, w, l.To}
		g.begins = append(g.begins, b)
		if g.owners[l.Lock].token < l.Token {
			g.owners[l.Lock] = b
		}
	case replica.Beat:
		w.beat = l
	case replica.Ended:
		g.ends[trial.Hold{Lock: l.Lock, Token: l.Token}.Term()] = l.At
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

// workers returns the running workers.
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

// settled reports whether all is as planned: every worker is in the membership, and has exactly
// its planned partitions. The caller holds mu.
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

// of returns what a worker has. The caller holds mu.
func (g *group) of(w *worker) map[string]begun {
	has := maps.Clone(g.owners)
	maps.DeleteFunc(has, func(_ string, b begun) bool { return b.by != w })
	return has
}

// whole reports whether all partitions have an owner. The caller holds mu.
func (g *group) whole() bool { return g.owned() == g.size.Partitions }

// patience bounds every wait for the group.
const patience = 90 * time.Second

// until waits for a condition. It is called with mu held.
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

// kill kills a worker.
func (g *group) kill(w *worker) {
	g.mu.Lock()
	w.dead = true
	g.mu.Unlock()
	w.Kill()
}

// close ends all workers, and returns the log of what they did.
func (g *group) close() (*trial.Log, error) {
	for _, w := range g.all {
		g.kill(w) // nothing is heard of it any more
	}
	effects, bad := g.to.Seen()
	v := newVerdict(effects)
	for _, w := range g.all {
		w.read(v, func(string, int64, int64) bool { return false })
	}
	if v.log.EndKilled(); len(bad) > 0 {
		return v.log, errors.New(strings.Join(bad, "\n"))
	}
	return v.log, nil
}

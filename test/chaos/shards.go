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
	"slices"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/test/bed/machine"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/peers"
)

// size is how much the scenes of shards do.
type size struct {
	peers.Timing
	Workers    int
	Partitions int
	Claims     int           // that a worker has under way, where there are many workers
	Kills      int           // of a worker; and one of the coordinator
	Steady     time.Duration // in which requests are counted
	Write      time.Duration // how often a handler writes to the resource
	Drain      time.Duration // how long it works on when it is told to stop
	Quick      bool          // the times mean nothing
}

var (
	full = size{
		Timing:  peers.Timing{Lease: 5 * time.Second, Heartbeat: time.Second, Refresh: 500 * time.Millisecond},
		Workers: 20, Partitions: 2000, Claims: 16, Kills: 2,
		Steady: 10 * time.Second, Write: 4 * time.Second, Drain: 20 * time.Millisecond,
	}
	quick = size{
		Timing:  peers.Timing{Lease: 4 * time.Second, Heartbeat: time.Second / 2, Refresh: time.Second / 4},
		Workers: 4, Partitions: 60, Claims: 16, Kills: 1,
		Steady: 2 * time.Second, Write: time.Second, Drain: 20 * time.Millisecond, Quick: true,
	}
)

// measureShards measures package shard on each engine: workers of a group, a process each, are
// killed, stopped and started again. It fails if a partition is ever owned twice, or is without an
// owner for too long.
func measureShards(ctx context.Context, engines []string, size size, say func(string, ...any)) (*results, error) {
	all := &results{Machine: machine.Here(), Setting: size}
	for _, engine := range engines {
		f := &finding{Store: "SQLite, a file", Watch: engine == fileEngine}
		if kind, err := launcher.Find(engine); err == nil {
			f.Store = fmt.Sprintf("DynamoDB's API: %s %s, on loopback", kind.Name, kind.Version)
		}
		if err := f.measure(ctx, engine, size, say); err != nil {
			return nil, err
		}
		all.Stores = append(all.Stores, f)
	}
	all.Machine.LoadAfter = machine.Load()
	return all, nil
}

// measure makes all scenes on one store.
func (f *finding) measure(ctx context.Context, engine string, size size, say func(string, ...any)) (err error) {
	dir, err := os.MkdirTemp("", "tenure-chaos-shards-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	on, err := plan{Engine: engine}.open(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, on.close()) }()
	watch, err := replica.NewWatch()
	if err != nil {
		return err
	}
	began := time.Now()
	f.Date, f.LoadBefore = began.UTC().Format(time.DateTime)+" UTC", machine.Load()
	for _, part := range []struct {
		name string
		run  func(context.Context, *group, func(string, ...any)) error
	}{{"many", f.many}, {"alone", f.alone}} {
		g := &group{
			size: size, name: part.name, store: on.store(-1), dir: dir, now: watch.Now,
			to: trial.OpenResource(watch.Now, false), ends: map[stint]int64{}, owners: map[string]begun{},
		}
		err := part.run(ctx, g, func(format string, args ...any) { say(f.Store+": "+format, args...) })
		log, closed := g.close()
		g.to.Close()
		f.take(log)
		f.Lost = append(f.Lost, g.lost...)
		if err := errors.Join(err, closed); err != nil {
			f.miss("%s: %v", part.name, err)
			break
		}
	}
	f.Took, f.LoadAfter = time.Since(began).Seconds(), machine.Load()
	f.judge(size)
	return context.Cause(ctx)
}

// many has a group of workers be killed, paused, left, joined and started again.
func (f *finding) many(ctx context.Context, g *group, say func(string, ...any)) error {
	for _, s := range []struct {
		name string
		run  func(context.Context, *group) error
	}{
		{"fill", f.fill},
		{"steady", f.rest},
		{"kill", f.killings},
		{"pause", f.pausing},
		{"leave", f.leaving},
		{"join", f.joining},
		{"roll", f.rolling},
	} {
		began := time.Now()
		err := s.run(ctx, g)
		if err == nil {
			err = g.until(ctx, "all partitions are where they are planned", g.settled)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		say("%s: %.1f s", s.name, time.Since(began).Seconds())
	}
	return nil
}

func (f *finding) fill(ctx context.Context, g *group) error {
	began := g.now()
	for range g.size.Workers {
		if _, err := g.start(ctx, 0, g.size.Claims); err != nil {
			return err
		}
	}
	err := g.until(ctx, "all partitions are owned", g.whole)
	f.Filled = seconds(g.now() - began)
	return err
}

// rest counts what is asked of the store while nothing changes: from one heartbeat of each worker
// to a later one.
func (f *finding) rest(ctx context.Context, g *group) error {
	if err := wait.For(ctx, 2*g.size.Heartbeat); err != nil { // until one of all comes that is of the rest
		return err
	}
	before := g.beats()
	if err := wait.For(ctx, g.size.Steady); err != nil {
		return err
	}
	f.Steady.For = g.size.Steady.Seconds()
	for p, now := range g.beats() {
		d := seconds(now.From - before[p].From)
		if d == 0 {
			return fmt.Errorf("%s has no heartbeat in %v", p.name, g.size.Steady)
		}
		f.Steady.Reads += float64(now.Reads-before[p].Reads) / d
		f.Steady.Writes += float64(now.Writes-before[p].Writes) / d
	}
	return nil
}

// during has something happen, by which a worker may be lost, and notes what it has led to: when
// others had all that the lost one had; or, if none is lost, what has moved until all is as
// planned.
func (f *finding) during(ctx context.Context, g *group, what string, lost *worker, do func() error,
	so func() bool,
) error {
	g.mu.Lock()
	had := maps.Clone(g.owners)
	maps.DeleteFunc(had, func(_ string, b begun) bool { return b.by != lost })
	g.begins = nil
	g.mu.Unlock()
	began := g.now()
	err := do()
	if err == nil {
		err = g.until(ctx, "all is as it is to be after "+what, so)
	}
	if err != nil {
		return err
	}
	c := change{What: what, Took: seconds(g.now() - began)}
	if lost == nil {
		if err := g.until(ctx, "all is as planned after "+what, g.settled); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if lost != nil {
		c.lost(g, lost, had, began)
	} else {
		c.moved(g)
	}
	f.Changes = append(f.Changes, c)
	return nil
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

// moved tells of what has begun, which handlers that ended in order have made way for. The caller
// holds mu.
func (c *change) moved(g *group) {
	c.Share = float64(g.size.Partitions) / float64(g.size.Workers)
	times := map[string]int{}
	var gaps []float64
	for _, b := range g.begins {
		times[b.lock]++
		c.Most = max(c.Most, times[b.lock])
		if before := g.ends[stint{b.lock, b.token - 1}]; before > 0 {
			gaps = append(gaps, seconds(b.at-before))
		}
	}
	c.Moves, c.Gaps = len(g.begins), stretchOf(gaps)
}

// killings kills workers, each started again before the next, and then the
// coordinator.
func (f *finding) killings(ctx context.Context, g *group) error {
	for i := range g.size.Kills + 1 {
		what := "SIGKILL of the coordinator"
		g.mu.Lock()
		living := g.living()
		at := slices.IndexFunc(living, func(p *worker) bool { return p.stats.Coordinator })
		g.mu.Unlock()
		if at < 0 {
			return errors.New("nobody coordinates")
		}
		victim := living[at]
		if i < g.size.Kills { // not the coordinator, not the one that was started last
			what, victim = fmt.Sprintf("%s (%d)", killOfWorker, i+1), living[(at+1+i)%len(living)]
		}
		if err := f.during(ctx, g, what, victim, victim.end, g.whole); err != nil {
			return err
		}
		if _, err := g.start(ctx, 0, g.size.Claims); err != nil {
			return err
		}
		if err := g.until(ctx, "all partitions are where they are planned", g.settled); err != nil {
			return err
		}
	}
	return nil
}

// end kills a worker.
func (p *worker) end() error {
	p.g.mu.Lock()
	p.dead = true
	p.g.mu.Unlock()
	p.Kill()
	return nil
}

// pausing stops a worker for two leases, as a machine that hangs, and lets it go
// on: its handlers do not know yet that others have what they had.
func (f *finding) pausing(ctx context.Context, g *group) error {
	g.mu.Lock()
	living := g.living()
	victim := living[len(living)/2]
	victim.paused = true
	g.mu.Unlock()
	began := time.Now()
	stop := func() error { return victim.Signal(syscall.SIGSTOP) }
	elsewhere := func() bool { return len(g.owners) == g.size.Partitions && g.held(victim) == 0 }
	err := f.during(ctx, g, "SIGSTOP of a worker", victim, stop, elsewhere)
	if err == nil {
		err = wait.For(ctx, 2*g.size.Lease-time.Since(began))
	}
	return errors.Join(err, victim.Continue())
}

// leaving has one worker leave in order.
func (f *finding) leaving(ctx context.Context, g *group) error {
	g.mu.Lock()
	living := g.living()
	g.mu.Unlock()
	leave := func() error { return g.leave(ctx, living[len(living)/3]) }
	return f.during(ctx, g, plannedLeave, nil, leave, func() bool { return true })
}

// leave has a worker leave, and waits until it has.
func (g *group) leave(ctx context.Context, p *worker) error {
	if err := p.SendLine(replica.OrderEnd); err != nil {
		return err
	}
	if err := g.until(ctx, "a worker has left", func() bool { return p.left != nil }); err != nil {
		return err
	}
	if p.left.Text != "" {
		return fmt.Errorf("%s left: %s", p.name, p.left.Text)
	}
	return nil
}

// joining has one worker come.
func (f *finding) joining(ctx context.Context, g *group) error {
	come := func() error { _, err := g.start(ctx, 0, g.size.Claims); return err }
	return f.during(ctx, g, oneComes, nil, come, g.settled)
}

// rolling starts each worker again, one after the other, each when the one before
// is on the roll.
func (f *finding) rolling(ctx context.Context, g *group) error {
	g.mu.Lock()
	living := g.living()
	g.mu.Unlock()
	restart := func() error {
		for _, p := range living {
			if err := g.leave(ctx, p); err != nil {
				return err
			}
			next, err := g.start(ctx, 0, g.size.Claims)
			if err != nil {
				return err
			}
			if err := g.until(ctx, "a worker that was started again has joined",
				func() bool { return next.stats.Joined }); err != nil {
				return err
			}
		}
		return nil
	}
	return f.during(ctx, g, rollingRestart, nil, restart, g.settled)
}

// alone kills a worker that has all partitions, by its weight, while two others have none.
func (f *finding) alone(ctx context.Context, g *group, _ func(string, ...any)) error {
	for _, weight := range []float64{1e6, 1e-3, 1e-3} {
		// So many claims a worker of a group has under way by default.
		if _, err := g.start(ctx, weight, 64); err != nil {
			return err
		}
		if err := g.until(ctx, "one worker has all partitions", g.settled); err != nil {
			return err
		}
	}
	return f.during(ctx, g, "SIGKILL of one that has all", g.all[0], g.all[0].end, g.whole)
}

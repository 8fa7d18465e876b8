// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// many has a group of workers be killed, paused, left, joined and started again.
func (f *finding) many(ctx context.Context, g *group, say func(string, ...any)) error {
	steps := []struct {
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
	}
	for _, s := range steps {
		began := time.Now()
		if err := s.run(ctx, g); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		say("%s: %.1f s", s.name, time.Since(began).Seconds())
	}
	return nil
}

func (f *finding) fill(ctx context.Context, g *group) error {
	began := proc.Monotonic()
	for range g.size.workers {
		if _, err := g.start(ctx, nil); err != nil {
			return err
		}
	}
	if err := g.until(ctx, "all partitions are owned",
		func() bool { return g.owned() == g.size.partitions }); err != nil {
		return err
	}
	f.Filled.Owned = seconds(proc.Monotonic() - began)
	return g.untilSettled(ctx)
}

// rest counts what is asked of the store while nothing changes.
func (f *finding) rest(ctx context.Context, g *group) error {
	reads, writes, err := g.count(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := wait.For(ctx, g.size.steady); err != nil {
		return err
	}
	d := time.Since(began).Seconds()
	moreReads, moreWrites, err := g.count(ctx)
	f.Steady = steady{d, float64(moreReads-reads) / d, float64(moreWrites-writes) / d}
	return err
}

// killings kills workers, each started again before the next, and then the
// coordinator.
func (f *finding) killings(ctx context.Context, g *group) error {
	for i := range g.size.kills + 1 {
		what := killOfWorker
		g.mu.Lock()
		victim := g.coordinator()
		if i < g.size.kills {
			living := g.living()
			at := slices.Index(living, victim)
			victim = living[(at+1+i)%len(living)] // not the coordinator, not the one that was started last
		} else {
			what = "SIGKILL of the coordinator"
		}
		g.mu.Unlock()
		if victim == nil {
			return errors.New("nobody coordinates")
		}
		r, err := g.recover(ctx, what, victim)
		if err != nil {
			return err
		}
		f.Recoveries = append(f.Recoveries, r)
		if _, err := g.start(ctx, nil); err != nil {
			return err
		}
		if err := g.untilSettled(ctx); err != nil {
			return err
		}
	}
	return nil
}

// recover kills a worker, and waits until others have what it had.
func (g *group) recover(ctx context.Context, what string, victim *process) (recovery, error) {
	g.mu.Lock()
	victim.dead = true
	g.mu.Unlock()
	r, err := g.strike(what, victim, func() error { victim.Kill(); return nil })
	if err != nil {
		return r, err
	}
	if err := g.until(ctx, "all partitions are owned after "+what,
		func() bool { return g.owned() == g.size.partitions }); err != nil {
		return r, err
	}
	r.owned(g.reset())
	return r, nil
}

// strike takes a worker out by a blow, and notes what it had then.
func (g *group) strike(what string, victim *process, blow func() error) (recovery, error) {
	r := recovery{What: what, gone: victim}
	g.mu.Lock()
	for id, b := range g.owners {
		if b.by == victim {
			r.had = append(r.had, id)
		}
	}
	g.mu.Unlock()
	g.reset()
	r.since = proc.Monotonic()
	if err := blow(); err != nil {
		return r, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r.Partitions, r.Lease = len(r.had), g.size.Lease.Seconds()-seconds(r.since-victim.beat)
	r.Expected = r.Lease + g.size.Refresh.Seconds()
	return r, nil
}

// owned notes when others had all partitions of the worker that is gone.
func (r *recovery) owned(begins []begun) {
	for _, b := range begins {
		if b.by != r.gone && slices.Contains(r.had, b.partition) {
			r.Took = max(r.Took, seconds(b.at-r.since))
		}
	}
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
	r, err := g.strike("SIGSTOP of a worker", victim, func() error { return victim.Signal(syscall.SIGSTOP) })
	if err != nil {
		return err
	}
	elsewhere := func() bool {
		return !slices.ContainsFunc(r.had, func(id int) bool { b, ok := g.owners[id]; return !ok || b.by == victim })
	}
	err = g.until(ctx, "all partitions of a paused worker are owned by others", elsewhere)
	begins := g.reset() // before it goes on, and its partitions come back to it
	if err == nil {
		err = wait.For(ctx, 2*g.size.Lease-time.Since(began))
	}
	if err := errors.Join(err, victim.Continue()); err != nil {
		return err
	}
	r.owned(begins)
	f.Recoveries = append(f.Recoveries, r)
	return g.untilSettled(ctx)
}

// leaving has one worker leave in order.
func (f *finding) leaving(ctx context.Context, g *group) error {
	g.mu.Lock()
	living := g.living()
	leaver := living[len(living)/3]
	share := g.held(leaver)
	g.mu.Unlock()
	return f.Leave.during(ctx, g, float64(share), func() error { return g.leave(ctx, leaver) })
}

// leave has a worker leave, and waits until it has.
func (g *group) leave(ctx context.Context, p *process) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := g.until(ctx, "a worker has left", func() bool { return p.left != nil }); err != nil {
		return err
	}
	if p.left.Text != "" {
		return fmt.Errorf("%s left: %s", p.Name, p.left.Text)
	}
	return nil
}

// joining has one worker come.
func (f *finding) joining(ctx context.Context, g *group) error {
	return f.Join.during(ctx, g, g.share(), func() error {
		if _, err := g.start(ctx, nil); err != nil {
			return err
		}
		return g.untilSettled(ctx)
	})
}

// rolling starts each worker again, one after the other, each when the one before
// is on the roll.
func (f *finding) rolling(ctx context.Context, g *group) error {
	g.mu.Lock()
	living := g.living()
	g.mu.Unlock()
	return f.Roll.during(ctx, g, g.share(), func() error {
		for _, p := range living {
			if err := g.leave(ctx, p); err != nil {
				return err
			}
			next, err := g.start(ctx, nil)
			if err != nil {
				return err
			}
			if err := g.until(ctx, "a worker that was started again has joined",
				func() bool { return next.stats.Joined }); err != nil {
				return err
			}
		}
		return g.untilSettled(ctx)
	})
}

// share is how many partitions a worker is to have.
func (g *group) share() float64 { return float64(g.size.partitions) / float64(g.size.workers) }

// during takes the time of a change, and tells of what it has moved once all is as
// planned.
func (m *moving) during(ctx context.Context, g *group, share float64, change func() error) error {
	g.reset()
	began := time.Now()
	if err := change(); err != nil {
		return err
	}
	m.Took, m.Share = time.Since(began).Seconds(), share
	if err := g.untilSettled(ctx); err != nil {
		return err
	}
	m.sum(g)
	return nil
}

// sum tells of what has begun since the last reset, which handlers that ended in
// order have made way for.
func (m *moving) sum(g *group) {
	begins := g.reset()
	m.Most, m.Moves = times(begins)
	g.mu.Lock()
	defer g.mu.Unlock()
	var gaps []float64
	for _, b := range begins {
		if before := g.ends[stint{b.partition, b.token - 1}]; before > 0 {
			gaps = append(gaps, seconds(b.at-before))
		}
	}
	m.Gaps = stretchOf(gaps)
}

// The weights are of the one that is to have all, and of the others.
const (
	heavyWeight = 1e6
	lightWeight = 1e-3
	// claimsAtOnce is how many claims a worker of a group has under way, by default.
	claimsAtOnce = 64
)

// alone kills a worker that has all partitions, while two others have none.
func (f *finding) alone(ctx context.Context, g *group, _ func(string, ...any)) error {
	var heavy *process
	for i, weight := range []float64{heavyWeight, lightWeight, lightWeight} {
		p, err := g.start(ctx, func(t *task) { t.Weight, t.Claims = weight, claimsAtOnce })
		if err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		heavy = p
		if err := g.untilSettled(ctx); err != nil {
			return err
		}
	}
	if err := g.untilSettled(ctx); err != nil {
		return err
	}
	var err error
	f.Lone, err = g.recover(ctx, "SIGKILL of a worker with all partitions", heavy)
	return err
}

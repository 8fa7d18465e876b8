// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
)

// replicas is the workload of replicas that contend for one lock.
//
// If there are writers, it is that of readers and writers of one register. Writers write it in two
// steps, a half and the whole. No reader whose lease is good sees it change, or a half, unless it
// was told that the last writer had not ended well.
//
// Or it is that of jobs, each run once for each occasion of a schedule. The schedule is by the wall
// clock of the process that asks.
type replicas struct {
	*round
	writers   int
	jobs      bool
	ends      []string      // what readers, writers and jobs must have come to
	bootAhead int64         // by how much the boot clock is ahead of the monotonic clock
	record    driver.Record // of the lock, at the end

	mu      sync.Mutex // guards the fields below
	leading holder
	of      trial.Term // that of the leading one
	highest map[string]uint64
	came    map[string]int // what readers, writers and jobs came to
	gone    int            // replicas that found the store gone
}

// newReplicas returns a workload whose first processes are writers, and the others readers; if
// there are no writers, all contend for one lock, or run jobs.
func newReplicas(writers int, jobs bool) func(*round) workload {
	return func(r *round) workload {
		w := &replicas{
			round: r, writers: writers, jobs: jobs, bootAhead: replica.Slept(), highest: map[string]uint64{},
			came: map[string]int{},
		}
		switch {
		case jobs:
			w.ends = []string{"in-order run", "redo run", "every run"}
		case writers > 0:
			w.ends = []string{"whole", "written"}
		}
		return w
	}
}

func (w *replicas) open(ctx context.Context) engine {
	w.now = must.Have(replica.NewWatch())
	return w.plan.open(ctx, w.dir, &w.Scope)
}

func (w *replicas) seat(index int) string { return fmt.Sprintf("r%d", index+1) }

func (w *replicas) faults() []fault {
	all := append(slices.Clone(commonFaults), replicaFaults...)
	if w.writers > 0 { // readers learn what a death leaves
		all = append(all, slices.Repeat(commonFaults, 2)...)
	}
	if w.namespaces {
		all = append(all, fault{namespace, anyone, 0.1, 0.5, nil})
	}
	if e, is := w.engine.(*lossy); is {
		// That tokens rise over a loss rests on the wall clocks of processes.
		all = slices.DeleteFunc(all, func(f fault) bool { return traits[f.kind].moves.WallOn != 0 })
		if e.servers.Fsync == "everysec" {
			all = append(all, fault{empty, nobody, 0.1, 0.5, w.emptied(e)})
		}
	}
	return all
}

func (w *replicas) beside(context.Context) {}

// start starts a replica, whose lines are heard until it ends.
func (w *replicas) start(_ context.Context, s *seat, p *process) {
	life := uint64(s.index<<16 + len(s.lives) + 1)
	p.rate = w.drawRate(life)
	c := replica.Config{
		Name: p.name, Store: w.engine.store(s.index), Resource: w.resource.URL(), Lease: w.Lease,
		Seed: w.Seed ^ life, Rate: p.rate, Page: filepath.Join(w.dir, p.name+".clocks"),
	}
	switch {
	case w.jobs:
		c.Do = replica.Jobs
	case s.index < w.writers:
		c.Do = replica.Write
	case w.writers > 0:
		c.Do = replica.Read
	case s.index%2 == 1:
		c.Do = replica.Lock
	default:
		c.Do = replica.Elect
	}
	p.page = must.Have(replica.OpenPage(c.Page))
	must.Do(p.startReplica(c, proc.Command{
		Args: p.where.command(), Ended: func(*os.ProcessState) { p.ended(w.now) },
	}, func(l replica.Line) { w.heard(p, l) }))
}

// drawRate returns the rate error of a process's clocks: usually nearly as much
// as it may be.
func (w *replicas) drawRate(life uint64) float64 {
	random := rand.New(rand.NewPCG(w.Seed, life))
	rate := w.Drift * (0.6 + 0.4*random.Float64())
	if random.IntN(2) == 0 {
		return -rate
	}
	return rate
}

// heard follows who holds the lock, as far as lines show.
func (w *replicas) heard(p *process, l replica.Line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch l.Kind {
	case replica.Granted:
		if l.Token >= w.highest[l.Lock] {
			w.leading, w.of, w.highest[l.Lock] = holder{p, l.To}, l.Term(), l.Token
		}
	case replica.Ended:
		if w.of == l.Term() {
			w.leading = holder{}
		}
	case replica.Came:
		w.came[l.Text]++
	case replica.Gone:
		w.gone++
	case replica.Stopping:
		time.AfterFunc(w.Lease+rand.N(w.Lease), p.Continue)
	}
}

func (w *replicas) holder() holder {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leading
}

// calm kills the holder once more; readers, writers and jobs go on until all have come to an end,
// jobs to one after the faults.
func (w *replicas) calm(ctx context.Context) {
	if len(w.ends) == 0 {
		allowed := w.Lease
		if e, is := w.engine.(*lossy); is {
			allowed = max(allowed, e.waits) + e.silent
		}
		w.lastBlow(ctx, allowed+2*time.Second)
		return
	}
	w.mu.Lock()
	before := maps.Clone(w.came)
	w.mu.Unlock()
	if !wait.Within(ctx, 2*wait.Bound, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !slices.ContainsFunc(w.ends, func(end string) bool {
			return w.came[end] == 0 || w.jobs && w.came[end] == before[end]
		})
	}) && w.jobs {
		w.trouble("a job does not run when the faults are over: %v, and before %v", w.came, before)
	}
	must.Do(ctx.Err())
}

func (w *replicas) finish(ctx context.Context, p *process) {
	_ = p.SendLine(replica.OrderEnd) // it may have ended
	select {
	case <-p.Ended:
	case <-ctx.Done():
		w.trouble("%s does not end when asked to", p.name)
	}
}

func (w *replicas) collect(ctx context.Context) {
	if len(w.ends) > 0 {
		return
	}
	store := replica.OpenStore(w.engine.store(-1), "")
	defer store.Close() //nolint:errcheck // it was only read
	w.record = must.Have(store.Get(ctx, replica.LockName, driver.Strong))
}

func (w *replicas) read(v *verdict) {
	for _, s := range w.seats {
		for _, p := range s.lives {
			if len(p.lines) > 0 && p.lines[0].Kind == replica.Ready {
				w.judgePlace(v, p, p.lines[0])
			}
			p.read(v, w.blind)
		}
	}
	w.judgeClocks(v)
}

func (w *replicas) check(v *verdict) {
	maps.Copy(v.Counts.Came, w.came)
	if w.gone > 0 && v.Counts.Faults[empty] == 0 {
		v.sin(unexpected, "the store is gone, say %d processes", w.gone)
	}
	if highest := w.highest[replica.LockName]; len(w.ends) == 0 && w.record.Token < highest {
		v.sin(trial.Tokens, "the record has token %d in the end, but %d was granted", w.record.Token, highest)
	}
	for _, end := range w.ends {
		if w.came[end] == 0 {
			v.sin(unexpected, "too little has happened: %v", w.came)
		}
	}
}

// noise is how much readings of moved clocks may differ from what the move
// explains. The smallest move is many times that.
const noise = 25 * time.Millisecond

// judgePlace checks that a process was started in its time namespace, and that
// its time stamps are good there.
func (w *replicas) judgePlace(v *verdict, p *process, ready replica.Line) {
	var want timespace
	if p.where != nil {
		want = *p.where
		v.Counts.Namespaces++
	}
	boot := time.Duration(ready.RawBoot - ready.At)
	// The two clocks of the machine differ by its suspends.
	mono := time.Duration(ready.RawMono - ready.At + w.bootAhead)
	if (boot-time.Duration(want.Boot)*time.Second).Abs() > time.Second ||
		(mono-time.Duration(want.Monotonic)*time.Second).Abs() > time.Second {
		v.sin(hook, "%s was to have a boot clock %d s and a monotonic clock %d s ahead; they are %v and %v",
			p.name, want.Boot, want.Monotonic, boot, mono)
	}
	if ready.At < p.began || p.end > 0 && ready.At > p.end {
		v.sin(hook, "%s was started at %d and says that it runs at %d", p.name, p.began, ready.At)
	}
}

// judgeClocks checks by each replica's lines that its clocks were moved as the
// nemesis meant, at its rate, and that the clock of its locks drew the right
// conclusions: a suspend counts, for a holder a step forward of the wall clock
// counts as well, and a step back does not count.
func (w *replicas) judgeClocks(v *verdict) {
	lives := map[string]*process{}
	for _, s := range w.seats {
		for _, p := range s.lives {
			lives[p.name] = p
		}
	}
	for _, e := range w.events {
		if e.Change == 0 {
			continue
		}
		before, after := around(lives[e.On].lines, e.Change)
		if before == nil || after == nil {
			continue // it was killed before it had looked
		}
		mono, boot, wall := after.Mono-before.Mono, after.Boot-before.Boot, after.Wall-before.Wall
		real := after.RealMono - before.RealMono
		wrong := func(what string, got, want time.Duration) bool {
			if (got - want).Abs() <= noise {
				return false
			}
			v.sin(hook, "%s: %s says that its %s went on by %v while %v passed; %v was to be", e.Text, e.On,
				what, got, real, want)
			return true
		}
		own := func(d time.Duration) time.Duration { return time.Duration(float64(d) * (1 + lives[e.On].rate)) }
		bad := wrong("monotonic clock", mono, own(real-e.Shift.MonoBack))
		bad = wrong("boot clock", boot, own(real-e.Shift.BootBack)) || bad
		bad = wrong("wall clock", wall, own(real+e.Shift.WallOn)) || bad
		bad = wrong("holder's time", after.Holder-before.Holder, boot+max(0, wall-boot)) || bad
		bad = wrong("contender's time", after.Contender-before.Contender, boot) || bad
		if !bad {
			v.Counts.Proved[e.Kind]++
		}
	}
}

// around returns the last reading before a change of the clocks, and the first
// one after it.
func around(lines []replica.Line, change int64) (before, after *replica.Reading) {
	for _, l := range lines {
		switch c := l.Clocks; {
		case c == nil:
		case c.Change == change-1:
			before = c
		case c.Change == change && after == nil:
			after = c
		}
	}
	return before, after
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"context"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// Result is what came of a schedule.
type Result struct {
	Wrong []string       // what must never be, and was
	Log   []string       // all that happened
	Tally map[string]int // how often what happened
}

// Run carries out a plan. Call it inside a synctest bubble, which it leaves
// without a goroutine.
func Run(plan *Plan) Result {
	w := &world{
		plan: plan, begun: time.Now(), records: memstore.New(), ledger: newLedger(),
		tally: map[string]int{}, names: map[string]string{},
	}
	w.storms, w.still = context.WithCancel(context.Background())
	w.referee = newReferee(w)
	w.ledger.told = w.referee.write
	awake := make(chan struct{})
	close(awake)
	for n, s := range plan.Processes {
		p := &process{w: w, n: n, setup: s, clock: newClock(s.Rate), awoken: awake}
		if err := w.start(p); err != nil {
			return Result{Wrong: []string{err.Error()}}
		}
		w.processes = append(w.processes, p)
	}
	for _, s := range plan.Steps {
		sleep(context.Background(), s.At-w.elapsed())
		w.referee.lookAll()
		w.step(s)
	}
	sleep(context.Background(), w.plan.Longest)
	w.settle()
	w.end()
	return Result{Wrong: w.referee.violations(), Log: w.log, Tally: w.tally}
}

// settle stops the faults and what is under way, waits until no write can come
// late any more, and then sees to it that each lock can be taken in time.
func (w *world) settle() {
	w.over.Store(true)
	w.still()
	for _, p := range w.processes {
		w.wake(p, true)
		p.set(func() {
			p.stormy = false
			if p.up != nil {
				p.stop()
			}
		})
	}
	w.acts.Wait()
	sleep(context.Background(), time.Second) // all processes run again
	for _, p := range w.processes {
		for _, ln := range p.lives {
			ln.faults.Wait()
		}
	}
	// Sessions that are still open keep their locks; nobody holds one.
	for i, lock := range w.plan.Locks {
		w.take(w.processes[(int(w.plan.Seed)+i)%len(w.processes)], lock)
	}
}

// take takes a lock that nobody holds, although its record may say so, and
// judges how long that takes.
func (w *world) take(p *process, lock string) {
	rec, found := w.ledger.record(lock)
	o := p.up.client.Options()
	// A dead holder's lease; before it a session's, or its answer that the lock
	// is nobody's; and the looks that find out.
	looks := 4*o.RefreshPeriod + 8*o.RequestTimeout
	bound := looks
	if found && rec.State != driver.Released {
		bound = w.plan.Longest*6/5 + looks
		if rec.Session != "" {
			bound = w.plan.Longest*12/5 + looks
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), 20*w.plan.Longest+looks)
	defer stop()
	began := time.Now()
	l, err := p.up.client.Acquire(ctx, lock, &tenure.AcquireOptions{StoreTimeout: -1})
	took := time.Since(began)
	if err != nil {
		w.referee.wrong("after the faults p%d cannot take %s within %v: %v", p.n, lock, took, err)
		return
	}
	w.logf("p%d takes %s in %v", p.n, lock, took)
	if took > bound {
		w.referee.wrong("after the faults p%d takes %s after %v, want %v (%s, session %t)", p.n, lock, took, bound, rec.State, rec.Session != "")
	}
	h := w.referee.granted(p.up, l)
	w.referee.act(h)
	if err := l.Release(ctx); err != nil {
		w.referee.wrong("after the faults the release of %s fails: %v", lock, err)
	}
}

// end closes everything.
func (w *world) end() {
	for _, p := range w.processes {
		if ln := p.down(); ln != nil {
			w.closing(ln)
		}
	}
	w.ends.Wait()
	w.watchers.Wait()
	for _, p := range w.processes {
		for _, ln := range p.lives {
			if err := ln.faults.Close(); err != nil {
				w.referee.wrong("close of a store: %v", err)
			}
		}
	}
}

// closing closes a client in the background.
func (w *world) closing(ln *line) {
	w.ends.Go(func() {
		// All that a client waits for is bounded: its own stop timeout, and what is
		// sent after that.
		bound := 20 * w.plan.Longest
		ctx, stop := context.WithTimeout(context.Background(), bound)
		defer stop()
		err := ln.client.Close(ctx)
		if ctx.Err() != nil {
			w.referee.wrong("p%d has not closed after %v: %v", ln.p.n, bound, err)
		}
		w.logf("p%d closed its client: %v", ln.p.n, err)
	})
}

// step does what a step says.
func (w *world) step(s Step) {
	p := w.processes[s.Process]
	switch s.Op {
	case OpStorm:
		p.set(func() { p.stormy = !p.stormy })
		w.logf("%v: %t", s, p.stormy) // steps alone change it
		return
	case OpCutOff:
		w.logf("%v", s)
		w.happened("cut off")
		p.set(func() { p.cutOff = true })
		w.after(p.some(s, 3), func() { p.set(func() { p.cutOff = false }) })
		return
	case OpSetRate:
		p.clock.set(rate(s.random(), w.plan.Weather.Drift))
		w.logf("%v", s)
		return
	case OpPause:
		w.pause(p, s)
		return
	case OpCrash, OpClose:
		w.stop(p, s)
		return
	}
	p.mu.Lock()
	ln, ctx := p.up, p.ctx
	if ln == nil || p.busy >= maxBusy {
		p.mu.Unlock()
		return
	}
	p.busy++
	p.mu.Unlock()
	w.logf("%v", s)
	w.happened(string(s.Op))
	w.acts.Go(func() {
		a := &act{w: w, p: p, line: ln, Step: s, r: s.random(), ctx: ctx}
		what := a.do()
		w.logf("#%d p%d %s %s: %s", s.N, p.n, s.Op, s.Lock, what)
		p.set(func() { p.busy-- })
		w.referee.lookAll()
	})
}

// some returns a random duration of so many leases at most.
func (p *process) some(s Step, leases float64) time.Duration {
	return time.Duration(s.random().Float64() * leases * float64(p.setup.Options.LeaseDuration))
}

// after does something after d, or when the schedule is over.
func (w *world) after(d time.Duration, f func()) {
	w.watchers.Go(func() {
		sleep(w.storms, d)
		f()
	})
}

// pause stops a process for a while.
func (w *world) pause(p *process, s Step) {
	if p.clock.state().paused {
		return
	}
	p.clock.pause()
	p.set(func() { p.awoken = make(chan struct{}) })
	w.logf("%v", s)
	w.happened("pause")
	w.after(p.some(s, 3), func() { w.wake(p, s.Seed%2 == 0) })
}

func (w *world) wake(p *process, certain bool) {
	if !p.clock.state().paused {
		return
	}
	p.clock.resume(certain)
	p.set(func() { close(p.awoken) })
	w.logf("p%d goes on", p.n)
	w.referee.lookAll()
}

// stop ends a process, in order or not, and starts it again after a while.
func (w *world) stop(p *process, s Step) {
	p.mu.Lock()
	up := p.up
	p.mu.Unlock()
	if up == nil {
		return
	}
	w.wake(p, true)
	w.logf("%v", s)
	w.happened(string(s.Op))
	if s.Op == OpCrash {
		up.gone.Store(true)
		w.referee.forget(up)
	}
	p.down()
	w.closing(up)
	w.after(p.some(s, 2), func() {
		if err := w.start(p); err != nil {
			w.referee.wrong("%v", err)
		}
		w.logf("p%d starts again", p.n)
	})
}

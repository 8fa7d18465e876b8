// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/tenuretest"
)

// world is a plan being carried out.
type world struct {
	*tenuretest.World
	plan      *Plan
	begun     time.Time
	ledger    *ledger
	referee   *referee
	processes []*process

	storms   context.Context // ends when the faults do
	still    context.CancelFunc
	over     atomic.Bool    // the faults have stopped
	acts     sync.WaitGroup // what steps do
	watchers sync.WaitGroup
	ends     sync.WaitGroup // of clients

	mu    sync.Mutex
	lines map[string]*line // by the name of the client
	log   []string
	names map[string]string // of sessions, by key
	tally map[string]int    // how often what has happened, to see that it does
}

// process is a process that restarts after a crash.
type process struct {
	w     *world
	n     int
	setup Setup

	mu     sync.Mutex
	lives  []*line
	up     *line // nil: it does not run
	ctx    context.Context
	stop   context.CancelFunc
	stormy bool
	cutOff bool
	busy   int // acts under way
	// sessions are the open ones, as far as is known.
	sessions []*tenure.Session

	rate      float64 // of its clock
	steady    bool    // the clock was never wrong by a rate, and the process never paused
	paused    bool
	wasPaused bool // once
	unsure    bool // only the wall clock counts the pause
	since     time.Time
}

// maxBusy bounds how many acts one process has at once.
const maxBusy = 8

func (p *process) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// isPaused reports whether the process is paused, and isSteady whether its clock was
// right all the time.
func (p *process) isPaused() (is bool) { p.set(func() { is = p.paused }); return is }
func (p *process) isSteady() (is bool) { p.set(func() { is = p.steady }); return is }

// Result is the result of a schedule.
type Result struct {
	Wrong []string       // what must never be, and was
	Log   []string       // all that happened
	Tally map[string]int // how often what happened
}

// Run carries out a plan. Call it inside a synctest bubble.
func Run(t testing.TB, plan *Plan) Result {
	w := &world{
		World: tenuretest.New(t, func(o *tenure.Options) { o.Logger = slog.New(slog.DiscardHandler) }),
		plan:  plan, begun: time.Now(), lines: map[string]*line{}, tally: map[string]int{}, names: map[string]string{},
	}
	w.storms, w.still = context.WithCancel(t.Context())
	w.referee = newReferee(w)
	w.ledger = &ledger{writes: map[string][]written{}}
	w.Observe(func(made tenuretest.Write) { w.referee.write(w.ledger.add(made)) })
	w.Wrap(func(name string, s driver.Store) driver.Store {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.lines[name].over(s)
	})
	for n, s := range plan.Processes {
		p := &process{w: w, n: n, setup: s, rate: s.Rate, steady: s.Rate == 1}
		w.processes = append(w.processes, p)
		w.start(p)
	}
	for _, s := range plan.Steps {
		sleep(t.Context(), s.At-w.elapsed())
		w.referee.lookAll()
		w.step(s)
	}
	sleep(t.Context(), w.plan.Longest)
	w.settle()
	for _, p := range w.processes {
		w.closing(p.down())
	}
	w.ends.Wait()
	w.watchers.Wait()
	return Result{Wrong: w.referee.violations(), Log: w.log, Tally: w.tally}
}

func (w *world) elapsed() time.Duration { return time.Since(w.begun) }

func (w *world) owner(n int) string {
	if w.plan.SameOwner {
		return "one"
	}
	return fmt.Sprint("p", n)
}

// start starts a process, for the first time or again.
func (w *world) start(p *process) {
	ln := &line{
		p: p, life: len(p.lives) + 1,
		counts: map[string]int{}, recent: map[string][]sent{}, writes: map[string]time.Duration{},
	}
	name := fmt.Sprintf("p%d.%d", p.n, ln.life)
	w.mu.Lock()
	w.lines[name] = ln
	w.mu.Unlock()
	ln.client = w.Client(name, func(o *tenure.Options) {
		own := *o
		*o = p.setup.Options
		o.Owner, o.Host, o.Logger = w.owner(p.n), "host", own.Logger
	})
	ln.client.Faults().Inject(faultstore.Rule{Decide: ln.decide})
	p.set(func() {
		ln.client.SetRate(p.rate)
		p.lives, p.up, p.sessions = append(p.lives, ln), ln, nil
		p.ctx, p.stop = context.WithCancel(context.Background())
	})
}

// down takes a process that runs out of use, and returns its life.
func (p *process) down() *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	ln := p.up
	p.up = nil
	p.stop()
	return ln
}

// settle stops the faults and the acts, waits until no late write can arrive any
// more, and then checks that each lock can be taken in time.
func (w *world) settle() {
	w.over.Store(true)
	w.still()
	for _, p := range w.processes {
		p.wake()
		p.set(func() {
			p.stormy = false
			p.stop()
		})
	}
	w.acts.Wait()
	sleep(context.Background(), time.Second) // all processes run again
	for _, p := range w.processes {
		for _, ln := range p.lives {
			ln.client.Faults().Wait()
		}
	}
	// Sessions that are still open keep their locks; no act holds one.
	for i, lock := range w.plan.Locks {
		w.take(w.processes[(int(w.plan.Seed)+i)%len(w.processes)], lock)
	}
}

// take takes a lock that no process holds, although its record may say so, and
// judges how long that takes.
func (w *world) take(p *process, lock string) {
	rec := w.ledger.record(lock)
	o := p.up.client.Options()
	// A dead holder's lease; before it a session's, or its answer that the lock
	// is free; and the polls that show it.
	looks := 4*o.RefreshPeriod + 8*o.RequestTimeout
	bound := looks
	if rec.Key != "" && rec.State != driver.Released {
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
		w.referee.wrong("after the faults p%d takes %s after %v, want %v (%s, session %t)",
			p.n, lock, took, bound, rec.State, rec.Session != "")
	}
	w.referee.act(w.referee.granted(p.up, l))
	if err := l.Release(ctx); err != nil {
		w.referee.wrong("after the faults the release of %s fails: %v", lock, err)
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

// step executes a step.
func (w *world) step(s Step) {
	p := w.processes[s.Process]
	p.mu.Lock()
	ln, ctx := p.up, p.ctx
	able := ln != nil || s.Op.anyway
	if s.Op.act != nil && able {
		if able = p.busy < maxBusy; able {
			p.busy++
		}
	}
	p.mu.Unlock()
	if !able {
		return
	}
	w.logf("%v", s)
	w.happened(s.Op.name)
	switch s.Op.name {
	case "storm":
		p.set(func() { p.stormy = !p.stormy })
	case "cut off":
		p.set(func() { p.cutOff = true })
		w.after(p.some(s, 3), func() { p.set(func() { p.cutOff = false }) })
	case "clock":
		p.set(func() { p.setRate(rate(s.random(), w.plan.Weather.Drift)) })
	case "pause":
		p.set(func() { p.pause(s) })
	case "crash", "close":
		w.stop(p, s)
	default:
		w.acts.Go(func() {
			a := &act{Step: s, w: w, p: p, line: ln, r: s.random(), ctx: ctx}
			what := s.Op.act(a)
			w.logf("#%d p%d %s %s: %s", s.N, p.n, s.Op.name, s.Lock, what)
			p.set(func() { p.busy-- })
			w.referee.lookAll()
		})
	}
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

// setRate changes how fast the clock runs. The caller holds the mutex, as for pause.
func (p *process) setRate(rate float64) {
	p.rate, p.steady = rate, p.steady && rate == 1
	if p.up != nil && !(p.paused && p.unsure) {
		p.up.client.SetRate(rate)
	}
}

// pause stops a process for a while. What passes meanwhile has passed for certain (a
// suspend that the boot clock counts), or only may have (a step of the wall clock).
func (p *process) pause(s Step) {
	if p.paused {
		return
	}
	p.up.client.Pause()
	p.paused, p.wasPaused, p.steady = true, true, false
	p.since, p.unsure = time.Now(), s.Seed%2 != 0
	if p.unsure {
		p.up.client.SetRate(0)
	}
	p.w.after(p.some(s, 3), p.wake)
}

// wake ends a pause, if there is one.
func (p *process) wake() {
	woke := false
	p.set(func() {
		if woke = p.paused; !woke {
			return
		}
		if p.paused = false; p.unsure {
			p.up.client.Step(time.Duration(float64(time.Since(p.since)) * p.rate))
			p.up.client.SetRate(p.rate)
		}
		p.up.client.Resume()
	})
	if woke {
		p.w.logf("p%d goes on", p.n)
		p.w.referee.lookAll()
	}
}

// stop ends a process, in order or not, and starts it again after a while.
func (w *world) stop(p *process, s Step) {
	p.wake()
	ln := p.down()
	if s.Op.name == "crash" {
		w.referee.forget(ln)
		ln.client.Kill()
	} else {
		w.closing(ln)
	}
	w.after(p.some(s, 2), func() {
		w.start(p)
		w.logf("p%d starts again", p.n)
	})
}

// name returns how a key is called in the log: ids of sessions are long.
func (w *world) name(key string) string {
	if !strings.HasPrefix(key, driver.SessionPrefix) || key == driver.SessionPrefix {
		return key
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name, ok := w.names[key]
	if !ok {
		name = fmt.Sprint("session/", len(w.names)+1)
		w.names[key] = name
	}
	return name
}

var longID = regexp.MustCompile(`[A-Z2-7]{26}`)

// short returns the text of an error without ids.
func short(err error) string { return longID.ReplaceAllString(err.Error(), "…") }

// maxLog is how many lines of a schedule are kept.
const maxLog = 200_000

func (w *world) logf(format string, args ...any) {
	line := fmt.Sprintf("%12v ", w.elapsed().Round(time.Microsecond)) + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.log) < maxLog {
		w.log = append(w.log, line)
	}
}

// happened counts what has happened.
func (w *world) happened(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally[what]++
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"container/heap"
	"fmt"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

const key = "k"

// Config says what kind of world to run. The zero value of a field is the
// mildest.
type Config struct {
	Timing    protocol.Timing
	Processes int
	// Length is how long the faults last. After it the network heals, every
	// process that holds crashes, and the world runs on until another holds
	// and has held for some leases.
	Length time.Duration
	// Faults lets requests and processes fail.
	Faults bool
	// Rough has many writes applied late, or twice.
	Rough bool
	// Requests has people ask holders to make way, and operators free and revoke;
	// contenders have different priorities, and some work does not stop in time.
	Requests bool
	// Drain is how long the work needs to stop when the faults are over.
	Drain time.Duration
	// Skew is the largest rate error of a clock; Timing.Drift if it is zero.
	Skew float64
	// Latency bounds what the network and the store need for a request, there
	// and back; Timing.RequestTimeout if it is zero.
	Latency time.Duration
	// First is the record with which the store begins, if it has a key.
	First driver.Record
	Wrong Wrong
}

// World is one run.
type World struct {
	cfg   Config
	t     protocol.Timing
	src   Source
	now   time.Duration
	queue queue
	count int // of everything numbered

	store  store
	procs  []*process
	down   time.Duration // the store cannot be reached until then
	late   []func()      // writes that may be applied yet
	final  bool          // the faults are over
	healed time.Duration // since then

	checks
	trace []line

	// Reads and Writes count the requests that were sent.
	Reads, Writes int
}

type line struct {
	at     time.Duration
	format string
	args   []any
}

// Run runs a world to its end and returns the first violation, nil if there is
// none.
func Run(src Source, cfg Config) error {
	w := newWorld(src, cfg)
	for _, p := range w.procs {
		w.after(w.upTo(w.t.Lease/4), p.act)
		if cfg.Requests {
			w.after(w.upTo(2*w.t.Lease), p.meddle)
		}
	}
	if cfg.Faults {
		w.after(w.upTo(w.t.Lease), w.nemesis)
	}
	w.run(func() bool { return w.now >= cfg.Length })
	w.heal()
	w.watchLiveness()
	return w.failure()
}

func newWorld(src Source, cfg Config) *World {
	w := &World{cfg: cfg, t: cfg.Timing, src: src}
	w.store.wrong = cfg.Wrong
	if cfg.First.Key != "" {
		w.store.put(cfg.First)
	}
	w.checks = newChecks()
	if w.cfg.Skew == 0 {
		w.cfg.Skew = cfg.Timing.Drift
	}
	if w.cfg.Latency == 0 {
		w.cfg.Latency = cfg.Timing.RequestTimeout
	}
	if cfg.Wrong == DriftAboveBound {
		w.cfg.Skew = min(0.9, 3*cfg.Timing.Drift)
	}
	for i := range cfg.Processes {
		p := &process{w: w, name: fmt.Sprintf("p%d", i+1), up: true}
		p.hold, p.cont = w.clock(), w.clock()
		p.sight = protocol.NewSight(w.t, w.env(p))
		if cfg.Requests {
			p.priority, p.pauses = w.src.Intn(3), time.Duration(1+w.src.Intn(8))*w.t.Lease/2
		}
		w.procs = append(w.procs, p)
	}
	return w
}

// clock returns a clock whose rate is right, or wrong as far as it may be.
func (w *World) clock() clock {
	rate := 1.0
	switch w.src.Intn(4) {
	case 1:
		rate += w.cfg.Skew
	case 2:
		rate -= w.cfg.Skew
	}
	return clock{offset: time.Duration(w.src.Intn(4)) * 1234 * time.Hour, rate: rate}
}

func (w *World) env(p *process) protocol.Env {
	return protocol.Env{
		Fresh:  func() string { w.count++; return fmt.Sprintf("v%d", w.count) },
		Random: func() float64 { return float64(p.source().Intn(16)) / 16 },
	}
}

// source returns where the choices of a process come from.
func (p *process) source() Source {
	if p.src != nil {
		return p.src
	}
	return p.w.src
}

// upTo returns a duration in [0, d).
func (p *process) upTo(d time.Duration) time.Duration {
	return d * time.Duration(p.source().Intn(1024)) / 1024
}

// one returns true once in n times.
func (w *World) one(n int) bool { return w.src.Intn(n) == n-1 }

// upTo returns a duration in [0, d).
func (w *World) upTo(d time.Duration) time.Duration {
	return d * time.Duration(w.src.Intn(1024)) / 1024
}

// run takes steps until done says so, something is violated, or nothing is
// left to happen.
func (w *World) run(done func() bool) {
	for len(w.queue) > 0 && w.violation == "" && !done() {
		e := heap.Pop(&w.queue).(*event)
		w.now = e.at
		e.do()
		w.checkAll()
	}
}

func (w *World) note(format string, args ...any) {
	w.trace = append(w.trace, line{w.now, format, args})
}

func (w *World) failure() error {
	if w.violation == "" {
		return nil
	}
	var b strings.Builder
	for _, l := range w.trace[max(0, len(w.trace)-120):] {
		fmt.Fprintf(&b, "%12v  %s\n", l.at, fmt.Sprintf(l.format, l.args...))
	}
	return fmt.Errorf("%s\n%s", w.violation, b.String())
}

// after has do called when d has passed.
func (w *World) after(d time.Duration, do func()) {
	w.count++
	heap.Push(&w.queue, &event{at: w.now + d, n: w.count, do: do})
}

type event struct {
	at time.Duration
	n  int
	do func()
}

type queue []*event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(e any)   { *q = append(*q, e.(*event)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"container/heap"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// Config says what kind of world to run. The zero value of a field is the
// mildest.
type Config struct {
	Timing    protocol.Timing
	Processes int
	// Locks is how many locks all processes contend for, 1 if it is zero.
	Locks int
	// Length is how long the faults last. After it the network heals, every
	// process that holds crashes, and the world runs on until another holds
	// and has held for some leases.
	Length time.Duration
	// Kept is for how long a lock must be kept once it is held again, 4 leases if it
	// is zero.
	Kept time.Duration
	// Events is how many events there are at least before the faults end.
	Events int
	// Faults lets requests and processes fail, but for the kinds in Without.
	Faults  bool
	Without Fault
	// Rough has many writes applied late, or twice.
	Rough bool
	// Requests has people ask holders to make way, and operators free and revoke;
	// contenders have different priorities, and some work does not stop in time.
	Requests bool
	// Sessions has processes take locks under a session, half of them.
	Sessions bool
	// Unheard has the store apply what some acquires under a session write, while their
	// process gets no answer to it for a lease or two, although the session's
	// heartbeats are answered.
	Unheard bool
	// Doubled has claims under sessions applied a second time when their locks have been
	// released.
	Doubled bool
	// Trying has nobody wait any more when the faults are over: all try again and again,
	// under their sessions, where they have some.
	Trying bool
	// Mixed gives each process a timing of its own: longer and shorter leases,
	// other looks, and bounds of the clocks' errors that are wider than need be; and
	// some of its acquires and sessions another one.
	Mixed bool
	// Unless has some acquires give up at the first sign of life.
	Unless bool
	// Observers has processes observe locks that they do not wait for.
	Observers bool
	// Bells has messages of a bell come, at random.
	Bells bool
	// Twice has processes acquire a lock beside a lease of theirs on it.
	Twice bool
	// Deletions has operators delete records of locks that are released, so that
	// their tokens begin again.
	Deletions bool
	// Fails has the work fail now and then.
	Fails bool
	// Labels gives the processes labels, some of them none, and has people ask holders
	// to hand over to a label: the model knows of none, so it is not told of such a run.
	Labels bool
	// Clients is how many programs hold locks that have no store, through so many
	// Replicas of a lock service, which take none for themselves. The model knows of no
	// clients, so it is not told of such a run.
	Clients, Replicas int
	// Harm has clients judged by what comes of what they do, and not by what they count
	// and are told.
	Harm bool
	// Guarded has the work of a process that crashes go on for a while, in processes of
	// its own, until a guardian has killed them, which then frees the lock. The model
	// knows of no guardians, so it is not told of such a run.
	Guarded bool
	// History is how many tenures the history of a lock keeps, 100 if it is zero.
	History int
	// Drain is how long the work needs to stop when the faults are over.
	Drain time.Duration
	// Skew is the largest rate error of a clock; Timing.Drift if it is zero.
	Skew float64
	// Latency bounds what the network and the store need for a call, there
	// and back; Timing.RequestTimeout if it is zero.
	Latency time.Duration
	// First is the record with which the store begins, if it has a key.
	First driver.Record
	// Trace notes what is done, for people and for the model; nil for nothing,
	// which is faster.
	Trace *Trace
}

// Trace is what a world notes of a run.
type Trace struct {
	lines []line
	// Events are those that the model knows, if it is not nil.
	Events *trace.Recorder
}

type line struct {
	at     time.Duration
	format string
	args   []any
}

// World is one run.
type World struct {
	cfg   Config
	t     protocol.Timing
	most  protocol.Timing // the longest that acquires and sessions have
	src   Source
	now   time.Duration
	queue queue
	count int // of everything numbered
	locks []*lock
	hosts []*host       // with the store: processes and replicas
	down  time.Duration // the store cannot be reached until then
	late  []func()      // writes that may be applied yet
	// What the store has of sessions, by key.
	sessions  map[string]*store
	final     bool          // the faults are over
	healed    time.Duration // since then
	clients   []*client
	guardians []*host

	violation, rule string // the first, and what all of its kind share
	tally           Tally

	// Reads and Writes count the requests that were sent.
	Reads, Writes int
}

// lock is one lock of a world: its record, its contenders, and what the world knows
// of it.
type lock struct {
	*World
	key   string
	store store
	procs []*process
	life  int // how often the record was deleted, late writes apart
	checks
	resource
	history
	elsewhere
	families []*family // at work without the process that holds the lease
}

// Tell runs a world to its end, and tells what happened in it. It returns the first
// violation, nil if there is none, which is a *Violation.
func Tell(src Source, cfg Config) (*Tally, error) {
	w := newWorld(src, cfg)
	for _, l := range w.locks {
		for _, p := range l.procs {
			if !p.serves {
				w.after(w.upTo(w.t.Lease/4), p.act)
			}
			if cfg.Observers {
				w.after(w.upTo(2*w.t.Lease), p.observes)
			}
			if cfg.Requests {
				w.after(w.upTo(2*w.t.Lease), p.meddle)
			}
		}
		if cfg.Bells {
			w.after(w.upTo(w.t.Lease), l.rings)
		}
		if cfg.Deletions {
			w.after(w.upTo(4*w.t.Lease), l.clear)
		}
	}
	for _, c := range w.clients {
		for _, l := range w.locks {
			w.after(w.upTo(w.t.Lease/4), func() { c.come(l) })
		}
	}
	if cfg.Sessions {
		for _, h := range w.hosts {
			if !h.serves {
				w.after(w.upTo(w.t.Lease/4), h.keep)
			}
			w.after(w.upTo(4*w.t.Lease), h.sweep)
		}
	}
	if cfg.Faults {
		w.after(w.upTo(w.t.Lease), w.nemesis)
	}
	if cfg.Guarded {
		w.after(w.upTo(2*w.t.Lease), w.kills)
	}
	w.run(func() bool { return w.now >= cfg.Length && w.tally.Events >= cfg.Events })
	w.heal()
	w.watchLiveness()
	w.watchHistory()
	for _, l := range w.locks {
		l.checkHistory()
		l.checkObservers()
	}
	return &w.tally, w.failure()
}

func newWorld(src Source, cfg Config) *World {
	w := &World{cfg: cfg, t: cfg.Timing, src: src, sessions: map[string]*store{}}
	if w.cfg.Skew == 0 {
		w.cfg.Skew = cfg.Timing.Drift
	}
	w.cfg.Latency = cmp.Or(cfg.Latency, cfg.Timing.RequestTimeout)
	w.cfg.Kept = cmp.Or(cfg.Kept, 4*cfg.Timing.Lease)
	w.cfg.History = cmp.Or(cfg.History, 100)
	for i := range max(1, cfg.Locks) {
		l := &lock{World: w, key: string(rune('k' + i)), checks: newChecks(), resource: newResource()}
		l.past, l.made = map[string]*store{}, map[string]made{}
		l.store = store{key: l.key}
		if cfg.First.Key != "" {
			l.store.put(cfg.First)
		}
		w.locks = append(w.locks, l)
	}
	for i := range cfg.Processes {
		w.addHost(fmt.Sprintf("p%d", i+1))
	}
	for i := range cfg.Replicas {
		w.addHost(fmt.Sprintf("r%d", i+1)).serves = true
	}
	for i := range cfg.Clients {
		w.clients = append(w.clients, newClient(w, fmt.Sprintf("c%d", i+1)))
	}
	return w
}

// addHost adds a process that has the store.
func (w *World) addHost(name string) *host {
	h := w.newHost(name)
	w.hosts = append(w.hosts, h)
	w.started(h)
	for _, l := range w.locks {
		p := &process{host: h, l: l}
		p.look()
		if w.cfg.Requests {
			p.priority = w.src.Intn(3)
		}
		h.procs, l.procs = append(h.procs, p), append(l.procs, p)
	}
	return h
}

func (w *World) newHost(name string) *host {
	h := &host{w: w, name: name, up: true, sights: map[string]*protocol.Sight{}, peeks: map[string][]peek{}}
	h.hold, h.cont = w.clock(), w.clock()
	h.t = w.timing()
	return h
}

// timing returns what the next process counts with. No clock errs by more than
// the narrowest bound.
func (w *World) timing() protocol.Timing {
	t := w.t
	if !w.cfg.Mixed {
		return t
	}
	switch w.src.Intn(4) {
	case 1:
		t = scaled(t, 2)
	case 2:
		t = scaled(t, 0.5)
	case 3:
		t.Refresh = t.Lease
	}
	if wider := t; w.one(4) {
		wider.Drift *= 1.5
		if wider.Validate() == nil {
			t = wider
		}
	}
	return t
}

// ofOwn returns the timing of an acquire, or a session, of a process: its client's, or
// another one with the client's bound of the clocks' errors.
func (h *host) ofOwn() protocol.Timing {
	w := h.w
	if !w.cfg.Mixed || !w.one(2) {
		return h.t
	}
	t := w.timing()
	t.Drift = h.t.Drift
	if t.Validate() != nil { // too little is left of the lease with that bound
		return h.t
	}
	w.most.Lease, w.most.Refresh = max(w.most.Lease, t.Lease), max(w.most.Refresh, t.Refresh)
	w.most.RequestTimeout = max(w.most.RequestTimeout, t.RequestTimeout)
	return t
}

// scaled returns t with all that depends on the lease so much longer.
func scaled(t protocol.Timing, by float64) protocol.Timing {
	for _, d := range []*time.Duration{&t.Lease, &t.Heartbeat, &t.Refresh, &t.Grace, &t.RequestTimeout, &t.StopTimeout, &t.Progress} {
		*d = time.Duration(float64(*d) * by)
	}
	t.Lease = t.Lease.Truncate(time.Millisecond)
	return t
}

// newLock returns the one lock of a world.
func newLock(src Source, cfg Config) *lock {
	cfg.Locks = 1
	return newWorld(src, cfg).locks[0]
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
	if rate != 1 {
		w.tally.WrongClocks++
	}
	return clock{offset: time.Duration(w.src.Intn(4)) * 1234 * time.Hour, rate: rate}
}

func (w *World) env(h *host) protocol.Env {
	return protocol.Env{
		Lease:   func() time.Duration { return h.hold.at(w.now) },
		Session: h.sessionSight,
		Fresh:   func() string { w.count++; return fmt.Sprintf("v%d", w.count) },
		Random:  func() float64 { return float64(h.source().Intn(16)) / 16 },
		Follow:  1, // of the few locks that there are
	}
}

// one returns true once in n times.
func (w *World) one(n int) bool { return w.src.Intn(n) == n-1 }

// upTo returns a duration in [0, d).
func (w *World) upTo(d time.Duration) time.Duration {
	return d * time.Duration(w.src.Intn(1024)) / 1024
}

// maxEvents is far more than any world needs.
const maxEvents = 300_000

// run takes steps until done says so, something is violated, or nothing is
// left to happen.
func (w *World) run(done func() bool) {
	for len(w.queue) > 0 && w.violation == "" && !done() {
		e := heap.Pop(&w.queue).(*event)
		w.now = e.at
		if w.tally.Events++; w.tally.Events > maxEvents {
			w.fail("the world does not come to an end")
		}
		e.do()
		w.checkAll()
	}
}

func (w *World) checkAll() {
	for _, l := range w.locks {
		l.check()
	}
}

func (w *World) note(format string, args ...any) {
	if t := w.cfg.Trace; t != nil {
		t.lines = append(t.lines, line{w.now, format, args})
	}
}

func (w *World) fail(format string, args ...any) {
	if w.violation == "" {
		w.rule = format
		w.violation = fmt.Sprintf("at %v: %s", w.now, fmt.Sprintf(format, args...))
		w.note("VIOLATION: %s", w.violation)
	}
}

// Violation is what a world has done that must not be.
type Violation struct {
	What string
	Rule string // what all violations of this kind share
	Last string // the last lines of the trace
}

func (v *Violation) Error() string { return v.What + "\n" + v.Last }

// lastLines is how much of a trace a violation shows.
const lastLines = 120

func (w *World) failure() error {
	if w.violation == "" {
		return nil
	}
	v := &Violation{What: w.violation, Rule: w.rule}
	if t := w.cfg.Trace; t != nil {
		v.Last = t.Text(lastLines)
	}
	return v
}

// Text returns the last lines for people, all of them if most is 0.
func (t *Trace) Text(most int) string {
	if most <= 0 {
		most = len(t.lines)
	}
	var b strings.Builder
	for _, l := range t.lines[max(0, len(t.lines)-most):] {
		fmt.Fprintf(&b, "%12v  %s\n", l.at, fmt.Sprintf(l.format, l.args...))
	}
	return b.String()
}

// after has do called when d has passed.
func (w *World) after(d time.Duration, do func()) {
	w.count++
	heap.Push(&w.queue, &event{at: w.now + d, n: w.count, do: do})
}

// onceMore has do called once: after from and before from + to, or when the faults end.
func (w *World) onceMore(from, to time.Duration, do func()) {
	once := sync.OnceFunc(do)
	w.late = append(w.late, once)
	w.after(from+w.upTo(to), once)
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

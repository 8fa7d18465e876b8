// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// Config configures a world. The zero value of a field is the mildest.
type Config struct {
	Timing    protocol.Timing
	Processes int
	Locks     int // that all processes want; 1 if it is zero
	// Length is how long the faults last. After it the network heals, every
	// process that holds crashes, and the world runs on until another holds
	// and has held for as long as Kept, 4 leases if that is zero.
	Length, Kept time.Duration
	Faults       bool    // requests and processes fail, but for the kinds in Without
	Without      Fault   // kinds of faults that do not happen
	Rough        bool    // many writes are applied late, or twice
	Skew         float64 // the largest rate error of a clock; Timing.Drift if it is zero
	// Latency bounds the round trip of a call, the store's work included;
	// Timing.RequestTimeout if it is zero.
	Latency time.Duration

	// Requests makes operators ask holders to make way, free locks and revoke; acquirers
	// have different priorities, and some work does not stop in time.
	Requests bool
	Labels   bool // processes have labels, some of them none, and holders hand over to a label
	Sessions bool // processes and clients take locks under a session, half of them
	// Unheard makes the store apply the writes of some acquires under a session without an
	// answer for a lease or two, although it answers the session's heartbeats.
	Unheard bool
	Doubled bool // claims under sessions are applied again when their locks have been released
	Trying  bool // no acquire waits any more when the faults are over: all try again and again
	// Mixed gives each process its own timing, with other leases, polls and wider bounds of
	// clock errors; and some of its acquires and sessions another one.
	Mixed     bool
	Unless    bool // some acquires give up at the first sign of life
	Observers bool // processes observe locks that they do not wait for
	Notified  bool // notifications come, at random
	Twice     bool // processes acquire a lock beside a lease of theirs on it
	Deletions bool // operators delete records of released locks, so that tokens begin again
	Fails     bool // the work fails now and then
	// Clients is how many programs without a store hold locks, through so many Replicas of
	// a lock service, which take none for themselves.
	Clients, Replicas int
	Harm              bool // clients are judged only by the effects of their actions
	// Guarded makes the work of a crashed process go on for a while, in processes of its
	// own, until a guardian has killed them and frees the lock.
	Guarded bool
	// Loses puts the records on an engine that may lose what it has answered, with a store
	// that is guarded: see [driver.Guarded]. Not with clients, guardians, or deletions.
	Loses   bool
	History int    // how many terms the history of a lock keeps; 100 if it is zero
	Trace   *Trace // records the run; nil is faster
}

// Trace is the record of a run.
type Trace struct {
	lines []string
	// Events are those that the model knows, if it is not nil.
	Events *trace.Recorder
}

// World is one run.
type World struct {
	cfg       Config
	t         protocol.Timing
	most      protocol.Timing // the longest of all timings, in each part
	src       Source
	now       time.Duration
	queue     []event // the next one last
	count     int     // of everything numbered
	locks     []*lock
	hosts     []*host           // processes, replicas, and then clients, which have not the store
	down      time.Duration     // the store cannot be reached until then
	late      []func()          // writes that may be applied yet
	stores    map[string]*store // by key: of locks, sessions, and entries of histories
	written   map[string]write  // by version
	beats     map[string]*beat
	final     bool          // the faults are over
	healed    time.Duration // since then
	guardians []*host
	engine    *engine         // that loses, or nil
	model     *trace.Recorder // of what the model knows, or nil

	violation, rule string // the first, and what all of its kind share
	tally           Tally
	Reads, Writes   int // requests that were sent
}

// lock is one lock of a world: its record, its contenders, and what the world knows of it.
type lock struct {
	*World
	key   string
	store *store
	procs []*process
	life  int // how often the record was deleted, late writes apart
	checks
	writers  []*machine         // of the history, that may not be over
	former   []map[uint64]*term // from before the record was deleted, once for each time
	visits   []*visit           // that are not over
	families []*family          // at work without the process that holds the lease
}

// Tell runs a world to its end, and returns a tally and the first violation, a
// *Violation, or nil.
func Tell(src Source, cfg Config) (*Tally, error) {
	w := newWorld(src, cfg)
	lease := w.t.Lease
	for _, l := range w.locks {
		for _, p := range l.procs {
			w.often(!p.serves, lease/4, lease/16, lease/2, p.act)
			w.often(cfg.Observers, 2*lease, lease/2, 4*lease, p.observes)
			w.often(cfg.Requests, 2*lease, lease/8, 4*lease, p.meddle)
		}
		w.often(cfg.Notified, lease, 0, 2*w.t.Refresh, l.notifies)
		if cfg.Deletions {
			w.after(w.upTo(4*lease), l.clear)
		}
	}
	w.often(w.cfg.Loses, 2*lease, lease/4, 2*lease, w.loses)
	for _, h := range w.hosts {
		if h.procs != nil {
			w.often(cfg.Sessions && !h.serves, lease/4, lease/16, lease/2, h.keep)
			w.often(cfg.Sessions, 4*lease, lease/4, 2*lease, h.sweep)
			continue
		}
		w.often(cfg.Sessions, lease/4, lease/16, lease/2, h.opensSession)
		for _, l := range w.locks {
			w.often(true, lease/4, lease/16, lease/2, func() bool { return h.come(l) })
		}
	}
	w.often(cfg.Faults, lease, lease/8, lease, w.nemesis)
	w.often(cfg.Guarded, 2*lease, 0, 2*lease, w.kills)
	w.run(func() bool { return w.now >= w.cfg.Length && w.tally.Events >= minEvents })
	w.heal()
	w.watchLiveness()
	end := w.now + w.most.Lease // all that was begun is written down
	w.run(func() bool { return w.now > end || !slices.ContainsFunc(w.locks, (*lock).chronicled) })
	for _, l := range w.locks {
		if w.violation == "" && !w.cfg.Loses { // the engine loses entries, too
			l.checkHistory()
			l.checkObservers()
		}
	}
	return &w.tally, w.failure()
}

func newWorld(src Source, cfg Config) *World {
	w := &World{
		cfg: cfg, t: cfg.Timing, most: cfg.Timing, src: src,
		stores: map[string]*store{}, written: map[string]write{}, beats: map[string]*beat{},
	}
	w.tally = Tally{Of: map[Happening]int{}, Seen: Transitions{}}
	w.cfg.Loses = cfg.Loses && cfg.Faults && cfg.Clients == 0 && !cfg.Guarded && !cfg.Deletions
	if cfg.Trace != nil && cfg.Clients == 0 && !cfg.Guarded && !w.cfg.Loses { // which the model has not
		w.model = cfg.Trace.Events
	}
	w.cfg.Skew = cmp.Or(cfg.Skew, cfg.Timing.Drift)
	w.cfg.Latency = cmp.Or(cfg.Latency, cfg.Timing.RequestTimeout)
	w.cfg.Kept = cmp.Or(cfg.Kept, 4*cfg.Timing.Lease)
	w.cfg.History = cmp.Or(cfg.History, 100)
	if w.cfg.Loses {
		w.newEngine()
	}
	for i := range max(1, cfg.Locks) {
		l := &lock{World: w, key: string(rune('k' + i)), checks: newChecks()}
		l.store = w.storeOf(l.key)
		w.locks = append(w.locks, l)
	}
	for i := range cfg.Processes {
		w.addHost(fmt.Sprintf("p%d", i+1))
	}
	for i := range cfg.Replicas {
		w.addHost(fmt.Sprintf("r%d", i+1)).serves = true
	}
	for i := range cfg.Clients {
		h := w.newHost(fmt.Sprintf("c%d", i+1))
		h.at = w.src.IntN(w.cfg.Replicas)
		h.bound = w.boundOf(i)
		h.hold = w.clockOf(h.bound)
		w.hosts = append(w.hosts, h)
	}
	return w
}

// boundOf returns by how much a client's clock may be wrong: as much as a replica's, twice as
// much, if that leaves enough of a lease, or a ninth of it.
func (w *World) boundOf(client int) float64 {
	t := w.t
	switch client % 3 {
	case 0:
		t.Drift = 2 * w.cfg.Skew
	case 1:
		t.Drift = w.cfg.Skew / 9
	}
	if t.Validate() != nil {
		return w.cfg.Skew
	}
	return t.Drift
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
			p.priority = w.src.IntN(3)
		}
		h.procs, l.procs = append(h.procs, p), append(l.procs, p)
	}
	return h
}

func (w *World) newHost(name string) *host {
	h := &host{w: w, name: name, up: true, views: map[string]*protocol.View{}, peeks: map[string][]peek{}}
	h.hold, h.cont = w.clock(), w.clock()
	h.t = w.timing()
	h.forgets()
	return h
}

// timing returns what the next process counts with. No clock errs by more than
// the narrowest bound.
func (w *World) timing() protocol.Timing {
	t := w.t
	if !w.cfg.Mixed {
		return t
	}
	switch w.src.IntN(4) {
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
	w.most.Lease, w.most.Refresh = max(w.most.Lease, t.Lease), max(w.most.Refresh, t.Refresh)
	w.most.RequestTimeout = max(w.most.RequestTimeout, t.RequestTimeout)
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
	return t
}

// scaled returns t with all that depends on the lease so much longer.
func scaled(t protocol.Timing, by float64) protocol.Timing {
	for _, d := range []*time.Duration{
		&t.Lease, &t.Heartbeat, &t.Refresh, &t.Grace, &t.RequestTimeout, &t.StopTimeout, &t.Progress,
	} {
		*d = time.Duration(float64(*d) * by)
	}
	t.Lease = t.Lease.Truncate(time.Millisecond)
	return t
}

// clock returns a clock whose rate is right, or wrong as far as it may be.
func (w *World) clock() clock { return w.clockOf(w.cfg.Skew) }

func (w *World) clockOf(bound float64) clock {
	rate := 1.0
	switch w.src.IntN(4) {
	case 1:
		rate += bound
	case 2:
		rate -= bound
	}
	if rate != 1 {
		w.tally.Of[WrongClock]++
	}
	return clock{offset: time.Duration(w.src.IntN(4)) * 1234 * time.Hour, rate: rate}
}

func (w *World) env(h *host) protocol.Env {
	return protocol.Env{
		Lease:     func() time.Duration { return h.hold.at(w.now) },
		Session:   h.sessionView,
		Fresh:     func() string { return fmt.Sprintf("v%d", w.number()) },
		Random:    func() float64 { return float64(w.src.IntN(16)) / 16 },
		Follow:    1, // of the few locks that there are
		LifeSince: func(life string) (time.Duration, bool) { return h.lives.Since(life) },
	}
}

// one returns true once in n times.
func (w *World) one(n int) bool { return w.src.IntN(n) == n-1 }

// upTo returns a duration in [0, d).
func (w *World) upTo(d time.Duration) time.Duration {
	return d * time.Duration(w.src.IntN(1024)) / 1024
}

// How many events there are at least before the faults end, and far more than any world needs.
const (
	minEvents = 200
	maxEvents = 300_000
)

// run takes steps until done says so, something is violated, or nothing is left to happen.
func (w *World) run(done func() bool) {
	for len(w.queue) > 0 && w.violation == "" && !done() {
		e := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		w.now = e.at
		if w.tally.Events++; w.tally.Events > maxEvents {
			w.fail("the world does not come to an end")
		}
		e.do()
		for _, l := range w.locks {
			l.check()
		}
	}
}

func (w *World) note(format string, args ...any) {
	if t := w.cfg.Trace; t != nil {
		t.lines = append(t.lines, fmt.Sprintf("%12v  %s\n", w.now, fmt.Sprintf(format, args...)))
	}
}

func (w *World) fail(format string, args ...any) {
	if w.violation == "" {
		w.rule = format
		w.violation = fmt.Sprintf("at %v: %s", w.now, fmt.Sprintf(format, args...))
		w.note("VIOLATION: %s", w.violation)
	}
}

// Violation is a broken rule.
type Violation struct {
	What string
	Seed uint64 // with which it was found, by Explore
	Rule string // what all violations of this kind share
	Last string // the last lines of the trace
}

func (v *Violation) Error() string { return v.What + "\n" + v.Last }

func (w *World) failure() error {
	if w.violation == "" {
		return nil
	}
	v := &Violation{What: w.violation, Rule: w.rule}
	if t := w.cfg.Trace; t != nil {
		v.Last = t.Text(120)
	}
	return v
}

// Text returns the last lines for people, all of them if most is 0.
func (t *Trace) Text(most int) string {
	if most <= 0 {
		most = len(t.lines)
	}
	return strings.Join(t.lines[max(0, len(t.lines)-most):], "")
}

// after calls do when d has passed.
func (w *World) after(d time.Duration, do func()) {
	e := event{w.now + d, w.number(), do}
	i, _ := slices.BinarySearchFunc(w.queue, e, later)
	w.queue = slices.Insert(w.queue, i, e)
}

// often has do called again and again, if it is wanted, and until it returns false: before
// first has passed, and then base and up to spread after the call before it.
func (w *World) often(wanted bool, first, base, spread time.Duration, do func() bool) {
	var again func()
	again = func() {
		if do() {
			w.after(base+w.upTo(spread), again)
		}
	}
	if wanted {
		w.after(w.upTo(first), again)
	}
}

// number returns the next number of what has one.
func (w *World) number() int {
	w.count++
	return w.count
}

// onceMore calls do once: after from and before from + to, or when the faults end.
func (w *World) onceMore(from, to time.Duration, do func()) {
	once := sync.OnceFunc(do)
	w.late = append(w.late, once)
	w.after(from+w.upTo(to), once)
}

// event is what happens at an instant, the n-th that was planned.
type event struct {
	at time.Duration
	n  int
	do func()
}

// later orders events, the next one last.
func later(a, b event) int { return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.n, a.n)) }

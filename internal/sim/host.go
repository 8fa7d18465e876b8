// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// host is one process with all locks that it has to do with: two clocks, and
// what happens to it as a whole.
type host struct {
	w      *World
	name   string
	t      protocol.Timing
	hold   clock // what leases are counted by
	cont   clock // what contenders count by
	up     bool
	paused time.Duration // takes no step until then
	stood  time.Duration // the same of its last pause
	asleep []func()      // what it is called for when it wakes up
	cutOff time.Duration // does not reach the store until then
	epoch  int           // of crashes
	flaky  bool          // has a bad link while it does not lead
	procs  []*process    // one for each lock
	serves bool          // it is a replica

	session *machine                  // the session of this process, nil if it has none
	views   map[string]*protocol.View // of sessions, by id
	peeks   map[string][]peek         // when each was shown, by key

	lives  *protocol.Lives          // of the engine, as this process has seen them
	named  map[string]time.Duration // when it was first shown each, in real time
	old    *server                  // that it reaches, instead of the engine's, until leaves
	leaves time.Duration

	visits         []*visit // of a client: at most one for each lock
	serviceSession *visit   // of a client, nil if it has none
	at             int      // the replica that it calls first
	bound          float64  // of the error of its clock, as it tells the replicas
}

// sessionView returns what the process has seen of a session.
func (h *host) sessionView(id string) *protocol.View {
	if h.views[id] == nil {
		h.views[id] = protocol.NewView(h.t, h.w.env(h))
	}
	return h.views[id]
}

// later has do called when d has passed, unless the process has crashed since the given
// epoch; a paused process is called when it wakes up.
func (h *host) later(epoch int, d time.Duration, do func()) {
	var try func()
	try = func() {
		switch {
		case h.epoch != epoch:
		case h.w.now < h.paused:
			h.asleep = append(h.asleep, try)
		default:
			do()
		}
	}
	h.w.after(d, try)
}

// pause has the process take no step for d. Its clocks go on. If the whole machine pauses,
// the boot clock stands, and what has passed shows as a step of the wall clock alone: it
// counts for holders, and not for contenders.
func (h *host) pause(d time.Duration, machine bool) {
	if h.paused > h.w.now {
		return
	}
	if machine {
		h.cont.halt(h.w.now)
	}
	h.paused, h.stood = h.w.now+d, h.w.now+d
	h.w.after(d, h.wake)
}

// wake ends a pause, unless it was prolonged.
func (h *host) wake() {
	if h.w.now < h.paused {
		return
	}
	h.hold.resume(h.w.now)
	h.cont.resume(h.w.now)
	asleep := h.asleep
	h.asleep = nil
	for _, do := range asleep {
		do()
	}
}

// step sets the wall clock. An unexplained step forwards counts for holders only, a
// step backwards does not count at all.
func (h *host) step(d time.Duration) {
	h.w.note("the wall clock of %s steps by %v", h.name, d)
	if d <= 0 {
		return
	}
	h.hold.offset += d
	if h.w.now < h.paused {
		return
	}
	for _, p := range h.procs {
		for _, m := range slices.Clone(p.machines) {
			if m.h != nil {
				m.step()
			}
		}
	}
	for _, v := range slices.Clone(h.visits) {
		v.expires()
	}
	if s := h.serviceSession; s != nil {
		s.expires()
	}
}

func (h *host) crash() {
	h.w.note("%s crashes", h.name)
	h.orphans()
	h.w.traces(trace.Event{Do: trace.Crash, Proc: h.name})
	h.up, h.asleep, h.session = false, nil, nil
	h.epoch++
	for _, p := range h.procs {
		p.machines, p.observer = nil, nil
	}
	for _, v := range slices.Clone(h.visits) {
		v.over("crashed")
	}
	if s := h.serviceSession; s != nil {
		s.over("crashed")
	}
}

func (h *host) restart() {
	if h.up {
		return
	}
	h.w.note("%s starts again", h.name)
	h.up, h.paused = true, 0
	h.hold, h.cont = h.w.clock(), h.w.clock()
	h.views = map[string]*protocol.View{}
	h.forgets()
	h.w.started(h)
	for _, p := range h.procs {
		p.look()
	}
}

// clock is a local clock: it runs at a rate of its own from an origin of its
// own. Real time is known to the world alone.
type clock struct {
	offset time.Duration
	rate   float64
	halted time.Duration // real time at which it stopped, 0 if it runs
}

func (c *clock) at(real time.Duration) time.Duration {
	if c.halted > 0 {
		real = c.halted
	}
	return c.offset + time.Duration(c.rate*float64(real))
}

// slow and fast return how long something lasts at most, and at least, that a clock shows to
// last for d.
func (w *World) slow(d time.Duration) time.Duration {
	return time.Duration(float64(d) / (1 - w.cfg.Skew))
}

func (w *World) fast(d time.Duration) time.Duration {
	return time.Duration(float64(d) / (1 + w.cfg.Skew))
}

// halt stops the clock until resume.
func (c *clock) halt(real time.Duration) {
	if c.halted == 0 {
		c.halted = real
	}
}

// resume lets a halted clock run on from where it stands.
func (c *clock) resume(real time.Duration) {
	if c.halted > 0 {
		c.offset -= time.Duration(c.rate * float64(real-c.halted))
		c.halted = 0
	}
}

// when returns the first real instant, not before now, at which the clock shows local or more.
func (c *clock) when(local, now time.Duration) time.Duration {
	if c.halted > 0 || c.at(now) >= local {
		return now
	}
	real := max(now, time.Duration(float64(local-c.offset)/c.rate))
	for c.at(real) < local {
		real++
	}
	return real
}

// Labels of processes, where a lock is handed over to a label. No process has the last
// one.
var versions = [...]string{"", "v1", "v2", "v3"}

// labelOf returns the label of a process or a client: where there are labels, one of
// three has none.
func (w *World) labelOf(name string) string {
	if !w.cfg.Labels {
		return ""
	}
	return versions[int(name[len(name)-1])%(len(versions)-1)]
}

// owner returns in whose name a machine acts: a replica acquires for a client.
func (m *machine) owner() string {
	if m.conn != nil {
		return m.conn.v.on.name
	}
	return m.p.name
}

// hasReservation reports whether a record is reserved for the owner of m: by the name or,
// if the record has no name, by one of its labels.
func (m *machine) hasReservation(rec driver.Record) bool {
	return rec.State == driver.Reserved && rec.Owner+rec.Label != "" && m.l.isReservedFor(rec.Owner, rec.Label, m.owner())
}

// isReservedFor reports whether a lock is handed over to an owner: by the name or, if
// that is empty, by the label.
func (w *World) isReservedFor(to, label, owner string) bool {
	if to != "" || label == "" {
		return owner == to
	}
	return w.labelOf(owner) == label
}

// inherited counts what became of a reservation for a label.
func (l *lock) inherited(m *machine, was driver.Record) {
	if was.Owner != "" || was.Label == "" {
		return
	}
	if m.hasReservation(was) && l.now-l.beat(was.Beat).first < was.Lease {
		l.tally.Of[Inherited]++
	} else {
		l.tally.Of[Lapsed]++
	}
}

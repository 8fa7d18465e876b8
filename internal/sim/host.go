// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
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
	src    Source        // of its own choices, that of the world if nil
	procs  []*process    // one for each lock
	serves bool          // it is a replica
	client *client       // that runs in it, nil if it is a process with the store

	session *machine                   // the session of this process, nil if it has none
	sights  map[string]*protocol.Sight // of sessions, by id
	peeks   map[string][]peek          // when each was shown, by key
	reaps   int
}

// sessionSight returns what the process has seen of a session.
func (h *host) sessionSight(id string) *protocol.Sight {
	if h.sights[id] == nil {
		h.sights[id] = protocol.NewSight(h.t, h.w.env(h))
	}
	return h.sights[id]
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

// source returns where the choices of a process come from.
func (h *host) source() Source {
	if h.src != nil {
		return h.src
	}
	return h.w.src
}

// upTo returns a duration in [0, d).
func (h *host) upTo(d time.Duration) time.Duration {
	return d * time.Duration(h.source().Intn(1024)) / 1024
}

// pause has the process take no step for d. Its clocks go on.
func (h *host) pause(d time.Duration) {
	if h.paused > h.w.now {
		return
	}
	h.paused, h.stood = h.w.now+d, h.w.now+d
	h.w.after(d, h.wake)
}

// freeze pauses the machine under the process: its boot clock stands, and what
// has passed shows as a step of the wall clock alone. It counts for holders,
// and not for contenders.
func (h *host) freeze(d time.Duration) {
	if h.paused > h.w.now {
		return
	}
	h.cont.halt(h.w.now)
	h.pause(d)
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
	if d <= 0 {
		return
	}
	h.hold.offset += d
	if h.w.now < h.paused {
		return
	}
	for _, p := range h.procs {
		for _, m := range append([]*machine(nil), p.machines...) {
			if m.h != nil {
				m.step()
			}
		}
	}
	h.client.looks()
}

func (h *host) crash() {
	h.w.note("%s crashes", h.name)
	h.orphans()
	h.w.crashed(h)
	h.up, h.asleep, h.session = false, nil, nil
	h.epoch++
	for _, p := range h.procs {
		p.machines, p.observer = nil, nil
	}
	h.client.dies()
}

func (h *host) restart() {
	if h.up {
		return
	}
	h.w.note("%s starts again", h.name)
	h.up, h.paused = true, 0
	h.hold, h.cont = h.w.clock(), h.w.clock()
	h.sights = map[string]*protocol.Sight{}
	h.w.started(h)
	for _, p := range h.procs {
		p.look()
	}
}

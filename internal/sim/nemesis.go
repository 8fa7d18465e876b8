// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"strings"
)

// Fault is a set of kinds of faults.
type Fault uint

// The kinds of faults.
const (
	CutOffs  Fault = 1 << iota // a process does not reach the store, or its answers do not reach the process
	Pauses                     // a process stands still, and its clocks go on; or its whole machine
	Crashes                    // a process is gone, and starts again
	Outages                    // nobody reaches the store
	Steps                      // wall clocks are set, forwards and backwards
	Messages                   // single requests are lost, late, or applied twice
	Stale                      // cheap reads are behind
	Late                       // timers are late
	noFaults
)

var faultNames = [...]string{"cutoffs", "pauses", "crashes", "outages", "steps", "messages", "stale", "late"}

// ParseFaults returns the kinds that a comma-separated list names. "all" and
// "none" stand for themselves.
func ParseFaults(list string) (Fault, error) {
	switch list {
	case "all":
		return noFaults - 1, nil
	case "none":
		return 0, nil
	}
	var all Fault
next:
	for name := range strings.SplitSeq(list, ",") {
		for i, known := range faultNames {
			if name == known {
				all |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("no fault is called %q: name some of %s, or all, or none", name, strings.Join(faultNames[:], ","))
	}
	return all, nil
}

// Except returns the kinds that are not in f.
func (f Fault) Except() Fault { return (noFaults - 1) &^ f }

// fails says whether faults of a kind happen now.
func (w *World) fails(f Fault) bool { return w.cfg.Faults && !w.final && w.cfg.Without&f == 0 }

// some returns a process, a replica or a client.
func (w *World) some() *host {
	n := w.src.Intn(len(w.hosts) + len(w.clients))
	if n < len(w.hosts) {
		return w.hosts[n]
	}
	return w.clients[n-len(w.hosts)].host
}

// nemesis makes trouble now and then.
func (w *World) nemesis() {
	if w.final {
		return
	}
	h := w.some()
	d := w.upTo(2 * w.t.Lease)
	switch kind := w.src.Intn(8); {
	case kind == 0 && w.fails(CutOffs):
		w.note("%s is cut off for %v", h.name, d)
		h.cutOff = w.now + d
	case kind == 1 && w.fails(Pauses):
		w.note("%s is paused for %v", h.name, d)
		w.tally.Pauses++
		h.pause(d)
	case kind == 2 && w.fails(Pauses):
		w.note("the machine of %s is paused for %v", h.name, d)
		w.tally.Freezes++
		h.freeze(d)
	case kind == 3 && w.fails(Crashes):
		w.tally.Crashes++
		h.crash()
		w.after(d, h.restart)
	case kind == 4 && w.fails(Outages):
		w.note("the store is down for %v", d/2)
		w.down = w.now + d/2
	case kind == 5 && w.fails(Steps):
		w.note("the wall clock of %s steps ahead by %v", h.name, d/2)
		w.tally.Steps++
		h.step(d / 2)
	case kind == 6 && w.fails(Steps):
		w.note("the wall clock of %s steps back by %v", h.name, d/2)
		h.step(-d / 2)
	}
	w.after(w.t.Lease/8+w.upTo(w.t.Lease), w.nemesis)
}

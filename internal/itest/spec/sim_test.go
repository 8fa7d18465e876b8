// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/internal/sim"
	"github.com/tenurelock/tenure/internal/trace"
)

// The traces of so many of the simulator's schedules are checked, the first ones
// that are short enough: TLC needs time for each event.
var schedules = flag.Int("schedules", 3, "how many of the simulator's traces to check")

const longest = 300

// TestSimulator: traces of the simulator are behaviours of the model. If the simulator itself
// finds a mistake, as with four mutants of it, the model refuses the trace as well. (That a
// lease is too long is found at its grant, before any process has believed for too long, so
// that such traces have nothing wrong in them yet.)
func TestSimulator(t *testing.T) {
	tlc(t)
	for seed := range uint64(2000) {
		// The model does not know how often a candidate asks for priority.
		events, err := simulated(seed)
		if err == nil || strings.Contains(err.Error(), "asks for priority") {
			continue
		}
		if _, ok := judge(t, events); !ok {
			t.Fatalf("seed %d: the model refuses the trace of %v", seed, err)
		}
		if t.Errorf("seed %d: the model accepts the trace of %v", seed, err); seed > 200 {
			break
		}
	}
	if t.Failed() {
		return
	}
	checked := 0
	for seed := uint64(0); checked < *schedules; seed++ {
		events, err := simulated(seed)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) > longest {
			continue
		}
		checked++
		t.Run(fmt.Sprint(seed), func(t *testing.T) { accepted(t, events) })
	}
}

// modelled leaves out what the model of traces lacks: sessions, processes with different
// leases, records that are deleted, clients, guardians, and engines that lose writes.
func modelled(c *sim.Config) {
	c.Sessions, c.Mixed, c.Deletions, c.Guarded, c.Loses = false, false, false, false, false
	c.Length = min(c.Length, 6*c.Timing.Lease) // those with many requests are long for TLC
	if c.Clients > 0 {
		c.Clients, c.Replicas, c.Processes = 0, 0, 3
	}
}

// simulated returns the trace of a schedule, and what the simulator finds in it.
func simulated(seed uint64) ([]trace.Event, error) {
	told := &sim.Trace{Events: trace.NewRecorder()}
	_, err := sim.Run(sim.Seed(seed), modelled, told)
	return told.Events.Events(), err
}

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

// The traces of so many of the simulator's schedules are checked, the first of
// those that are not longer: TLC takes its time for each event.
var schedules = flag.Int("schedules", 3, "how many of the simulator's traces to check")

const longest = 300

// TestSimulator: what the simulator has the core do is a behaviour of the model.
func TestSimulator(t *testing.T) {
	tlc(t)
	checked := 0
	for seed := uint64(0); checked < *schedules; seed++ {
		events := simulated(t, seed, nil)
		if len(events) > longest {
			continue
		}
		checked++
		t.Run(fmt.Sprint(seed), func(t *testing.T) { accepted(t, events) })
	}
}

// TestSimulatedMistakes: where the simulator finds a mistake by itself, the model
// refuses the trace as well. That a lease is too long is found at its grant, before
// anybody has believed for too long, so that such traces have nothing wrong in them yet.
func TestSimulatedMistakes(t *testing.T) {
	tlc(t)
	for _, wrong := range []sim.Wrong{sim.SeenAtRequest, sim.VersionAlone, sim.RevivingHeartbeats, sim.UnchangedRelease} {
		t.Run(wrong.String(), func(t *testing.T) {
			shape := func(c *sim.Config) {
				modelled(c)
				c.Wrong = wrong
			}
			seed := uint64(0)
			for {
				// How often somebody asks for priority is nothing that the model knows of.
				if _, err := sim.RunSeed(seed, shape, nil); err != nil && !strings.Contains(err.Error(), "asks for priority") {
					break
				}
				seed++
			}
			said, ok := judge(t, simulated(t, seed, shape))
			if ok {
				t.Errorf("seed %d: accepted", seed)
			}
			t.Log(said)
		})
	}
}

// modelled leaves out what the model of traces has not: sessions, and with them several
// locks at once, processes with different leases, records that are deleted, clients, and
// guardians.
func modelled(c *sim.Config) {
	if c.Together {
		c.Together, c.Locks = false, 1
	}
	c.Sessions, c.Mixed, c.Deletions, c.Guarded = false, false, false, false
	if c.Clients > 0 {
		c.Clients, c.Replicas, c.Processes = 0, 0, 3
	}
}

// simulated returns the trace of a schedule. What the simulator itself finds in
// it is not asked here.
func simulated(t *testing.T, seed uint64, shape func(*sim.Config)) []trace.Event {
	t.Helper()
	told := &sim.Trace{Events: trace.NewRecorder()}
	whole := shape
	if shape == nil {
		whole = modelled
	}
	if _, err := sim.RunSeed(seed, whole, told); err != nil && shape == nil {
		t.Fatal(err)
	}
	return told.Events.Events()
}

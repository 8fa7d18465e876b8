// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"flag"
	"maps"
	"slices"
	"testing"
)

var seeds = flag.Uint64("seeds", 20, "how many schedules TestShapes runs of each shape")

// and puts shapes together.
func and(shapes ...func(*Config)) func(*Config) {
	return func(c *Config) {
		for _, shape := range shapes {
			shape(c)
		}
	}
}

// Parts of shapes.
func rough(c *Config)     { c.Rough = true }
func sessioned(c *Config) { c.Sessions = true }
func long(c *Config)      { c.Length = 12 * c.Timing.Lease }
func mixed(c *Config)     { c.Mixed = true }
func requested(c *Config) { c.Requests = true }
func unasked(c *Config)   { c.Requests = false }
func doubled(c *Config)   { c.Doubled = true }
func watchers(c *Config)  { c.Observers = true }
func failing(c *Config)   { c.Fails = true }    // has the work fail now and then
func notified(c *Config)  { c.Notified = true } // has notifications come

// busy has heartbeats by themselves, and many reads.
func busy(c *Config) {
	c.Timing.Manual, c.Timing.Refresh = false, c.Timing.Lease/15
	c.Length, c.Requests = 12*c.Timing.Lease, false
}

// calm has no faults, and works that hang.
func calm(c *Config) {
	c.Sessions, c.Faults, c.Requests = true, false, true
	c.Timing.Progress, c.Timing.StopTimeout = c.Timing.Lease/2, c.Timing.Lease/4
	c.Length = 12 * c.Timing.Lease
}

// labelled makes operators ask holders to hand over to a label, which some processes
// have.
func labelled(c *Config) { c.Labels, c.Requests = true, true }

// unheard shapes schedules in which an acquire under a session does not learn for long
// that it has the lock, while others ask the session whether it holds the lock.
func unheard(c *Config) {
	c.Sessions, c.Unheard, c.Faults, c.Locks, c.Length = true, true, false, 1, 12*c.Timing.Lease
	c.Deletions = false
	c.Timing.RequestTimeout = c.Timing.Lease / 4 // a reply is old when it comes
	c.Clients, c.Replicas = 0, 0                 // two such calls take longer than an unused grant is kept
}

// Shapes of schedules with clients of a lock service.
var (
	served = func(c *Config) {
		if c.Clients == 0 {
			c.Guarded = false
			c.Processes, c.Replicas, c.Clients = 1, 2, 3
		}
	}
	// servedLong has time for much to come late.
	servedLong = func(c *Config) {
		served(c)
		c.Length = 12 * c.Timing.Lease
	}
	// servedTwice has calls and claims that come twice.
	servedTwice = func(c *Config) {
		servedLong(c)
		c.Rough, c.Doubled = true, true
	}
	// servedHarm judges what comes of what clients do alone.
	servedHarm = func(c *Config) {
		servedLong(c)
		c.Harm = true
	}
)

// Shapes of schedules in which guardians free the locks of processes that have crashed.
var (
	guarded = func(c *Config) {
		c.Clients, c.Replicas = 0, 0
		c.Guarded, c.Processes = true, max(c.Processes, minProcesses)
	}
	// guardedLong has time for many deaths, and a grace that is long enough for much to
	// happen in it.
	guardedLong = func(c *Config) {
		guarded(c)
		c.Timing.Grace, c.Length, c.Sessions = c.Timing.Lease/8, 12*c.Timing.Lease, false
	}
	// guardedPrompt has processes that crash, and nothing else that fails, so that a lock
	// must soon be free.
	guardedPrompt = func(c *Config) {
		guardedLong(c)
		c.Without, c.Requests, c.Mixed = Crashes.Except(), true, false
	}
	// guardedDeleted deletes records, so that tokens begin again.
	guardedDeleted = func(c *Config) {
		guardedLong(c)
		c.Processes, c.Deletions, c.Requests = minProcesses, true, true
	}
)

// keeping has an engine that loses nothing.
func keeping(c *Config) { c.Loses = false }

// losing puts the records on an engine that may lose them.
func losing(c *Config) {
	c.Loses, c.Clients, c.Replicas, c.Guarded, c.Deletions, c.Unless, c.Observers = true, 0, 0, false, false, false, false
	c.Processes = max(c.Processes, minProcesses)
}

// losingLeases has no sessions.
func losingLeases(c *Config) {
	losing(c)
	c.Sessions, c.Requests, c.Mixed = false, false, false
}

// shapes are kinds of schedules. Each shows some mistakes soon.
var shapes = map[string]func(*Config){
	"any":          func(*Config) {},
	"requested":    requested,
	"busy":         busy,
	"unless":       func(c *Config) { c.Unless, c.Sessions = true, true },
	"twice":        func(c *Config) { c.Twice, c.Requests = true, false },
	"deleted":      and(rough, long, func(c *Config) { c.Deletions = true }),
	"rough":        and(rough, unasked),
	"watched":      and(watchers, unasked, long),
	"labels":       labelled,
	"failing":      failing,
	"notified":     notified,
	"served":       served,
	"served-long":  servedLong,
	"served-twice": servedTwice,
	"served-harm":  servedHarm,
	"mixed-served": and(servedLong, mixed),
	"mixed-harm":   and(servedHarm, mixed),
	"mixed-leases": func(c *Config) {
		c.Mixed, c.Sessions, c.Requests = true, false, false
	},
	"mixed-sessions":  and(mixed, sessioned, requested),
	"losing":          losing,
	"losing-sessions": and(losing, sessioned),
	"losing-leases":   losingLeases,
	"guarded":         guarded,
	"guarded-long":    guardedLong,
	"guarded-prompt":  guardedPrompt,
	"guarded-deleted": guardedDeleted,

	// Clocks that need no margin leave none that could hide a late count.
	"slow": func(c *Config) {
		c.Timing.RequestTimeout, c.Timing.Drift, c.Timing.Grace = c.Timing.Lease/2, 1e-4, 1
		c.Timing.Heartbeat, c.Timing.Refresh, c.Timing.Manual = c.Timing.Lease/5, c.Timing.Lease/15, false
		c.Length, c.Requests = 12*c.Timing.Lease, false
	},
	// Processes that stand still, and are freed by operators.
	"freed": func(c *Config) {
		c.Processes, c.Locks, c.Requests, c.Length = minProcesses, 1, true, 12*c.Timing.Lease
		c.Timing.StopTimeout, c.Timing.Progress = 2*c.Timing.Lease, 0
		c.Without = (Pauses | Steps).Except()
	},

	"sessions":           sessioned,
	"sessions-long":      and(sessioned, long),
	"sessions-rough":     and(sessioned, rough),
	"sessions-swept":     and(sessioned, rough, long),
	"sessions-requested": and(sessioned, requested, long),
	"sessions-calm":      calm,
	"sessions-many":      func(c *Config) { calm(c); c.Locks = 2 },
	"sessions-waited":    and(sessioned, doubled),
	"sessions-tried":     func(c *Config) { c.Sessions, c.Doubled, c.Trying = true, true, true },
	"sessions-unheard":   unheard,
}

// TestShapes runs schedules of each shape. It goes on after a violation, so that a mutant is
// found by the rule that it breaks, whichever other rule it breaks first.
func TestShapes(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		t.Run(name, func(t *testing.T) {
			broken := map[string]bool{}
			for seed := range few(*seeds) {
				_, err := Run(Seed(seed), and(keeping, shapes[name]), nil)
				if v, failed := err.(*Violation); failed && !broken[v.Rule] { //nolint:errorlint // it is never wrapped
					broken[v.Rule] = true
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

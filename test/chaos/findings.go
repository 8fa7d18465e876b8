// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/harness/machine"
	"github.com/tenurelock/tenure/test/harness/page"
)

// results is everything that a run found. The page is made from it alone.
type results struct {
	Machine machine.Machine `json:"machine"`
	Setting size            `json:"setting"`
	Stores  []*finding      `json:"stores"`
}

// finding is the result on one store. Times are in seconds.
type finding struct {
	Store string `json:"store"`
	Date  string `json:"date"`
	// Filled is how long a new group takes until all partitions are owned, from the
	// start of its processes.
	Filled  float64  `json:"firstAssignmentSeconds"`
	Changes []change `json:"changes"`
	// Terms is how many terms had a Check that passed, OwnedTwice where two handlers
	// had a partition at once, and Fence what the resource saw.
	Terms      int      `json:"tenures"`
	OwnedTwice []string `json:"ownedTwice"`
	Fence      fenced   `json:"fence"`
	Lost       []string `json:"sessionsLost"` // by living workers
	Missed     []string `json:"missed"`
}

func (f *finding) miss(format string, args ...any) {
	f.Missed = append(f.Missed, fmt.Sprintf(format, args...))
}

// What happens to a group, where it is judged by its name.
const (
	killOfWorker   = "SIGKILL of a worker" // that is not the coordinator
	plannedLeave   = "a planned leave"
	oneComes       = "one comes"
	rollingRestart = "a rolling restart of all"
)

// change is the effect of an event on the group.
type change struct {
	What string `json:"what"`
	// Took is how long it took until all was owned again; or, of what was planned, was done.
	Took float64 `json:"tookSeconds"`

	// Of a worker that was lost: how many partitions it had; what was left of its lease since
	// the last heartbeat that was confirmed; and that with one poll.
	Partitions int     `json:"partitions,omitempty"`
	Lease      float64 `json:"leaseLeftSeconds,omitempty"`
	Expected   float64 `json:"expectedSeconds,omitempty"`

	// Of what was planned: Share is the partitions of one worker, and Gaps are the times in
	// which a partition had no owner: from the return of one handler to the start of the next.
	Moves int     `json:"moves,omitempty"`
	Most  int     `json:"mostMovesOfOne,omitempty"`
	Share float64 `json:"share,omitempty"`
	Gaps  stretch `json:"gaps,omitzero"`
}

// stretch is a number of times, in seconds.
type stretch struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func stretchOf(times []float64) stretch {
	if len(times) == 0 {
		return stretch{}
	}
	slices.Sort(times)
	n := len(times)
	return stretch{n, times[n/2], times[n-1]}
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// fenced is the result of the writes to the resource.
type fenced struct {
	Accepted int `json:"accepted"`
	// Refused is how many had a token that was no more the highest.
	Refused int      `json:"refused"`
	Late    []string `json:"acceptedLate"`
}

// take adds the judgement of a group's log.
func (f *finding) take(l *trial.Log) {
	f.Terms += len(l.Holds)
	for _, e := range l.Effects {
		switch {
		case e.Refused:
			f.Fence.Refused++
		case e.Entered > 0:
			f.Fence.Accepted++
		}
	}
	for _, wrong := range l.Judge() {
		switch wrong.Sin {
		case trial.Fence:
			f.Fence.Late = append(f.Fence.Late, wrong.Text)
		case trial.Outside:
			f.miss("%s", wrong.Text)
		default:
			f.OwnedTwice = append(f.OwnedTwice, wrong.Text)
		}
	}
}

// missed returns an error if a result is wrong.
func (r *results) missed() (err error) {
	for _, f := range r.Stores {
		for _, m := range f.Missed {
			err = errors.Join(err, fmt.Errorf("MISSED: %s: %s", f.Store, m))
		}
	}
	return err
}

// tolerance is how far a time may exceed the computed one: a kill comes anywhere
// in a period, and the machine is busy.
const tolerance = 1.5

// judge reports what is wrong. The times of a quick run mean
// nothing, nor does what moves when a worker is lost because it got no processor.
func (f *finding) judge(size size) {
	miss := func(missed bool, format string, args ...any) {
		if missed {
			f.miss(format, args...)
		}
	}
	miss(len(f.OwnedTwice) > 0, "owned twice, by Check, %s", some(f.OwnedTwice))
	miss(len(f.Fence.Late) > 0, "stale writes accepted, %s", some(f.Fence.Late))
	miss(f.Fence.Accepted == 0 || f.Fence.Refused == 0,
		"the fence saw %d writes and refused %d: it was not tried", f.Fence.Accepted, f.Fence.Refused)
	if size.Quick {
		return
	}
	miss(len(f.Lost) > 0, "sessions of living workers were lost, %s", some(f.Lost))
	for _, c := range f.Changes {
		miss(c.Expected > 0 && c.Took > tolerance*c.Expected,
			"%s: all %d owned after %.2f s, where %.2f s were to be expected", c.What, c.Partitions, c.Took, c.Expected)
		// If the store reports releases, the next owner need not poll.
		miss(c.What == plannedLeave && c.Gaps.Max > tolerance*(size.Refresh+size.Drain).Seconds(),
			"%s: a partition had no owner for %.3f s", c.What, c.Gaps.Max)
		miss(c.What == rollingRestart && c.Most > mostMoves, "%s moved a partition %d times", c.What, c.Most)
		miss(c.What == oneComes && c.Moves > int(1.1*c.Share)+1,
			"a worker that came moved %d partitions, with a share of %.0f", c.Moves, c.Share)
	}
}

// mostMoves is how often a rolling restart may move one partition: away from its
// worker, back to it, and once more each because its owner meanwhile was restarted,
// too.
const mostMoves = 4

// some returns the first ones of a list, and how many there are.
func some(list []string) string {
	return fmt.Sprintf("%d: %s", len(list), strings.Join(list[:min(len(list), 3)], ", "))
}

func (r *results) markdown() string {
	var b strings.Builder
	s := r.Setting
	fmt.Fprintf(&b, "%d processes, %s partitions, lease %v s, heartbeat %v s, a poll each %v s, "+
		"work that ends in %.0f ms; on %v.\n\n", s.Workers, page.Thousands(s.Partitions), s.Lease.Seconds(),
		s.Heartbeat.Seconds(), s.Refresh.Seconds(), s.Drain.Seconds()*1000, r.Machine)
	head, rows := []string{""}, make([][]string, len(r.Stores[0].lines()))
	for _, f := range r.Stores {
		head = append(head, f.Store)
		for i, line := range f.lines() {
			if rows[i] == nil {
				rows[i] = line[:1]
			}
			rows[i] = append(rows[i], line[1])
		}
	}
	page.Table(&b, head, rows)
	return b.String()
}

// lines returns what was found, each with a name.
func (f *finding) lines() (all [][]string) {
	add := func(name, format string, args ...any) {
		all = append(all, []string{name, fmt.Sprintf(format, args...)})
	}
	add("measured", "%s", f.Date)
	add("all partitions have an owner after the start", "%.1f s", f.Filled)
	for _, c := range f.Changes {
		if c.Expected > 0 {
			add(c.What+", until all are owned again (lease and poll)", "%.2f s (%.2f)", c.Took, c.Expected)
		} else {
			add(c.What+": time; moves; time without an owner", "%.1f s; %d; %v", c.Took, c.Moves, c.Gaps)
		}
	}
	add("partitions owned twice, by Check", "%d, of %s terms", len(f.OwnedTwice), page.Thousands(f.Terms))
	add("writes to the fenced resources", "%s accepted, %s stale ones refused, %d accepted out of order",
		page.Thousands(f.Fence.Accepted), page.Thousands(f.Fence.Refused), len(f.Fence.Late))
	add("sessions that a living worker lost, but for the paused one", "%d", len(f.Lost))
	return all
}

func (s stretch) String() string {
	if s.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f ms, at most %.0f", s.Median*1000, s.Max*1000)
}

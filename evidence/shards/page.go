// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/peers"
)

// kclFailover is the failover time that the Kinesis Client Library has by default.
const kclFailover = 10 * time.Second

// write writes the tables to stdout, or to a page, and everything as JSON.
func (r *results) write(stdout io.Writer, toJSON string) error {
	return page.Publish(r, r.markdown(), "", stdout, toJSON, "")
}

func (r *results) markdown() string {
	var b strings.Builder
	s := r.Setting
	if r.Quick {
		b.WriteString("This was a quick run: the times mean nothing.\n\n")
	}
	fmt.Fprintf(&b, "| | |\n| --- | --- |\n| machine | %s (%d cores), %s |\n", r.Machine.CPU, r.Machine.Cores, r.Machine.System)
	for _, f := range r.Stores {
		fmt.Fprintf(&b, "| %s | %s, in %.0f s; load at the start and the end %s, %s |\n", f.Store, f.Date, f.Took, f.LoadBefore, f.LoadAfter)
	}
	for _, v := range r.Virtual {
		fmt.Fprintf(&b, "| simulated | %s, in %.0f s: `%s` |\n", v.Date, v.Took, v.Command)
	}
	if len(r.Stores) > 0 {
		fmt.Fprintf(&b, "\n### %d processes, %s partitions\n\n", s.Workers, page.Thousands(s.Partitions))
		fmt.Fprintf(&b, "Lease %v s, heartbeat %v s, a look each %v s. A handler works on for %.0f ms when it is told to stop. "+
			"Each of the many workers has %d claims under way at most; two that share what one has left have %d.\n\n", s.Lease, s.Heartbeat, s.Refresh, s.Drain*1000, s.Claims, claimsAtOnce)
		r.table(&b)
	}
	for _, v := range r.Virtual {
		fmt.Fprintf(&b, "\n### %s\n\n```\n%s\n```\n", v.What, strings.Join(v.Lines, "\n"))
	}
	return b.String()
}

// table writes a column for each store.
func (r *results) table(b *strings.Builder) {
	head, rows := []string{""}, [][]string{}
	for i, f := range r.Stores {
		head = append(head, f.Store)
		for _, line := range f.lines(r.Setting) {
			at := slices.IndexFunc(rows, func(row []string) bool { return row[0] == line[0] })
			if at < 0 {
				at = len(rows)
				rows = append(rows, append([]string{line[0]}, make([]string, len(r.Stores))...))
			}
			rows[at][i+1] = line[1]
		}
	}
	page.Table(b, head, rows)
}

// lines returns what was found, each with a name.
func (f *finding) lines(s setting) [][2]string {
	var all [][2]string
	add := func(name, format string, args ...any) {
		all = append(all, [2]string{name, fmt.Sprintf(format, args...)})
	}
	add("from the start of the processes until each partition had an owner", "%.1f s", f.Filled.Owned)
	add("until all were where they are planned", "%.1f s; a worker has %d to %d", f.Filled.Settled, f.Filled.Least, f.Filled.Most)
	add("requests a second while nothing changes", "%s", f.Steady)
	kcl := peers.KCL(s.Partitions/max(1, s.Workers), kclFailover)
	add("the Kinesis Client Library's writes a second, by its periods", "%.0f, with a failover time of %v", kcl.WriteUnits*float64(s.Workers), kclFailover)
	killed := 0
	for _, r := range f.Recoveries {
		what := r.What
		if what == killOfWorker {
			killed++
			what = fmt.Sprintf("%s (%d)", what, killed)
		}
		add(what+": until all were owned again", "%.2f s: %.2f s of the lease and one look were to be expected; %d partitions%s, and the first was owned again after %.2f s; %d others moved",
			r.Took, r.Expected, r.Partitions, closedAfter(r.Closed), r.First, r.Others)
	}
	l := f.Lone
	add(fmt.Sprintf("SIGKILL of one that alone has %s", page.Thousands(s.Partitions)), "%.2f s, %.2f of what was to be expected", l.Took, l.Ratio)
	add("of these: the lease", "%.2f s left since the last heartbeat%s", l.Lease, closedAfter(l.Closed))
	add("of these: one look", "%.2f s; the first was owned after %.2f s", l.Look, l.First)
	add("of these: the claims", "%.2f s, at the measured %.0f a second; the last was owned %.2f s after the first", l.Claims, l.Rate, l.Took-l.First)
	for _, m := range []struct {
		name string
		*moving
	}{{"a planned leave", &f.Leave}, {"one comes", &f.Join}, {"a rolling restart of all", &f.Roll}} {
		add(m.name, "%.1f s; %d moves, with a share of %.0f; %d of one partition at most, %.2f on average", m.Took, m.Moves, m.Share, m.Most, m.Mean)
		add(m.name+": a partition had nobody", "%v", m.Gaps)
		add(m.name+": from when the handler was told to stop until the next began", "%v", m.Handovers)
		add(m.name+": from when the next one asked, or began to wait, until it has it", "%v", m.Asked)
	}
	add("partitions owned twice, by Check", "%d, of %s tenures", len(f.OwnedTwice), page.Thousands(f.Tenures))
	add("writes to the fenced resources", "%s accepted, %s stale ones refused, %d accepted out of order", page.Thousands(f.Fence.Accepted), page.Thousands(int(f.Fence.Refused)), len(f.Fence.Late))
	add("sessions that a living worker lost, but for the paused one", "%d", len(f.Lost))
	if len(f.Missed) > 0 {
		add("**missed**", "%s", strings.Join(f.Missed, "; "))
	}
	return all
}

// closedAfter tells when a session was closed, where that is known.
func closedAfter(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	return fmt.Sprintf("; the session was closed after %.2f s", seconds)
}

func (s steady) String() string {
	if s.Wire != nil {
		return fmt.Sprintf("%.1f, as counted on the wire: %s", s.Wire.Requests, s.Wire.Operations(1))
	}
	return fmt.Sprintf("%.1f reads and %.1f writes, as counted by the workers", s.Reads, s.Writes)
}

func (s stretch) String() string {
	if s.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f ms at most, p99 %.0f ms, median %.0f ms (%d times)", s.Max*1000, s.P99*1000, s.Median*1000, s.N)
}

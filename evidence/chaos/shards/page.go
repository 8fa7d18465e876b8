// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shards

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/peers"
)

// command makes the part of docs/evidence/performance.md that is made.
const command = "go run ./evidence/chaos -workload shards"

// kclFailover is the failover time that the Kinesis Client Library has by default.
const kclFailover = 10 * time.Second

// write writes the tables to stdout, or to a page, and everything as JSON.
func (r *results) write(stdout io.Writer, toJSON, toPage string) error {
	return page.Publish(r, r.markdown(), command, stdout, toJSON, toPage)
}

func (r *results) markdown() string {
	var b strings.Builder
	s := r.Setting
	if r.Quick {
		b.WriteString("This was a quick run: the times mean nothing.\n\n")
	}
	fmt.Fprintf(&b, "%d processes, %s partitions, lease %v s, heartbeat %v s, a poll each %v s, "+
		"work that ends in %.0f ms; on %s (%d cores).", s.Workers, page.Thousands(s.Partitions),
		s.Lease, s.Heartbeat, s.Refresh, s.Drain*1000, r.Machine.CPU, r.Machine.Cores)
	for _, f := range r.Stores {
		fmt.Fprintf(&b, " %s: %s, load %s, %s.", f.Store, f.Date, f.LoadBefore, f.LoadAfter)
	}
	b.WriteString("\n\n")
	r.table(&b)
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
	add("all partitions have an owner after the start", "%.1f s", f.Filled.Owned)
	kcl := peers.KCL(s.Partitions/max(1, s.Workers), kclFailover)
	add("requests a second, nothing changes", "%s; KCL writes %.0f", f.Steady, kcl.WriteUnits*float64(s.Workers))
	killed := 0
	for _, r := range f.Recoveries {
		what := r.What
		if what == killOfWorker {
			killed++
			what = fmt.Sprintf("%s (%d)", what, killed)
		}
		add(what+", until all are owned again (lease and poll)", "%.2f s (%.2f)", r.Took, r.Expected)
	}
	add(fmt.Sprintf("SIGKILL of one that has %s, until all are owned again (lease and poll)",
		page.Thousands(s.Partitions)), "%.2f s (%.2f)", f.Lone.Took, f.Lone.Expected)
	for _, m := range []struct {
		name string
		*moving
	}{{"a planned leave", &f.Leave}, {"one comes", &f.Join}, {"a rolling restart of all", &f.Roll}} {
		add(m.name+": time; moves; time without an owner", "%.1f s; %d; %v", m.Took, m.Moves, m.Gaps)
	}
	add("partitions owned twice, by Check", "%d, of %s tenures", len(f.OwnedTwice), page.Thousands(f.Tenures))
	add("writes to the fenced resources", "%s accepted, %s stale ones refused, %d accepted out of order",
		page.Thousands(f.Fence.Accepted), page.Thousands(f.Fence.Refused), len(f.Fence.Late))
	add("sessions that a living worker lost, but for the paused one", "%d", len(f.Lost))
	if len(f.Missed) > 0 {
		add("**missed**", "%s", strings.Join(f.Missed, "; "))
	}
	return all
}

func (s steady) String() string {
	if s.Wire != nil {
		return fmt.Sprintf("%.0f", s.Wire.Requests)
	}
	return fmt.Sprintf("%.0f reads, %.0f writes", s.Reads, s.Writes)
}

func (s stretch) String() string {
	if s.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f ms, at most %.0f", s.Median*1000, s.Max*1000)
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/tenurelock/tenure/shard/internal/plan"
)

// row is what one event costs.
type row struct {
	Event string

	// Moves is how many times a partition changed hands in all.
	Moves int

	// Due is how many moves were necessary: what leavers had, and what newcomers
	// and returners have as their share.
	Due int

	// Often is the largest number of times that one partition changed hands.
	Often int

	// Before and After are the loads of the fullest member over its share, and
	// Worst the highest on the way.
	Before, Worst, After float64

	// Rounds is how many looks, of 20 s each, the taker needs from the event, or
	// from the last of several, until loads differ by no more than one. Our plan
	// is there at once: 0.
	Rounds int
}

// group is a way of giving partitions to workers. Events change which workers are there.
type group interface {
	set(away func(worker int) bool, workers int) // and lets at most one pause between events pass
	settle() (rounds int)                        // lets time pass until nothing moves any more
	owners() []int                               // by partition, -1: nobody
	worst() float64
}

// run counts moves over events.
type run struct {
	row   row
	g     group
	was   []int
	moves []int
}

func start(event string, g group) *run {
	g.settle()
	w := g.worst()
	return &run{row: row{Event: event, Before: w, Worst: w}, g: g, was: g.owners(), moves: make([]int, len(g.owners()))}
}

// look counts what moved since the last look. Nobody's partitions have moved
// when they have an owner again.
func (r *run) look() {
	for i, is := range r.g.owners() {
		if is != r.was[i] && is >= 0 {
			r.moves[i]++
			r.row.Moves++
			r.was[i] = is
		}
	}
	r.row.Worst = max(r.row.Worst, r.g.worst())
}

func (r *run) end(due int) row {
	r.row.Rounds = r.g.settle()
	r.look()
	r.row.After, r.row.Due, r.row.Often = r.g.worst(), due, slices.Max(r.moves)
	return r.row
}

// ours returns what our plan moves.
func ours(workers, partitions int) []row {
	return rows(workers, partitions, func() group { return newPlanned(workers, partitions) })
}

// byTaker returns what the taker of the Kinesis Client Library 2 moves.
func byTaker(workers, partitions int) []row {
	return rows(workers, partitions, func() group { return newTaker(workers, partitions) })
}

func rows(workers, partitions int, begin func() group) []row {
	share := int(math.Ceil(float64(partitions) / float64(workers)))
	nobody := func(int) bool { return false }
	var out []row

	r := start("one joins", begin())
	r.g.set(nobody, workers+1)
	r.look()
	out = append(out, r.end(partitions/(workers+1)))

	r = start("one leaves or crashes, for good", begin())
	r.g.set(func(w int) bool { return w == workers/2 }, workers)
	r.look()
	out = append(out, r.end(share))

	r = start("one in ten crashes at once", begin())
	r.g.set(func(w int) bool { return w%10 == 4 }, workers)
	r.look()
	out = append(out, r.end(partitions/10))

	for _, at := range []int{1, max(1, workers/20)} {
		r = start(fmt.Sprintf("rolling deploy of all, %d at a time", at), begin())
		for first := 0; first < workers; first += at {
			r.g.set(func(w int) bool { return w >= first && w < first+at }, workers)
			r.look()
			r.g.set(nobody, workers)
			r.look()
		}
		out = append(out, r.end(2*partitions))
	}
	return out
}

// printTable writes what both move.
func printTable(w io.Writer, workers, partitions int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%d workers, %d partitions\tby\tmoves\tdue\tone moves\tfullest before\ton the way\tafter\teven after\t\n",
		workers, partitions)
	for _, by := range []struct {
		name string
		rows []row
	}{{"plan", ours(workers, partitions)}, {"KCL 2 taker", byTaker(workers, partitions)}} {
		for _, r := range by.rows {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%.3f\t%.3f\t%.3f\t%d s\t\n",
				r.Event, by.name, r.Moves, r.Due, r.Often, r.Before, r.Worst, r.After, 20*r.Rounds)
		}
	}
	return t.Flush()
}

// planned is a group that follows our plan.
type planned struct {
	names []string
	plan  *plan.Plan
}

func newPlanned(workers, partitions int) *planned {
	g := &planned{names: make([]string, partitions)}
	for i := range g.names {
		g.names[i] = fmt.Sprintf("shard-%06d", i)
	}
	g.set(func(int) bool { return false }, workers)
	return g
}

func (g *planned) set(away func(worker int) bool, workers int) {
	in := plan.Input{Partitions: g.names}
	for place := range workers {
		in.Members = append(in.Members, plan.Member{Place: place, Leaving: away(place)})
	}
	if g.plan == nil {
		g.plan = plan.Make(in)
		return
	}
	g.plan = g.plan.Remake(in)
}

func (g *planned) settle() int    { return 0 }
func (g *planned) worst() float64 { return g.plan.Balance().Worst }

func (g *planned) owners() []int {
	out := make([]int, g.plan.Len())
	for i := range out {
		out[i] = g.plan.Owner(i)
	}
	return out
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"slices"
)

// Load is what one member is to have.
type Load struct {
	Place   int     // of the member
	Planned int     // partitions
	Target  float64 // its weighted share of all partitions, with no regard to Max and zones
	Max     int     // as given; 0: no limit
}

// Balance is how a plan spreads the partitions.
type Balance struct {
	// Loads are the members that take part, by place.
	Loads []Load

	// Worst is the load of the member that has most beside its target, over that
	// target: 1 if all have their weighted share, 0 without members.
	Worst float64

	// Unassigned is how many partitions no member has room for.
	Unassigned int

	// Abroad is how many partitions have a zone of their own in which there are
	// members, and an owner elsewhere.
	Abroad int
}

// Balance returns how the partitions are spread.
func (p *Plan) Balance() Balance {
	b := Balance{Unassigned: len(p.Unassigned()), Abroad: p.membership.abroad(p.owners)}
	var all uint64
	places := p.Places()
	for _, place := range places {
		all += p.membership.weights[place]
	}
	for _, place := range places {
		l := Load{
			Place:   place,
			Planned: len(p.of[place]),
			Target:  float64(len(p.owners)) * float64(p.membership.weights[place]) / float64(all),
		}
		if p.membership.most[place] != math.MaxInt {
			l.Max = p.membership.most[place]
		}
		if l.Target > 0 {
			b.Worst = max(b.Worst, float64(l.Planned)/l.Target)
		}
		b.Loads = append(b.Loads, l)
	}
	return b
}

// Change is how many partitions a member gets and gives up between two plans.
type Change struct {
	Place int
	In    int
	Out   int
}

// Difference is what changes between two plans.
type Difference struct {
	// Moved is how many of the partitions that are in both plans have another owner,
	// including partitions that get or lose their only owner.
	Moved int

	// Added and Removed are how many partitions are only in the later, and only
	// in the earlier plan.
	Added, Removed int

	// Changes has the members that get or give up a partition that is in both
	// plans, by place.
	Changes []Change
}

// Moves returns what changes between two plans. Partitions are told apart by
// their names.
func Moves(from, to *Plan) Difference {
	var d Difference
	places := max(len(from.membership.live), len(to.membership.live))
	in, out := make([]int, places+1), make([]int, places+1) // the last: without an owner
	moved := func(was, is int32) {
		if was == is {
			return
		}
		d.Moved++
		out[(int(was)+places+1)%(places+1)]++
		in[(int(is)+places+1)%(places+1)]++
	}
	if slices.Equal(from.membership.names, to.membership.names) {
		for i := range from.owners {
			moved(from.owners[i], to.owners[i])
		}
	} else {
		is := make(map[string]int32, len(to.owners))
		for i, name := range to.membership.names {
			is[name] = to.owners[i]
		}
		for i, name := range from.membership.names {
			place, ok := is[name]
			if !ok {
				d.Removed++
				continue
			}
			delete(is, name)
			moved(from.owners[i], place)
		}
		d.Added = len(is)
	}
	for place := range places {
		if in[place] > 0 || out[place] > 0 {
			d.Changes = append(d.Changes, Change{Place: place, In: in[place], Out: out[place]})
		}
	}
	return d
}

// Places returns the places that take part, in ascending order: those of the
// members that are not leaving.
func (p *Plan) Places() []int {
	var places []int
	for place, live := range p.membership.live {
		if live {
			places = append(places, place)
		}
	}
	return places
}

// abroad counts the partitions that are not where they would rather be, though
// there are members.
func (r *membership) abroad(owners []int32) int {
	there := map[int32]bool{}
	for place, live := range r.live {
		if live && r.zones[place] != None {
			there[r.zones[place]] = true
		}
	}
	count := 0
	for n, i := range r.order {
		if place := owners[i]; place != None && there[r.home[n]] && r.zones[place] != r.home[n] {
			count++
		}
	}
	return count
}

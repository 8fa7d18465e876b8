// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"sync"
)

// None is the place of nobody.
const None = -1

// MaxPlaces is how many places there may be. A member of a place beyond gets
// nothing.
const MaxPlaces = 1 << 14

// Member is one place of the group, and the worker in it.
type Member struct {
	// Place is the number of the place, from 0. No two members have the same.
	Place int

	// Weight is the share of the work that the member is to have, beside the
	// others' weights. If zero, or not a positive number, 1. It counts in
	// thousandths.
	Weight float64

	// Base is the weight that the place had when the roll was last levelled: see
	// [Input.Base]. If zero, or not a positive number, it is the weight. With it
	// a place that gets another weight takes or gives up the difference; without,
	// all places from this one on are filled anew.
	Base float64

	// Zone is where the member is. If empty, nowhere in particular.
	Zone string

	// Max is the largest number of partitions that the member may have. If zero
	// or less, there is no such limit.
	Max int

	// Leaving says that the place is to have no partitions: its member is on its
	// way out, or gone. A vacant place below the highest one in use should be
	// given like this, with the weights and the zone that its last member had:
	// one that is not given counts as vacant with weight 1 and no zone, and a
	// place whose weight changes changes the plan for others.
	Leaving bool
}

// Input is the roll that a plan is made from. The order of the partitions and of
// the members does not matter.
type Input struct {
	// Partitions are the names of the partitions, each once.
	Partitions []string

	// Base are the names that the roll had when it was last levelled. If nil,
	// the plan is made from Partitions. With a base, partitions that are added
	// or removed leave the others where they are, or nearly: those that are not
	// in the base are spread like those of vacant places. Without, one partition
	// more or less moves a few of the others, and in groups of hundreds of
	// members a large part of them; but loads are even.
	Base []string

	// Zones has the zone that a partition is better worked on in, by the name of
	// the partition. Partitions without one, or with a zone in which there is
	// nobody, are the same anywhere.
	Zones map[string]string

	// Members are the places of the group. See [Member] for vacant ones.
	Members []Member
}

// Plan says which worker should have which partition. It does not change; any number of
// goroutines may use it. Partitions are named by their index in
// [Input.Partitions], members by their place.
type Plan struct {
	names  []string
	roll   *roll
	owners []int32
	of     map[int][]int
	abroad int

	mu    sync.Mutex
	heirs map[int][]int32 // as in of
}

// Make returns the plan for a roll. It keeps the slices of the input, which must
// not be changed afterwards.
func Make(in Input) *Plan { return of(newRoll(in, nil)) }

// Remake returns what [Make] returns. It is much faster if only the members have
// changed since the plan was made, and not the partitions, the base, the highest
// place or a weight.
func (p *Plan) Remake(in Input) *Plan { return of(newRoll(in, p.roll)) }

func of(r *roll) *Plan {
	p := &Plan{names: r.names, roll: r, heirs: map[int][]int32{}}
	p.owners = r.spread(r.settle())
	p.of = make(map[int][]int, len(r.live)+1)
	for i, place := range p.owners {
		p.of[int(place)] = append(p.of[int(place)], i)
	}
	p.abroad = r.abroad(p.owners)
	return p
}

// Len returns the number of partitions.
func (p *Plan) Len() int { return len(p.owners) }

// Name returns the name of a partition.
func (p *Plan) Name(i int) string { return p.names[i] }

// Owner returns the place of the member that is to have a partition, or [None]
// if nobody has room for it.
func (p *Plan) Owner(i int) int { return int(p.owners[i]) }

// Heir returns the place of the member that is to have a partition when its
// owner, and nobody else, leaves: what [Make] says for the same roll with the
// owner marked as leaving. It returns [None] if there is no owner, or nobody
// else with room. The first question about a place's partitions makes that other
// plan, the next ones look it up.
func (p *Plan) Heir(i int) int {
	place := p.Owner(i)
	if place == None {
		return None
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	heirs, ok := p.heirs[place]
	if !ok {
		without := p.roll.without(place)
		owners := without.spread(without.settle())
		heirs = make([]int32, 0, len(p.of[place]))
		for _, i := range p.of[place] {
			heirs = append(heirs, owners[i])
		}
		p.heirs[place] = heirs
	}
	at, _ := slices.BinarySearch(p.of[place], i)
	return int(heirs[at])
}

// Of returns the partitions that the member in a place is to have, in ascending
// order. The caller must not change the slice.
func (p *Plan) Of(place int) []int {
	if place == None {
		return nil
	}
	return p.of[place]
}

// Unassigned returns the partitions that nobody has room for, in ascending
// order. The caller must not change the slice.
func (p *Plan) Unassigned() []int { return p.of[None] }

// Places returns the places that take part, in ascending order: those of the
// members that are not leaving.
func (p *Plan) Places() []int {
	var places []int
	for place, live := range p.roll.live {
		if live {
			places = append(places, place)
		}
	}
	return places
}

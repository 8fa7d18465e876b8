// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// membership is an [Input] in numbers, with its partitions in the order of their
// hashes, so that nothing depends on the order in which they were given.
type membership struct {
	setting
	names []string // as in the input
	root  []string // its base
	order []int32  // index in the input of each partition

	links []uint64 // hashes of the names that the chain is made from
	link  []int32  // index in links of each partition, or None
}

// newMembership reads an input, and reuses the unchanged parts of a former membership,
// which may be nil.
func newMembership(in Input, former *membership) *membership {
	r := &membership{}
	members := r.members(in.Members)
	if former != nil && slices.Equal(former.names, in.Partitions) &&
		(former.root == nil) == (in.Base == nil) && slices.Equal(former.root, in.Base) {
		r.order, r.hashes, r.links, r.link = former.order, former.hashes, former.links, former.link
		r.names, r.root = former.names, former.root
		if slices.Equal(former.weights, r.weights) {
			r.base = former.base
		}
	} else {
		r.partitions(in)
	}
	if r.base == nil {
		r.chain()
	}
	r.zone(in, members)
	return r
}

func (r *membership) partitions(in Input) {
	r.names, r.root = in.Partitions, in.Base
	r.order, r.hashes = sorted(in.Partitions)
	r.link = make([]int32, len(r.order))
	if in.Base == nil {
		r.links = r.hashes
		for i := range r.link {
			r.link[i] = int32(i)
		}
		return
	}
	var order []int32
	order, r.links = sorted(in.Base)
	at := make(map[string]int32, len(order))
	for n, i := range order {
		at[in.Base[i]] = int32(n)
	}
	for n, i := range r.order {
		r.link[n] = None
		if l, ok := at[in.Partitions[i]]; ok {
			r.link[n] = l
		}
	}
}

// sorted returns the order of names by their hashes, and the hashes in it.
func sorted(names []string) ([]int32, []uint64) {
	hashes := make([]uint64, len(names))
	for i, name := range names {
		hashes[i] = nameHash(name)
	}
	order := make([]int32, len(names))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(hashes[a], hashes[b]), strings.Compare(names[a], names[b]), cmp.Compare(a, b))
	})
	in := make([]uint64, len(hashes))
	for n, i := range order {
		in[n] = hashes[i]
	}
	return order, in
}

// members reads the places of the workers. Of several workers in one place one counts,
// the same in all processes.
func (r *membership) members(members []Member) []Member {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(weigh(a.Weight), weigh(b.Weight)),
			strings.Compare(a.Zone, b.Zone), cmp.Compare(a.Max, b.Max), compareBool(a.Leaving, b.Leaving))
	})
	members = slices.CompactFunc(members, func(a, b Member) bool { return a.Place == b.Place })
	members = slices.DeleteFunc(members, func(m Member) bool { return m.Place < 0 || m.Place >= MaxPlaces })
	places := 0
	for _, m := range members {
		if !m.Leaving {
			places = m.Place + 1
		}
	}
	r.weights, r.zones = make([]uint64, places), make([]int32, places)
	r.most, r.live = make([]int, places), make([]bool, places)
	for place := range places {
		r.weights[place], r.zones[place] = thousandths, None
	}
	for _, m := range members {
		if m.Place >= places {
			break
		}
		r.weights[m.Place], r.most[m.Place], r.live[m.Place] = weigh(m.Weight), math.MaxInt, !m.Leaving
		if m.Max > 0 {
			r.most[m.Place] = m.Max
		}
	}
	return members
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// zone reads the zones of members, and the preferred zones of partitions. Zones are
// numbered; nothing depends on which number one has.
func (r *membership) zone(in Input, members []Member) {
	numbers := map[string]int32{}
	for _, m := range members {
		if m.Zone == "" || m.Place >= len(r.zones) {
			continue
		}
		if _, ok := numbers[m.Zone]; !ok {
			numbers[m.Zone] = int32(len(numbers))
		}
		r.zones[m.Place] = numbers[m.Zone]
	}
	r.home = make([]int32, len(r.order))
	for n, i := range r.order {
		r.home[n] = None
		if len(in.Zones) == 0 {
			continue
		}
		if z, ok := numbers[in.Zones[in.Partitions[i]]]; ok {
			r.home[n] = z
		}
	}
}

// chain computes the owners if all places were taken.
func (r *membership) chain() {
	links := chain(r.links, r.weights)
	r.base = make([]int32, len(r.link))
	for n, l := range r.link {
		r.base[n] = None
		if l != None {
			r.base[n] = links[l]
		}
	}
}

// spread returns owners by index in the input.
func (r *membership) spread(owners []int32) []int32 {
	out := make([]int32, len(owners))
	for n, i := range r.order {
		out[i] = owners[n]
	}
	return out
}

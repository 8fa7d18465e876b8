// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"container/heap"
	"math/bits"
	"slices"
)

// Bounds of the load of a member, over its share of what there is: as parts of
// its share. Loads are rounded up to whole partitions. They hold for partitions
// that do not stay where the chain has them.
const (
	spreadOver = 16 // 1/16 more, for partitions of vacant places
	zoneOver   = 4  // 1/4 more, for partitions of its zone that find no room within 1/16
)

// setting is a roll in numbers. Partitions are in the order of their hashes;
// all slices about members are by place.
type setting struct {
	hashes  []uint64
	home    []int32 // zone of each partition, or None
	base    []int32 // place of each partition in the chain, or None
	weights []uint64
	roots   []uint64 // the weights in the chain
	zones   []int32  // None: none
	most    []int
	live    []bool
}

// settle returns the owners of all partitions: what the chain says for places
// that are taken, as long as zones and limits do not object, and someone else's
// for the rest.
func (s *setting) settle() []int32 {
	owners := make([]int32, len(s.hashes))
	for i := range owners {
		owners[i] = None
	}
	var everybody []int32
	inZone := map[int32][]int32{}
	uneven := false
	for place, live := range s.live {
		if !live {
			continue
		}
		if len(everybody) > 0 && s.weights[place] != s.weights[everybody[0]] {
			uneven = true
		}
		everybody = append(everybody, int32(place))
		if z := s.zones[place]; z != None {
			inZone[z] = append(inZone[z], int32(place))
		}
	}
	if len(everybody) == 0 {
		return owners
	}
	bound, wide := s.bounds(everybody)
	load := make([]int, len(s.live))
	m := &matcher{s: s, log: newLogs(), uneven: uneven, keys: make([]uint64, len(s.live))}
	for place := range m.keys {
		m.keys[place] = placeKey(int32(place))
	}

	// A partition that is at home, or has no home, stays. One that would rather be
	// elsewhere asks there first, then stays if it can. The rest looks for a place.
	var away, stay, homeless []seeker
	for i, place := range s.base {
		home := inZone[s.home[i]]
		k := seeker{i: int32(i), among: everybody, shun: None}
		switch {
		case len(home) > 0 && (place == None || !s.live[place] || s.zones[place] != s.home[i]):
			k.among = home
			away = append(away, k)
		case place != None && s.live[place]:
			owners[i] = place
			load[place]++
		default:
			if place != None {
				k.shun = s.zones[place]
			}
			homeless = append(homeless, k)
		}
	}
	homeless = append(homeless, s.evict(m, owners, load, bound, everybody)...)
	away = m.match(away, owners, load, bound)
	away = m.match(away, owners, load, wide)
	for _, k := range away {
		k.among = everybody
		if place := s.base[k.i]; place != None && s.live[place] {
			k.among = []int32{place}
			stay = append(stay, k)
			continue
		}
		homeless = append(homeless, k)
	}
	for _, k := range m.match(stay, owners, load, bound) {
		k.among = everybody
		homeless = append(homeless, k)
	}
	slices.SortFunc(homeless, func(a, b seeker) int { return cmp.Compare(a.i, b.i) })
	homeless = m.match(homeless, owners, load, bound)
	for n := range homeless {
		homeless[n].shun = None
	}
	s.fill(m.match(homeless, owners, load, bound), owners, load, everybody)
	return owners
}

// bounds returns how many partitions each member may come to, without and with
// those of its own zone.
func (s *setting) bounds(everybody []int32) (bound, wide []int) {
	bound, wide = make([]int, len(s.live)), make([]int, len(s.live))
	left, weight := uint64(len(s.hashes)), uint64(0)
	for _, place := range everybody {
		weight += s.weights[place]
	}
	// Workers that may have less than their share leave more to the others.
	open := slices.Clone(everybody)
	for again := true; again; {
		again = false
		total, among := left, weight
		open = slices.DeleteFunc(open, func(place int32) bool {
			if !fewer(uint64(s.most[place]), among, total, s.weights[place]) {
				return false
			}
			bound[place], wide[place] = s.most[place], s.most[place]
			left -= uint64(s.most[place])
			weight -= s.weights[place]
			again = true
			return true
		})
	}
	for _, place := range open {
		// A worker that has become lighter gives up all that is above its share.
		slack := uint64(spreadOver)
		if s.weights[place] < s.roots[place] {
			slack = exact
		}
		bound[place] = min(s.most[place], over(left, s.weights[place], weight, slack))
		wide[place] = min(s.most[place], over(left, s.weights[place], weight, zoneOver))
	}
	return bound, wide
}

// fewer reports whether a*b < c*d.
func fewer(a, b, c, d uint64) bool {
	h, l := bits.Mul64(a, b)
	x, y := bits.Mul64(c, d)
	return h < x || h == x && l < y
}

// exact is the part that over adds nothing for.
const exact = 0

// over returns total*weight/weights and 1/part more, rounded up.
func over(total, weight, weights, part uint64) int {
	times := part + 1
	if part == exact {
		times, part = 1, 1
	}
	hi, lo := bits.Mul64(total*times, weight)
	q, r := bits.Div64(hi, lo, weights*part)
	if r > 0 {
		q++
	}
	return int(q)
}

// evict takes from members what is over their bounds.
func (s *setting) evict(m *matcher, owners []int32, load, bound []int, everybody []int32) []seeker {
	over := map[int32][]grant{}
	for i, place := range owners {
		if place != None && load[place] > bound[place] {
			over[place] = append(over[place], grant{m.rank(s.hashes[i], place), int32(i)})
		}
	}
	var out []seeker
	for place, grants := range over {
		slices.SortFunc(grants, m.compare)
		for _, g := range grants[bound[place]:] {
			owners[g.who] = None
			out = append(out, seeker{i: g.who, among: everybody, shun: None})
			load[place]--
		}
	}
	return out
}

// fill gives each seeker, in turn, to the member with room that has least beside
// its weight. A partition that finds no room stays without an owner.
func (s *setting) fill(seekers []seeker, owners []int32, load []int, everybody []int32) {
	if len(seekers) == 0 {
		return
	}
	q := &spare{s: s, load: load}
	for _, place := range everybody {
		if load[place] < s.most[place] {
			q.order = append(q.order, place)
		}
	}
	heap.Init(q)
	for _, k := range seekers {
		if len(q.order) == 0 {
			return
		}
		place := q.order[0]
		owners[k.i] = place
		load[place]++
		if load[place] < s.most[place] {
			heap.Fix(q, 0)
		} else {
			heap.Pop(q)
		}
	}
}

// spare are the members with room, the least loaded first.
type spare struct {
	s     *setting
	load  []int
	order []int32
}

func (q *spare) Len() int      { return len(q.order) }
func (q *spare) Swap(i, j int) { q.order[i], q.order[j] = q.order[j], q.order[i] }
func (q *spare) Push(x any)    { q.order = append(q.order, x.(int32)) }

func (q *spare) Pop() any {
	last := q.order[len(q.order)-1]
	q.order = q.order[:len(q.order)-1]
	return last
}

func (q *spare) Less(i, j int) bool {
	a, b := q.order[i], q.order[j]
	return cmp.Or(
		cmp.Compare(uint64(q.load[a]+1)*q.s.weights[b], uint64(q.load[b]+1)*q.s.weights[a]),
		cmp.Compare(a, b)) < 0
}

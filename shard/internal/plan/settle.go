// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"container/heap"
	"math/bits"
	"slices"
)

// Bounds of the load of a member above its share, as fractions of the share. Loads are
// rounded up to whole partitions. They hold for partitions that do not stay where the
// chain has them.
const (
	spreadOver = 16 // 1/16 more, for partitions of vacant places
	zoneOver   = 4  // 1/4 more, for partitions of its zone that find no room within 1/16
)

// setting is a membership in numbers. Partitions are in the order of their hashes;
// all slices about members are by place.
type setting struct {
	hashes  []uint64
	home    []int32 // zone of each partition, or None
	base    []int32 // place of each partition in the chain, or None
	weights []uint64
	zones   []int32 // None: none
	most    []int
	live    []bool
}

// settle returns the owners of all partitions: the chain's owner if its place is taken
// and zones and limits allow it, otherwise another one.
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

	// A partition that is at home, or has no home, stays. A partition that prefers another
	// place asks there first, then stays if it can. The rest looks for a place.
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
		bound[place] = min(s.most[place], over(left, s.weights[place], weight, spreadOver))
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

// over returns total*weight/weights and 1/part more, rounded up.
func over(total, weight, weights, part uint64) int {
	hi, lo := bits.Mul64(total*(part+1), weight)
	q, r := bits.Div64(hi, lo, weights*part)
	if r > 0 {
		q++
	}
	return int(q)
}

// evict takes partitions above their bounds from members.
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

// spare is the list of members with room, the least loaded first.
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

// choices is how many places a partition asks for room before the least loaded place gets
// it.
const choices = 6

// seeker is a partition that looks for a place.
type seeker struct {
	i     int32   // the partition
	among []int32 // places it may go to
	shun  int32   // a zone it does not want, or None
}

// wish is a place that a partition might go to. The higher its rank, the sooner.
type wish struct {
	rank  uint64
	place int32
}

// matcher gives partitions to places with room. A partition prefers places, and
// a place with too little room prefers partitions, by one and the same rank for
// the two. So there is exactly one outcome in which no partition and place would
// both rather have each other than what they have, and the order in which
// partitions are taken up does not matter. That is what keeps plans for memberships
// that differ little alike.
type matcher struct {
	s       *setting
	log     *logs
	uneven  bool     // the weights differ
	keys    []uint64 // by place
	wishes  []wish
	asked   []int8    // how many wishes of each seeker were refused
	granted [][]grant // by place, as heaps
}

type grant struct {
	rank uint64
	who  int32 // index of the seeker
}

// rank says how well a partition and a place suit each other: rendezvous hashing
// with weights.
func (m *matcher) rank(name uint64, place int32) uint64 {
	h := pairHash(^name, m.keys[place])
	if !m.uneven {
		return h
	}
	return ^(m.log.rarity(h) << 30 / m.s.weights[place])
}

// match assigns places to the seekers, as long as loads stay within bounds, and returns
// the seekers that found no room among their first choices.
func (m *matcher) match(seekers []seeker, owners []int32, load, bound []int) []seeker {
	m.wishes = slices.Grow(m.wishes[:0], len(seekers)*choices)[:len(seekers)*choices]
	m.asked = append(m.asked[:0], make([]int8, len(seekers))...)
	m.granted = make([][]grant, len(load))
	for n := range seekers {
		m.wish(&seekers[n], m.wishes[n*choices:(n+1)*choices])
	}
	for n := range seekers {
		m.ask(int32(n), load, bound)
	}
	for place, grants := range m.granted {
		load[place] += len(grants)
		for _, g := range grants {
			owners[seekers[g.who].i] = int32(place)
		}
	}
	return slices.DeleteFunc(seekers, func(k seeker) bool { return owners[k.i] != None })
}

// wish fills in the places that a seeker likes best, best first.
func (m *matcher) wish(k *seeker, best []wish) {
	for n := range best {
		best[n] = wish{0, None}
	}
	last := len(best) - 1
	name := m.s.hashes[k.i]
	for _, place := range k.among {
		if k.shun != None && m.s.zones[place] == k.shun {
			continue
		}
		w := wish{m.rank(name, place), place}
		if !better(w, best[last]) {
			continue
		}
		n := last
		for ; n > 0 && better(w, best[n-1]); n-- {
			best[n] = best[n-1]
		}
		best[n] = w
	}
}

func better(a, b wish) bool {
	return b.place == None || a.rank > b.rank || a.rank == b.rank && a.place < b.place
}

// ask lets a seeker, and then each seeker that it displaces, ask place after place.
func (m *matcher) ask(who int32, load, bound []int) {
	for m.asked[who] < choices {
		w := m.wishes[int(who)*choices+int(m.asked[who])]
		if w.place == None {
			return
		}
		m.asked[who]++
		room := bound[w.place] - load[w.place]
		if room <= 0 {
			continue
		}
		grants := &grantHeap{m: m, grants: m.granted[w.place]}
		heap.Push(grants, grant{w.rank, who})
		out := len(grants.grants) > room
		if out {
			who = heap.Pop(grants).(grant).who
		}
		m.granted[w.place] = grants.grants
		if !out {
			return
		}
	}
}

// grantHeap has the grant that is put out first at its front.
type grantHeap struct {
	m      *matcher
	grants []grant
}

func (h *grantHeap) Len() int           { return len(h.grants) }
func (h *grantHeap) Less(i, j int) bool { return h.m.compare(h.grants[i], h.grants[j]) > 0 }
func (h *grantHeap) Swap(i, j int)      { h.grants[i], h.grants[j] = h.grants[j], h.grants[i] }
func (h *grantHeap) Push(x any)         { h.grants = append(h.grants, x.(grant)) }

func (h *grantHeap) Pop() any {
	last := len(h.grants) - 1
	g := h.grants[last]
	h.grants = h.grants[:last]
	return g
}

// compare sorts grants, those that are kept longest first. Seekers are in the
// order of their partitions.
func (m *matcher) compare(a, b grant) int {
	return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.who, b.who))
}

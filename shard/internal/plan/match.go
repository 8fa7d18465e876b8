// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"container/heap"
	"slices"
)

// choices is how many places a partition asks for room before it is given to
// whoever has least.
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
// partitions are taken up does not matter. That is what keeps plans for rolls
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

// match settles who of the seekers goes where, as long as loads stay within
// bounds, and returns those that found no room among their first choices.
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

// ask lets a seeker, and whoever is put out for it, ask place after place.
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

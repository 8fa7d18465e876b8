// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"container/heap"
	"hash/fnv"
	"math"
	"math/bits"
	"slices"
)

// thousandths is what a weight of 1 counts.
const thousandths = 1000

// maxWeight keeps products of weights and counts within 64 bits.
const maxWeight = 1 << 30

func weigh(weight float64) uint64 {
	switch {
	case !(weight > 0): // NaN, too
		return thousandths
	case weight >= maxWeight/thousandths:
		return maxWeight
	}
	return max(1, uint64(math.Round(weight*thousandths)))
}

// chain returns the place of each partition if all places are in use. hashes are
// in the order that breaks ties; weights are by place.
//
// With one place, all is its. Each further place in turn takes from those before
// it what its coming takes from their due, and nothing else moves. The dues are
// those of Webster's method (Sainte-Laguë), because with it no share grows when another
// place comes. It gives equal places equal dues, but for one.
func chain(hashes, weights []uint64) []int32 {
	owners := make([]int32, len(hashes))
	if len(weights) == 0 {
		for i := range owners {
			owners[i] = None
		}
		return owners
	}
	due := &dues{weights: weights, count: make([]uint64, 1, len(weights))}
	due.count[0] = uint64(len(hashes))
	due.order = append(due.order, 0)
	have := make([][]int32, 1, len(weights))
	have[0] = make([]int32, len(hashes))
	for i := range have[0] {
		have[0][i] = int32(i)
	}
	var pick picker
	for place := int32(1); int(place) < len(weights); place++ {
		var gets []int32
		for _, g := range due.join() {
			var gives []int32
			gives, have[g.place] = pick.take(hashes, have[g.place], place, g.count)
			gets = append(gets, gives...)
		}
		have = append(have, gets)
	}
	for place, those := range have {
		for _, i := range those {
			owners[i] = int32(place)
		}
	}
	return owners
}

// dues are how many partitions each place is due. The place that gives next is
// at the front: the one whose claim to its last partition is the weakest.
type dues struct {
	weights []uint64
	count   []uint64
	order   []int32
	gifts   []gift
}

type gift struct {
	place int32
	count int
}

func (d *dues) Len() int      { return len(d.order) }
func (d *dues) Swap(i, j int) { d.order[i], d.order[j] = d.order[j], d.order[i] }
func (d *dues) Push(x any)    { d.order = append(d.order, x.(int32)) }
func (d *dues) Pop() any      { return nil } // nobody leaves

func (d *dues) Less(i, j int) bool {
	a, b := d.order[i], d.order[j]
	// A claim is the weight over twice the count less one.
	wa, wb := d.weights[a]*claims(d.count[b]), d.weights[b]*claims(d.count[a])
	return cmp.Or(cmp.Compare(wa, wb), cmp.Compare(a, b)) < 0
}

func claims(count uint64) uint64 {
	if count == 0 {
		return 0 // gives nothing
	}
	return 2*count - 1
}

// join adds the next place, and returns how many each other place gives it.
func (d *dues) join() []gift {
	place := int32(len(d.count))
	weight, gets := d.weights[place], uint64(0)
	d.gifts = d.gifts[:0]
	for {
		from := d.order[0]
		if d.count[from] == 0 || weight*claims(d.count[from]) <= d.weights[from]*(2*gets+1) {
			break
		}
		d.count[from]--
		gets++
		d.gifts = append(d.gifts, gift{from, 1})
		heap.Fix(d, 0)
	}
	d.count = append(d.count, gets)
	heap.Push(d, place)
	slices.SortFunc(d.gifts, func(a, b gift) int { return cmp.Compare(a.place, b.place) })
	sum := d.gifts[:0]
	for _, g := range d.gifts {
		if n := len(sum); n > 0 && sum[n-1].place == g.place {
			sum[n-1].count++
			continue
		}
		sum = append(sum, g)
	}
	return sum
}

// picker chooses the partitions that a place gives to a new one: those with the
// highest hashes with the new place. The order is fresh for each new place, or
// one partition more or less would change all that follow it in the order.
type picker struct{ found []candidate }

type candidate struct {
	hash uint64
	at   int   // in the list
	i    int32 // the partition
}

// take splits from into count partitions for place and the rest. It works in
// place: from is not to be used afterwards.
func (k *picker) take(hashes []uint64, from []int32, place int32, count int) (gives, rest []int32) {
	if count >= len(from) {
		return from, nil
	}
	key := placeKey(place)
	if count == 1 {
		at := top(hashes, from, key)
		gives = []int32{from[at]}
		return gives, append(from[:at], from[at+1:]...)
	}
	// Hashes are uniform: a few more than needed are above this, most often.
	wanted := float64(count) + 3*math.Sqrt(float64(count)) + 3
	floor := uint64(0)
	if share := wanted / float64(len(from)); share < 1 {
		// Any floor finds the same, some sooner: it need not be exact.
		floor = uint64((1-share)*(1<<62)) << 2
	}
	k.above(hashes, from, key, floor)
	if len(k.found) < count {
		k.above(hashes, from, key, 0)
	}
	slices.SortFunc(k.found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.hash, a.hash), cmp.Compare(a.i, b.i))
	})
	chosen := k.found[:count]
	slices.SortFunc(chosen, func(a, b candidate) int { return cmp.Compare(a.at, b.at) })
	gives = make([]int32, 0, count)
	kept := chosen[0].at
	for n, c := range chosen {
		gives = append(gives, c.i)
		next := len(from)
		if n+1 < count {
			next = chosen[n+1].at
		}
		kept += copy(from[kept:], from[c.at+1:next])
	}
	return gives, from[:kept]
}

func (k *picker) above(hashes []uint64, from []int32, key, floor uint64) {
	k.found = k.found[:0]
	for at, i := range from {
		if h := pairHash(hashes[i], key); h >= floor {
			k.found = append(k.found, candidate{h, at, i})
		}
	}
}

// top returns where in the list the partition with the highest hash is.
func top(hashes []uint64, from []int32, key uint64) int {
	best, at := uint64(0), -1
	for n, i := range from {
		if h := pairHash(hashes[i], key); at < 0 || h > best || h == best && i < from[at] {
			best, at = h, n
		}
	}
	return at
}

// What is in this file, and the order in which the other files use it, decides
// which partition goes where. A worker that computes it otherwise has another plan than
// the others, so it must never change without a version in the membership that selects
// the rules.

// golden spreads small numbers over 64 bits: 2^64 over the golden ratio.
const golden = 0x9e3779b97f4a7c15

// nameHash is FNV-1a with a finaliser: FNV alone hardly changes its high bits
// between names that differ at their end.
func nameHash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return mix(h.Sum64())
}

// placeKey is the number of a place that goes into [pairHash].
func placeKey(place int32) uint64 {
	return mix((uint64(place)+1)*golden) | 1
}

// pairHash is a fresh number for each pair of a partition and a place: both
// halves of the product, folded, as in wyhash. It is what Make does most.
func pairHash(name, key uint64) uint64 {
	hi, lo := bits.Mul64(name^golden, key)
	return hi ^ lo
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// logs has the binary logarithms of 1 + i/256, in units of 2^-26. They are
// worked out in whole numbers: floating point is not the same on all machines.
type logs [257]uint64

func newLogs() *logs {
	var t logs
	for i := range t {
		// The value is in [1, 2], with 62 bits after the point.
		x := uint64(1)<<62 + uint64(i)<<54
		if x>>63 != 0 {
			t[i] = 1 << 26
			continue
		}
		for b := 25; b >= 0; b-- {
			hi, lo := bits.Mul64(x, x)
			x = hi<<2 | lo>>62
			if x>>63 != 0 {
				t[i] |= 1 << b
				x >>= 1
			}
		}
	}
	return &t
}

// rarity is the negative binary logarithm of h over 2^64, in units of 2^-26: the
// larger h, the smaller. Divided by a weight it ranks places in such a way that
// each comes first as often as its weight says.
func (t *logs) rarity(h uint64) uint64 {
	h |= 1
	zeros := uint64(bits.LeadingZeros64(h))
	h <<= zeros + 1
	i, rest := h>>56, h>>30&(1<<26-1)
	log := t[i] + (t[i+1]-t[i])*rest>>26
	return (zeros+1)<<26 - log
}

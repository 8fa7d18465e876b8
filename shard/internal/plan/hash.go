// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"hash/fnv"
	"math/bits"
)

// What is in this file, and the order in which the other files use it, decides
// which partition goes where. A worker that computes it otherwise has another
// plan than its fellows, so none of it may ever change without a version in the
// roll that tells workers which rules to follow.

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

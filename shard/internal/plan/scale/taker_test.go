// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"math/rand/v2"
	"slices"
)

// pause is how many looks of the taker pass between two steps of a deploy: a
// minute's worth.
const pause = 3

// taker is a group that follows the rules of LeaseTaker in the Kinesis Client
// Library 2: decentralised, by count alone.
type taker struct {
	r     *rand.Rand
	owner []int
	have  [][]int // leases of each worker
	free  []int
	here  []bool

	holders int // workers that have a lease
}

func newTaker(workers, partitions int) *taker {
	g := &taker{
		r:     rand.New(rand.NewPCG(1, 2)),
		owner: make([]int, partitions),
		have:  make([][]int, workers),
		here:  make([]bool, workers),
	}
	for w := range g.here {
		g.here[w] = true
	}
	for i := range g.owner {
		g.give(i, i%workers)
	}
	return g
}

func (g *taker) give(lease, worker int) {
	g.owner[lease] = worker
	if len(g.have[worker]) == 0 {
		g.holders++
	}
	g.have[worker] = append(g.have[worker], lease)
}

// set lets workers go, whose leases are free when they have run out, and come,
// and then a pause pass.
func (g *taker) set(away func(worker int) bool, workers int) {
	for len(g.here) < workers {
		g.here, g.have = append(g.here, false), append(g.have, nil)
	}
	for w := range g.here {
		g.here[w] = !away(w)
		if g.here[w] {
			continue
		}
		for _, lease := range g.have[w] {
			g.owner[lease] = -1
			g.free = append(g.free, lease)
		}
		if len(g.have[w]) > 0 {
			g.holders--
		}
		g.have[w] = nil
	}
	for range pause {
		g.round()
	}
}

func (g *taker) settle() int {
	rounds := 0
	for g.round() > 0 {
		rounds++
	}
	return rounds
}

// round lets every worker look once, in an order of chance, and returns how many
// leases were taken.
func (g *taker) round() int {
	taken := 0
	for _, w := range g.r.Perm(len(g.here)) {
		if g.here[w] {
			taken += g.take(w)
		}
	}
	return taken
}

// take is one worker's poll.
func (g *taker) take(w int) int {
	// A worker without a lease is not seen by the others.
	workers := g.holders
	if len(g.have[w]) == 0 {
		workers++
	}
	target := (len(g.owner) + workers - 1) / workers
	need := target - len(g.have[w])
	switch {
	case need <= 0:
		return 0
	case len(g.free) > 0:
		n := min(need, len(g.free))
		for range n {
			i := g.r.IntN(len(g.free))
			lease := g.free[i]
			g.free = slices.Delete(g.free, i, i+1)
			g.give(lease, w)
		}
		return n
	}
	most := w
	for v := range g.have {
		if len(g.have[v]) > len(g.have[most]) {
			most = v
		}
	}
	// One at a time, also from a worker with just its share if more than one is needed.
	over := len(g.have[most]) - target
	if over < 0 || over == 0 && need <= 1 {
		return 0
	}
	i := g.r.IntN(len(g.have[most]))
	lease := g.have[most][i]
	g.have[most] = slices.Delete(g.have[most], i, i+1)
	if len(g.have[most]) == 0 {
		g.holders--
	}
	g.give(lease, w)
	return 1
}

func (g *taker) owners() []int { return slices.Clone(g.owner) }

func (g *taker) worst() float64 {
	here, most := 0, 0
	for w, leases := range g.have {
		if g.here[w] {
			here++
			most = max(most, len(leases))
		}
	}
	return float64(most*here) / float64(len(g.owner))
}

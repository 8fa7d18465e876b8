// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import "slices"

// Move is what a [Gathering] wants done.
type Move int

// The moves.
const (
	Take     Move = iota // acquire the lock, and nothing else; then say Took or Refused
	Work                 // all of them are held: the work may go on; when it has returned, say Done
	Stop                 // one of them has ended: the work is to return; when it has, say Done
	GiveBack             // give up what is being acquired, release what Back names; then say GaveBack
	Gathered             // it is over, and holds nothing
)

// Gathering takes several locks under one session, all of them or none. It is no
// [Machine]: it sends nothing itself, and tells what to do with the acquires and leases of
// others. These are its rules:
//
//   - The locks are taken one after the other in the order of their names, which is the
//     same in every process. A process waits for a name while it holds lesser ones only,
//     so no ring of processes waits for each other.
//   - A lock may end while others are waited for: its holder is asked to step down, say. To
//     wait for it again beside those that are still held would break the order. So all
//     of them are given back, and it begins again.
//   - When one is refused, or the caller gives up, all that are held are given back.
//   - The work begins at an instant at which all of them are good, and is told to stop when
//     the first of them has ended.
//
// That all of them are under one session is for the caller to see to. It makes them end
// together where the process fails: no lock of the set outlives another one.
type Gathering struct {
	keys  []string // in the order in which they are taken
	held  map[string]bool
	phase gathers
	again bool // when all has been given back
}

// gathers is how far a gathering has come.
type gathers int

const (
	gathersTaking gathers = iota
	gathersAtWork
	gathersStopping
	gathersGivingBack
	gathersOver
)

// NewGathering begins to take locks, at least one and none twice.
func NewGathering(keys []string) *Gathering {
	g := &Gathering{keys: slices.Clone(keys), held: map[string]bool{}}
	slices.Sort(g.keys)
	return g
}

// Next returns what is to be done, and of Take which lock. Good says of a lock that is held
// whether its holder may act on it, and nobody has told it to stop. Next is called after
// every method, and when a lock that is held has ended, also while another one is being
// acquired: a Take that it does not return again has to be given up.
func (g *Gathering) Next(good func(key string) bool) (Move, string) {
	switch g.phase {
	case gathersTaking:
		if g.ended(good) {
			g.phase, g.again = gathersGivingBack, true
			return GiveBack, ""
		}
		if i := slices.IndexFunc(g.keys, func(key string) bool { return !g.held[key] }); i >= 0 {
			return Take, g.keys[i]
		}
		g.phase = gathersAtWork
		return Work, ""
	case gathersAtWork:
		if !g.ended(good) {
			return Work, ""
		}
		g.phase = gathersStopping
		return Stop, ""
	case gathersStopping:
		return Stop, ""
	case gathersGivingBack:
		return GiveBack, ""
	}
	return Gathered, ""
}

// ended says that one of those that are held is not good any more.
func (g *Gathering) ended(good func(key string) bool) bool {
	return slices.ContainsFunc(g.keys, func(key string) bool { return g.held[key] && !good(key) })
}

// Took says that a lock is held.
func (g *Gathering) Took(key string) { g.held[key] = true }

// Refused says that the lock of the latest Take cannot be had, or that the caller wants
// none of them any more. It counts until the work has begun.
func (g *Gathering) Refused() {
	if g.phase != gathersTaking && !g.again {
		return
	}
	g.phase, g.again = gathersGivingBack, false
}

// Done says that the work has returned.
func (g *Gathering) Done() { g.phase = gathersGivingBack }

// Back returns the locks that are to be released.
func (g *Gathering) Back() (back []string) {
	for _, key := range g.keys {
		if g.held[key] {
			back = append(back, key)
		}
	}
	return back
}

// GaveBack says that locks are released, or that nothing is left to do about their
// release. When the last of them is, it is over or begins again.
func (g *Gathering) GaveBack(keys []string) {
	for _, key := range keys {
		delete(g.held, key)
	}
	g.phase = gathersOver
	if g.again {
		g.phase, g.again = gathersTaking, false
	}
}

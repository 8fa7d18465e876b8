// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// view is what one process knows of the slots, from all that it does with
// them. It decides nothing but where to look first.
type view struct {
	mu    sync.Mutex
	slots map[int]*seen
	start int           // where polling begins among slots that it knows nothing of
	freed chan struct{} // has room for one: a slot was left by this process
}

// seen is what is known of one slot.
type seen struct {
	looked time.Time // zero: never
	freed  bool      // this process has left it since then
	own    *Lease    // that this process has
}

func newView() *view {
	return &view{slots: map[int]*seen{}, start: rand.N(MaxSlots), freed: make(chan struct{}, 1)}
}

// of returns what is known of a slot. The caller holds the view.
func (g *view) of(slot int) *seen {
	s := g.slots[slot]
	if s == nil {
		s = &seen{}
		g.slots[slot] = s
	}
	return s
}

// looked notes that the slot was looked at.
func (g *view) looked(slot int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.of(slot)
	s.looked, s.freed = time.Now(), false
}

func (g *view) taken(slot int, l *Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.of(slot).own = l
}

// left notes that this process has released the slot, and tells the waiters. The
// next poll begins there.
func (g *view) left(slot int, l *Lease) {
	g.mu.Lock()
	s := g.of(slot)
	if s.own != l {
		g.mu.Unlock()
		return
	}
	s.own, s.freed = nil, true
	g.mu.Unlock()
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

// order returns which of n slots to look at: those that were not looked at for a
// while, the longest one first, and not those that this process has itself.
// Those that it has just left come first, unless the process is behind others.
func (g *view) order(n int, age time.Duration, behind bool) []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	var slots []int
	for i := range n {
		slot := (g.start + i) % n
		s := g.of(slot)
		if s.own != nil && s.own.Check() == nil {
			continue
		}
		if s.freed || now.Sub(s.looked) >= age {
			slots = append(slots, slot)
		}
	}
	slices.SortStableFunc(slots, func(a, b int) int {
		x, y := g.slots[a], g.slots[b]
		switch {
		case x.freed && !y.freed && !behind:
			return -1
		case y.freed && !x.freed && !behind:
			return 1
		}
		return x.looked.Compare(y.looked)
	})
	return slots
}

// fresh says that nothing speaks against the slot being free.
func (g *view) fresh(slot int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.of(slot)
	return s.freed || s.looked.IsZero()
}

// own returns the slots of n that this process has.
func (g *view) own(n int) []Holder {
	g.mu.Lock()
	defer g.mu.Unlock()
	var own []Holder
	for slot, s := range g.slots {
		if slot < n && s.own != nil && s.own.Check() == nil {
			own = append(own, Holder{Slot: slot, Owner: s.own.Owner(), Token: s.own.Token(), FreeIn: s.own.Remaining()})
		}
	}
	return own
}

// hint makes waiters poll again.
func (g *view) hint() {
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

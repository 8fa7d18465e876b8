// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"container/heap"
	"sync"
	"time"
)

// agenda runs things at instants of one clock, from one goroutine. What it
// runs must not block: no request to a store is ever made from it.
type agenda struct {
	now func() time.Duration
	// nap is the longest time that the agenda sleeps while it has entries. Go's
	// timers stand still while the machine is suspended, and know nothing of
	// steps of the wall clock; the clock of the agenda does.
	nap time.Duration

	mu      sync.Mutex
	entries entries
	wake    chan struct{}
	quit    chan struct{}
	done    chan struct{}
}

// entry is one thing to run. It is embedded in what it belongs to, and is on
// an agenda at most once.
type entry struct {
	at    time.Duration
	index int // in the heap, counted from 1; 0: not on the agenda
	run   func(now time.Duration)
}

func newAgenda(now func() time.Duration, nap time.Duration) *agenda {
	a := &agenda{
		now: now, nap: nap,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go a.loop()
	return a
}

// set puts e on the agenda at the given instant, or moves it there.
func (a *agenda) set(e *entry, at time.Duration) {
	a.mu.Lock()
	e.at = at
	if e.index == 0 {
		heap.Push(&a.entries, e)
	} else {
		heap.Fix(&a.entries, e.index-1)
	}
	first := e.index == 1
	a.mu.Unlock()
	if first {
		a.poke()
	}
}

// drop takes e off the agenda. It may be running still.
func (a *agenda) drop(e *entry) {
	a.mu.Lock()
	if e.index != 0 {
		heap.Remove(&a.entries, e.index-1)
	}
	a.mu.Unlock()
}

// poke has the agenda read its clock now. It never blocks.
func (a *agenda) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// close ends the goroutine and waits for it.
func (a *agenda) close() {
	close(a.quit)
	<-a.done
}

func (a *agenda) loop() {
	defer close(a.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		sleep, any := a.runDue()
		if any {
			timer.Reset(min(sleep, a.nap))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-a.wake:
		case <-a.quit:
			return
		}
	}
}

// runDue runs what is due, and returns how long to sleep until the next is.
func (a *agenda) runDue() (sleep time.Duration, any bool) {
	now := a.now()
	for {
		a.mu.Lock()
		if len(a.entries) == 0 {
			a.mu.Unlock()
			return 0, false
		}
		first := a.entries[0]
		if first.at > now {
			if now = a.now(); first.at > now {
				at := first.at
				a.mu.Unlock()
				return at - now, true
			}
		}
		heap.Pop(&a.entries)
		a.mu.Unlock()
		first.run(now)
	}
}

type entries []*entry

func (h entries) Len() int           { return len(h) }
func (h entries) Less(i, j int) bool { return h[i].at < h[j].at }

func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *entries) Push(x any) {
	e := x.(*entry)
	*h = append(*h, e)
	e.index = len(*h)
}

func (h *entries) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = 0
	return e
}

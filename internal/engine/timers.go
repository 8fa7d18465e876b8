// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/heap"
	"math"
	"sync"
	"time"
)

// timers run functions at instants of one clock, from one goroutine. The functions must
// not block, and never call a store.
type timers struct {
	now func() time.Duration
	// nap is the longest sleep while any timer is set. Go's timers stop while the machine
	// is suspended, ignore steps of the wall clock, and may be slewed against the clock that is
	// read here.
	nap time.Duration

	mu  sync.Mutex
	set timerHeap
	// naps counts the shorter naps that were requested; short is the shortest.
	naps  map[time.Duration]int
	short time.Duration
	// nextReading is when the goroutine reads the clock again by itself: awake if it is about
	// to, asleep if it sleeps until woken because no timer is set.
	nextReading time.Duration
	wake        chan struct{}
	quit        chan struct{}
	done        chan struct{}
}

const (
	awake  = time.Duration(math.MinInt64)
	asleep = time.Duration(math.MaxInt64)
)

// timer is one function to run. It is embedded in its owner, and set in at most one
// timers.
type timer struct {
	// Run is called with the latest reading of the clock. The field is set before the
	// timer is.
	Run func(now time.Duration)

	at    time.Duration
	index int // in the heap, counted from 1; 0: not set
}

// newTimers returns timers on the clock now, which they read at least every nap while
// any timer is set.
func newTimers(now func() time.Duration, nap time.Duration) *timers {
	a := &timers{
		now: now, nap: nap, short: nap, nextReading: awake,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go a.loop()
	return a
}

// Set sets a timer to the given instant, or moves it there. It wakes the goroutine only
// for an instant before nextReading: most timers are dropped long before they are due.
func (a *timers) Set(e *timer, at time.Duration) {
	a.mu.Lock()
	e.at = at
	if e.index == 0 {
		heap.Push(&a.set, e)
	} else {
		heap.Fix(&a.set, e.index-1)
	}
	late := at < a.nextReading
	a.mu.Unlock()
	if late {
		a.Poke()
	}
}

// Drop stops a timer. Its function may still be running.
func (a *timers) Drop(e *timer) {
	a.mu.Lock()
	if e.index != 0 {
		heap.Remove(&a.set, e.index-1)
	}
	a.mu.Unlock()
}

// Nap limits each sleep of the timers to nap from now on. One EndNap with the same
// nap ends each Nap.
func (a *timers) Nap(nap time.Duration) {
	if nap >= a.nap {
		return
	}
	a.mu.Lock()
	if a.naps == nil {
		a.naps = map[time.Duration]int{}
	}
	a.naps[nap]++
	sooner := nap < a.short
	a.short = min(a.short, nap)
	a.mu.Unlock()
	if sooner {
		a.Poke()
	}
}

// EndNap ends a Nap.
func (a *timers) EndNap(nap time.Duration) {
	if nap >= a.nap {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.naps[nap]--; a.naps[nap] > 0 {
		return
	}
	delete(a.naps, nap)
	a.short = a.nap
	for n := range a.naps {
		a.short = min(a.short, n)
	}
}

// Poke makes the goroutine read the clock now. It never blocks.
func (a *timers) Poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Close ends the goroutine and waits for it.
func (a *timers) Close() {
	close(a.quit)
	<-a.done
}

func (a *timers) loop() {
	defer close(a.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		sleep, any := a.runDue()
		if any {
			timer.Reset(sleep)
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

// runDue runs the timers that are due. It returns how long to sleep afterwards, and
// false if no timer is set.
func (a *timers) runDue() (sleep time.Duration, any bool) {
	now := a.now()
	for {
		a.mu.Lock()
		if a.nextReading = awake; len(a.set) == 0 {
			a.nextReading = asleep
			a.mu.Unlock()
			return 0, false
		}
		first := a.set[0]
		if first.at > now {
			if now = a.now(); first.at > now {
				sleep = min(first.at-now, a.short)
				a.nextReading = now + sleep
				a.mu.Unlock()
				return sleep, true
			}
		}
		heap.Pop(&a.set)
		a.mu.Unlock()
		first.Run(now)
	}
}

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at < h[j].at }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *timerHeap) Push(x any) {
	e := x.(*timer)
	*h = append(*h, e)
	e.index = len(*h)
}

func (h *timerHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = 0
	return e
}

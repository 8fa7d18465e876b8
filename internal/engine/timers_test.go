// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// world has timers whose clock counts how often it is read.
type world struct {
	*timers
	begun time.Time
	reads atomic.Int64
}

const nap = time.Minute

func newWorld() *world {
	w := &world{begun: time.Now()}
	w.timers = newTimers(func() time.Duration {
		w.reads.Add(1)
		return time.Since(w.begun)
	}, nap)
	return w
}

// set sets a timer that far ahead, and returns what says whether it has run.
func (w *world) set(ahead time.Duration) (ran func() bool) {
	var at atomic.Int64
	w.Set(&timer{Run: func(now time.Duration) { at.Store(int64(now)) }}, time.Since(w.begun)+ahead)
	return func() bool {
		synctest.Wait()
		return at.Load() > 0
	}
}

// TestTimersAreOnTime: each timer runs at its instant, in whatever order they are set.
func TestTimersAreOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.Close()
		for _, ahead := range []time.Duration{20, 5, 30, 1, 90, 10} {
			ahead *= time.Second
			time.Sleep(time.Hour) // what was set before is over
			synctest.Wait()
			later, ran := w.set(ahead+time.Second), w.set(ahead)
			time.Sleep(ahead - time.Millisecond)
			if ran() {
				t.Errorf("a timer of %v ran early", ahead)
			}
			time.Sleep(time.Millisecond)
			if !ran() || later() {
				t.Errorf("a timer of %v did not run, or one of a second more did", ahead)
			}
		}
	})
}

// TestTimersSleep: a timer that is set for later than the next reading of the clock does
// not wake the goroutine, and runs on time.
func TestTimersSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.Close()
		w.set(10 * time.Second)
		synctest.Wait()
		before := w.reads.Load()
		ran := w.set(12 * time.Second)
		for range 100 {
			var dropped timer
			w.Set(&dropped, time.Since(w.begun)+2*nap)
			w.Drop(&dropped)
		}
		synctest.Wait()
		if n := w.reads.Load() - before; n > 0 {
			t.Errorf("the clock was read %d times", n)
		}
		sooner := w.set(time.Second)
		time.Sleep(time.Second)
		if !sooner() {
			t.Error("a timer before all others did not run")
		}
		time.Sleep(11 * time.Second)
		if !ran() {
			t.Error("a timer behind another one did not run")
		}
	})
}

// TestTimersAwake: a timer that another timer sets runs, although the goroutine is not
// woken for it.
func TestTimersAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.Close()
		ran := func() bool { return false }
		w.Set(&timer{Run: func(time.Duration) { ran = w.set(time.Second) }}, 0)
		synctest.Wait()
		time.Sleep(time.Second)
		if !ran() {
			t.Error("it did not run")
		}
	})
}

// TestNaps: the timers sleep no longer than the shortest requested nap, and long again
// when that has ended.
func TestNaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.Close()
		w.set(time.Hour)
		synctest.Wait()
		reads := func() int64 {
			before := w.reads.Load()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			return w.reads.Load() - before
		}
		few := reads()
		w.Nap(time.Second)
		w.Nap(time.Second)
		w.Nap(10 * time.Second)
		w.Nap(2 * nap) // no shorter than it is
		if n := reads(); n < 600 {
			t.Errorf("the clock was read %d times in 600 naps of a second", n)
		}
		w.EndNap(time.Second)
		w.EndNap(2 * nap)
		if n := reads(); n < 600 {
			t.Errorf("read %d times, although one nap of a second goes on", n)
		}
		w.EndNap(time.Second)
		if n := reads(); n < 60 || n > 200 {
			t.Errorf("read %d times in 60 naps of 10 s", n)
		}
		w.EndNap(10 * time.Second)
		if n := reads(); n > few+2 {
			t.Errorf("read %d times, %d times before", n, few)
		}
	})
}

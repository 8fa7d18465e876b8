// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// Source makes the choices of a run.
type Source interface {
	// IntN returns a number in [0, n).
	IntN(n int) int
}

// Seed returns the source of a numbered run.
func Seed(n uint64) Source { return rand.New(rand.NewPCG(n, 0x7e4e)) }

// Tape is a source that remembers its choices, and plays them again. Choices
// beyond its end come from the source behind it, or are 0, the mildest.
type Tape struct {
	Choices []int
	at      int
	behind  Source
}

// Record returns an empty tape that notes what src chooses.
func Record(src Source) *Tape { return &Tape{behind: src} }

// Play returns a tape with choices on it.
func Play(choices []int) *Tape { return &Tape{Choices: choices} }

// IntN returns the next choice, brought into [0, n).
func (t *Tape) IntN(n int) int {
	if t.at < len(t.Choices) {
		v := t.Choices[t.at]
		t.at++
		return min(v, n-1)
	}
	v := 0
	if t.behind != nil {
		v = t.behind.IntN(n)
		t.Choices = append(t.Choices, v)
	}
	t.at++
	return v
}

// Tight returns a timing with hardly any grace, so that what makes a lease a
// little too long makes two holders.
func Tight() protocol.Timing {
	return protocol.Timing{Grace: time.Millisecond}.WithDefaults()
}

// drawTiming draws the options that differ between programs: a grace, a bound on
// progress or on stopping, heartbeats that the program sends, and rare polls.
func drawTiming(src Source) protocol.Timing {
	t := Tight()
	switch src.IntN(4) {
	case 1:
		t.Grace = t.Lease / 8
	case 2:
		t.Progress = t.Lease / 2
	case 3:
		t.StopTimeout = t.Lease / 4
	}
	if src.IntN(8) == 7 {
		t.Manual = true
	}
	if src.IntN(8) == 7 {
		t.Refresh = time.Hour
	}
	return t
}

// minProcesses is the least number of processes of a schedule.
const minProcesses = 3

// Schedule draws a world with faults. One of eight has clients of a lock service, another one
// guardians, and a third one many requests for locks under sessions. One of twenty has an engine
// that loses writes.
func Schedule(src Source) Config {
	t := drawTiming(src)
	c := Config{
		Timing: t, History: [...]int{100, 5, 2, 1}[src.IntN(4)], Processes: minProcesses + src.IntN(3),
		Locks: 1 + src.IntN(8)/7, Length: time.Duration(1+src.IntN(6)) * t.Lease, Kept: t.Lease,
		Mixed: src.IntN(4) == 3, Unless: src.IntN(2) == 1, Twice: src.IntN(4) == 3,
		Deletions: src.IntN(4) == 3, Observers: src.IntN(2) == 1, Faults: true,
		Rough: src.IntN(8) == 7, Requests: src.IntN(4) != 0, Sessions: src.IntN(2) == 1,
	}
	orphans := src.IntN(32)
	c.Trying, c.Doubled = orphans&2 > 0, orphans&1 > 0
	switch {
	case orphans >= 28:
		c.Processes, c.Replicas, c.Clients = 1+src.IntN(2), 2+src.IntN(2), 2+src.IntN(3)
	case orphans >= 24:
		c.Guarded = true
	case orphans >= 20:
		c.Sessions, c.Requests, c.Length = true, true, 12*t.Lease
	case orphans >= 12 && !c.Deletions && !c.Unless && !c.Observers:
		c.Loses = true
	}
	return c
}

// OnLosingEngine puts the world on an engine that loses writes, without what is not modelled there.
func (c *Config) OnLosingEngine() {
	c.Loses, c.Processes = true, max(c.Processes, minProcesses)
	c.Clients, c.Replicas, c.Guarded = 0, 0, false
	c.Deletions, c.Unless, c.Observers = false, false, false
}

// Sum is what many runs were like.
type Sum struct {
	Schedules, Events uint64
	Least             int               // events of the shortest
	Total             map[Happening]int // how often each thing has happened
	With              map[Happening]int // schedules in which it has happened
	Seen              Transitions
}

// add counts one more run.
func (s *Sum) add(t *Tally) {
	if s.Schedules == 0 || t.Events < s.Least {
		s.Least = t.Events
	}
	s.Schedules++
	s.Events += uint64(t.Events)
	for what, n := range t.Of {
		s.Total[what] += n
		s.With[what]++
	}
	for what, n := range t.Seen {
		s.Seen[what] += n
	}
}

// Explore runs the schedules of the seeds from first on, until it has run n of them (for ever
// if n is 0), ctx ends, or one fails: then it returns the failure with the lowest seed. Shape
// changes the config that a seed has drawn. Each gets every thousandth sum.
func Explore(
	ctx context.Context, first, n uint64, shape func(seed uint64, c *Config), each func(Sum),
) (Sum, *Violation) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		next   atomic.Uint64
		mu     sync.Mutex
		sum    = Sum{Total: map[Happening]int{}, With: map[Happening]int{}, Seen: Transitions{}}
		failed *Violation
		all    sync.WaitGroup
	)
	run := func(seed uint64) {
		tally, err := Run(Seed(seed), func(c *Config) { shape(seed, c) }, nil)
		mu.Lock()
		defer mu.Unlock()
		sum.add(tally)
		if v, ok := err.(*Violation); ok && (failed == nil || seed < failed.Seed) { //nolint:errorlint // it is never wrapped
			failed, v.Seed = v, seed
			cancel()
		}
		if sum.Schedules%1000 == 0 {
			each(sum)
		}
	}
	for range runtime.NumCPU() {
		all.Go(func() {
			for i := next.Add(1) - 1; ctx.Err() == nil && (n == 0 || i < n); i = next.Add(1) - 1 {
				run(first + i)
			}
		})
	}
	all.Wait()
	return sum, failed
}

// Run runs the schedule that a source draws, and records it in t.
func Run(src Source, shape func(*Config), t *Trace) (*Tally, error) {
	cfg := Schedule(src)
	if shape != nil {
		shape(&cfg)
	}
	cfg.Trace = t
	return Tell(src, cfg)
}

// Shrink looks for fewer choices, and then for smaller ones, that break the same rule, in
// at most so many runs. It returns the best choices found, at worst choices itself. They
// break the rule when they are played.
func Shrink(choices []int, rule string, runs int, run func(Source) error) []int {
	best := trimmed(choices)
	try := func(next []int) bool {
		next = trimmed(next)
		if runs <= 0 || cmp.Or(cmp.Compare(len(next), len(best)), slices.Compare(next, best)) >= 0 {
			return false
		}
		runs--
		v, ok := run(Play(slices.Clone(next))).(*Violation) //nolint:errorlint // it is never wrapped
		if ok = ok && v.Rule == rule; ok {
			best = next
		}
		return ok
	}
	for again := true; again && runs > 0; {
		again = false
		for size := max(1, len(best)/2); size > 0; size /= 2 {
			for from := 0; from < len(best); {
				to := min(from+size, len(best))
				if try(append(slices.Clone(best[:from]), best[to:]...)) {
					again = true
					continue
				}
				for _, by := range []int{math.MaxInt, 2} {
					milder := slices.Clone(best)
					for i := from; i < to; i++ {
						milder[i] /= by
					}
					again = try(milder) || again
				}
				from += size
			}
		}
	}
	return best
}

// trimmed drops choices at the end that the default source makes too.
func trimmed(choices []int) []int {
	n := len(choices)
	for n > 0 && choices[n-1] == 0 {
		n--
	}
	return choices[:n]
}

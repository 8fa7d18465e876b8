// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package schedules runs the library itself under random schedules: several
// clients do anything that the public API can do, in a [tenuretest.World] in a
// bubble of virtual time, while calls are lost, late, doubled or stale,
// processes crash, stop for a while and restart, and clocks drift within
// their bound. A referee reports what must never happen.
//
// A [Plan] comes from a seed alone: the processes, their options, the
// possible faults, and the steps. Each step has its own random stream; the
// fault of a call depends on its process, its kind, its key, and the number of
// such calls before. So omitting a step changes the others little, and a failing
// plan can be shortened.
//
// A seed always gives the same plan, and the same schedule as far as the Go
// runtime does: the tests have one processor (GOMAXPROCS=1) and seed crypto/rand.
// Chance decides only the order of goroutines and timers that become ready at the
// same instant, of ready cases of a select, and of maps. Most of a
// schedule repeats with its seed, and so does a violation most often; if it does not,
// several runs of the same seed find it.
//
// It uses only the public API, so that it shows what users see, whatever is
// inside.
package schedules

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
)

// Plan is one schedule: all decisions made before it begins.
type Plan struct {
	Seed      uint64
	Processes []Setup
	Longest   time.Duration // of the lease durations
	Locks     []string
	Weather   Weather
	Steps     []Step
	Watches   bool // the store can watch
	Batches   bool // the store reads several records in one request
	SameOwner bool // all processes have the same owner name
}

// Setup is one process, again after each restart.
type Setup struct {
	Options tenure.Options // without owner
	Rate    float64        // of its clock, relative to true time
}

// Weather says which faults may happen to a call in a storm, and how likely they
// are. A storm is over a process or not.
type Weather struct {
	Kinds   []int   // of kinds
	Chance  float64 // of one of them, for a call in a storm
	Stale   float64 // of a stale answer to a cheap read, always
	Slow    time.Duration
	Drift   float64 // no clock is wrong by more
	Crashes bool
	Pauses  bool
}

// kinds are the kinds of faults of a call.
var kinds = []func(d time.Duration) faultstore.Fault{
	func(time.Duration) faultstore.Fault { return faultstore.LoseReply() },
	func(time.Duration) faultstore.Fault { return faultstore.LoseReplyHang() },
	func(time.Duration) faultstore.Fault { return faultstore.LoseRequest() },
	func(time.Duration) faultstore.Fault { return faultstore.Refuse() },
	func(time.Duration) faultstore.Fault { return faultstore.BlackHole() },
	func(d time.Duration) faultstore.Fault { return faultstore.Slow(d, 0) },
	func(d time.Duration) faultstore.Fault { return faultstore.Slow(0, d) },
	func(d time.Duration) faultstore.Fault { return faultstore.Late(4 * d) },
	func(d time.Duration) faultstore.Fault { return faultstore.LateAfterError(4 * d) },
	func(d time.Duration) faultstore.Fault { return faultstore.Duplicate(4 * d) },
}

// Step is one thing that happens.
type Step struct {
	N       int
	At      time.Duration // since the beginning
	Process int
	Op      *op
	Lock    string
	Seed    uint64 // of what it decides further
}

func (s Step) String() string {
	return fmt.Sprintf("#%d %v p%d %s %s", s.N, s.At.Round(time.Millisecond), s.Process, s.Op.name, s.Lock)
}

func (s Step) random() *rand.Rand { return rand.New(rand.NewPCG(s.Seed, 2)) }

// NewPlan returns the plan of a seed.
func NewPlan(seed uint64) *Plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &Plan{Seed: seed, Watches: r.IntN(3) == 0, Batches: r.IntN(2) == 0, SameOwner: r.IntN(6) == 0}
	w := &p.Weather
	for k := range kinds {
		if r.IntN(3) == 0 {
			w.Kinds = append(w.Kinds, k)
		}
	}
	w.Chance = pick(r, 0.1, 0.3, 0.6)
	w.Stale = pick(r, 0, 0.2, 0.5, 0.9)
	w.Drift = pick(r, 0, 0.001, 0.05, 0.09)
	w.Crashes, w.Pauses = r.IntN(3) > 0, r.IntN(3) > 0
	p.Locks = []string{"a", "b", "c"}[:1+r.IntN(3)]

	for range 2 + r.IntN(3) {
		s := setup(r, w.Drift)
		p.Longest = max(p.Longest, s.Options.LeaseDuration)
		p.Processes = append(p.Processes, s)
	}
	w.Slow = p.Longest / 2

	// Each seed has its favourites, so that rare combinations also occur often.
	total := 0
	favour := make([]int, len(ops))
	for i, o := range ops {
		favour[i] = o.weight * []int{0, 1, 1, 3}[r.IntN(4)]
		switch {
		case o.name == "crash" && !w.Crashes, o.name == "pause" && !w.Pauses, o.name == "clock" && w.Drift == 0:
			favour[i] = 0
		}
		total += favour[i]
	}
	gap := p.Longest / time.Duration(2+r.IntN(10))
	at := time.Duration(0)
	for n := range 30 + r.IntN(60) {
		at += time.Duration(r.Int64N(int64(2 * gap)))
		if r.IntN(4) == 0 {
			at += time.Duration(r.Int64N(int64(p.Longest)))
		}
		s := Step{N: n, At: at, Process: r.IntN(len(p.Processes)), Lock: p.Locks[r.IntN(len(p.Locks))], Seed: r.Uint64()}
		s.Op = ops[0]
		dice := r.IntN(max(total, 1))
		for i, o := range ops {
			if dice -= favour[i]; dice < 0 {
				s.Op = o
				break
			}
		}
		p.Steps = append(p.Steps, s)
	}
	return p
}

func setup(r *rand.Rand, drift float64) Setup {
	var o tenure.Options
	o.LeaseDuration = pick(r, 2*time.Second, 6*time.Second, 15*time.Second)
	o.MaxClockDrift = max(drift, pick(r, 0.001, 0.03, 0.09, 0.09))
	o.Grace = o.LeaseDuration / pick[time.Duration](r, 8, 100, 500)
	o.RefreshPeriod = o.LeaseDuration / pick[time.Duration](r, 5, 15, 40)
	if r.IntN(4) == 0 {
		o.RefreshPeriod = 2 * o.LeaseDuration
	}
	if r.IntN(4) == 0 {
		o.StopTimeout = o.LeaseDuration / 3
	}
	if r.IntN(6) == 0 {
		o.ProgressTimeout = 3 * o.LeaseDuration
	}
	if r.IntN(5) == 0 {
		o.HistoryLimit = 3
	}
	return Setup{Options: o, Rate: rate(r, drift)}
}

// rate returns how fast a clock runs, most often as wrong as it may.
func rate(r *rand.Rand, drift float64) float64 {
	return 1 + drift*pick(r, -1, -1, 1, 1, 0, 2*r.Float64()-1)
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// String describes the plan without its steps.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d locks, %d steps, watches %t, batches %t, one owner name %t, weather %+v\n",
		p.Seed, len(p.Locks), len(p.Steps), p.Watches, p.Batches, p.SameOwner, p.Weather)
	for i, s := range p.Processes {
		o := s.Options
		fmt.Fprintf(&b, "p%d: lease %v, refresh %v, grace %v, stop %v, progress %v, history %d, drift bound %v, rate %.4f\n",
			i, o.LeaseDuration, o.RefreshPeriod, o.Grace, o.StopTimeout, o.ProgressTimeout, o.HistoryLimit, o.MaxClockDrift, s.Rate)
	}
	return b.String()
}

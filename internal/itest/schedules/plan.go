// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
)

// Plan is one schedule: all that is decided before it begins.
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
	Options tenure.Options // without owner and clock
	Rate    float64        // of its clock, beside true time
}

// Weather says which faults may happen to a call in a storm, and how likely they
// are. A storm is over a process or not.
type Weather struct {
	Kinds   []Kind
	Chance  float64 // of one of them, for a call in a storm
	Stale   float64 // of a stale read, for one that is not strong, always
	Slow    time.Duration
	Drift   float64 // no clock is wrong by more
	Crashes bool
	Pauses  bool
}

// Kind is a kind of fault.
type Kind int

// The kinds of faults of a call.
const (
	LoseReply Kind = iota
	LoseReplyHang
	LoseRequest
	Refuse
	BlackHole
	SlowBefore
	SlowAfter
	Late
	LateAfterError
	Duplicate
	kinds
)

// Op is what a step does.
type Op string

// The steps. Those of the second group need a session, and open one if the
// process has none.
const (
	OpTry         Op = "try"
	OpPoll        Op = "poll"
	OpAcquire     Op = "acquire"
	OpUnlessAlive Op = "unless alive"
	OpRun         Op = "run"
	OpCampaign    Op = "campaign"

	OpSessionTry      Op = "session try"
	OpSessionAcquire  Op = "session acquire"
	OpSessionUnless   Op = "session unless alive"
	OpSessionRun      Op = "session run"
	OpSessionCampaign Op = "session campaign"
	OpSessionClose    Op = "session close"

	OpStepDown    Op = "step down"
	OpTransfer    Op = "transfer"
	OpRevoke      Op = "revoke"
	OpReleaseDead Op = "release dead"
	OpSweep       Op = "sweep"

	OpObserve  Op = "observe"
	OpLeader   Op = "leader"
	OpStatus   Op = "status"
	OpStatuses Op = "statuses"
	OpLocks    Op = "locks"
	OpHistory  Op = "history"

	OpClose   Op = "close"
	OpCrash   Op = "crash"
	OpPause   Op = "pause"
	OpCutOff  Op = "cut off"
	OpStorm   Op = "storm"
	OpSetRate Op = "clock"
)

// weights is how often each step is planned, beside the others.
var weights = []struct {
	op     Op
	weight int
}{
	{OpTry, 8},
	{OpPoll, 3},
	{OpAcquire, 12},
	{OpUnlessAlive, 8},
	{OpRun, 10},
	{OpCampaign, 8},
	{OpSessionTry, 6},
	{OpSessionAcquire, 8},
	{OpSessionUnless, 4},
	{OpSessionRun, 6},
	{OpSessionCampaign, 4},
	{OpSessionClose, 6},
	{OpStepDown, 4},
	{OpTransfer, 5},
	{OpRevoke, 4},
	{OpReleaseDead, 4},
	{OpSweep, 3},
	{OpObserve, 5},
	{OpLeader, 3},
	{OpStatus, 4},
	{OpStatuses, 3},
	{OpLocks, 2},
	{OpHistory, 3},
	{OpClose, 2},
	{OpCrash, 5},
	{OpPause, 5},
	{OpCutOff, 4},
	{OpStorm, 8},
	{OpSetRate, 4},
}

// Step is one thing that happens.
type Step struct {
	N       int
	At      time.Duration // since the beginning
	Process int
	Op      Op
	Lock    string
	Seed    uint64 // of what it decides further
}

func (s Step) String() string {
	return fmt.Sprintf("#%d %v p%d %s %s", s.N, s.At.Round(time.Millisecond), s.Process, s.Op, s.Lock)
}

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

	// Each seed has its favourites, so that rare meetings are not only rare.
	total := 0
	favour := make([]int, len(weights))
	for i, o := range weights {
		favour[i] = o.weight * []int{0, 1, 1, 3}[r.IntN(4)]
		switch {
		case o.op == OpCrash && !w.Crashes, o.op == OpPause && !w.Pauses, o.op == OpSetRate && w.Drift == 0:
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
		s := Step{N: n, At: at, Process: r.IntN(len(p.Processes)), Lock: p.Locks[r.IntN(len(p.Locks))], Seed: r.Uint64(), Op: OpAcquire}
		dice := r.IntN(max(total, 1))
		for i, o := range weights {
			if dice -= favour[i]; dice < 0 {
				s.Op = o.op
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

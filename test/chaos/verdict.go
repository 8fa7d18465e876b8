// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/harness/machine"
	"github.com/tenurelock/tenure/test/harness/page"
)

// What a round must not show, besides what the judge of its log finds.
const (
	noLeader   trial.Sin = "no leader"  // no process held the lock in time after the faults
	hook       trial.Sin = "clock"      // a replica's clock did not show what was done to it
	torn       trial.Sin = "torn"       // a reader saw a write that was under way
	history    trial.Sin = "history"    // the service's history says something else
	unexpected trial.Sin = "unexpected" // an error that no fault explains
)

// counts are the figures of a round.
type counts struct {
	Faults  map[kind]int   `json:"faults"`
	Proved  map[kind]int   `json:"proved,omitempty"`
	Came    map[string]int `json:"came,omitempty"`    // results of work, or kinds of holds
	Weather map[string]int `json:"weather,omitempty"` // what gates did to calls
	Of      map[string]int `json:"of"`                // terms, by the kind of process

	Kills      int `json:"kills"`      // SIGKILL of a process
	Stops      int `json:"stops"`      // SIGSTOP of a process for longer than a moment
	Lives      int `json:"lives"`      // processes
	Namespaces int `json:"namespaces"` // of these, in a time namespace of their own

	Terms int `json:"tenures"`

	Operations int `json:"operations"` // all that were begun
	Checks     int `json:"checks"`     // checks that passed, and were reported

	Refused  int `json:"refused"` // by the fence
	LatePast int `json:"late"`    // late operations: a resource without a fence lets them in
	Blind    int `json:"blind"`   // checks that passed while no clock showed a pause
	Lost     int `json:"lost"`    // pieces of bytes that vanished in gates
	Overlaps int `json:"overlaps"`

	Leaderless time.Duration `json:"leaderlessNs"` // the longest time without a holder
}

func newCounts() counts {
	none := func() map[string]int { return map[string]int{} }
	return counts{Faults: none(), Proved: none(), Came: none(), Weather: none(), Of: none()}
}

// add adds what was counted in another round.
func (c *counts) add(d *counts) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(d).Elem()
	for i := range to.NumField() {
		switch n := to.Field(i).Addr().Interface().(type) {
		case *int:
			*n += int(from.Field(i).Int())
		case *map[string]int:
			for name, more := range from.Field(i).Seq2() {
				(*n)[name.String()] += int(more.Int())
			}
		}
	}
	c.Leaderless = max(c.Leaderless, d.Leaderless)
}

func (c counts) String() string {
	return fmt.Sprintf("%d faults%s; %d kills and %d stops of processes; %d processes, %d in time namespaces\n"+
		"  %d terms%s; %d operations, %d overlaps; late: %d refused by the fence, %d unfenced, "+
		"%d that no clock could stop\n  longest without a holder %s%s",
		sum(c.Faults)-c.Faults[stepDown], counted(", gates: ", c.Weather), c.Kills, c.Stops, c.Lives, c.Namespaces,
		c.Terms, counted(": ", c.Of), c.Operations, c.Overlaps, c.Refused, c.LatePast, c.Blind,
		shown(c.Leaderless), counted("; ", c.Came))
}

// verdict is the result of a round.
type verdict struct {
	Number   int
	Plan     plan
	Counts   counts
	Recovery time.Duration
	Bound    time.Duration

	violations []trial.Finding
	log        *trial.Log
	told       map[string]*trial.Told // of effects, by their ID
	possible   map[kind]bool
}

func newVerdict(effects []trial.Effect) *verdict {
	return &verdict{
		Counts: newCounts(), log: &trial.Log{Effects: slices.Clone(effects)}, told: map[string]*trial.Told{},
	}
}

func (v *verdict) sin(s trial.Sin, format string, args ...any) {
	v.violations = append(v.violations, trial.Finding{Sin: s, Text: fmt.Sprintf(format, args...)})
}

func (v *verdict) has(s trial.Sin) bool {
	return slices.ContainsFunc(v.violations, func(x trial.Finding) bool { return x.Sin == s })
}

// judge reads the logs of the processes of a round, and of the resource.
func (r *round) judge(number int) *verdict {
	v := newVerdict(r.effects)
	v.Number, v.Plan, v.Recovery, v.Bound, v.possible = number, r.plan, r.recovery, r.bound, r.possible
	for _, p := range r.problems {
		v.sin(unexpected, "%s", p)
	}
	r.work.read(v)
	for _, s := range r.seats {
		v.Counts.Lives += len(s.lives)
	}
	for _, e := range r.events {
		v.Counts.Faults[e.Kind]++
		if traits[e.Kind].kills {
			v.Counts.Kills++
		}
		if traits[e.Kind].stops {
			v.Counts.Stops++
		}
	}
	v.Counts.Lost += r.lost
	v.log.Apart = r.apart()
	slices.SortFunc(v.log.Holds, func(a, b trial.Hold) int { return cmp.Compare(a.Begin, b.Begin) })
	for i := range v.log.Effects {
		e := &v.log.Effects[i]
		e.Told, e.Blind = v.told[e.ID], r.blind(e.Owner, e.Checked, e.Checked)
		if e.Refused {
			v.Counts.Refused++
		}
	}
	v.log.EndKilled()
	for _, f := range v.log.Judge() {
		v.sin(f.Sin, "%s", f.Text)
		if f.Sin == trial.Overlap {
			v.Counts.Overlaps++
		}
	}
	v.Counts.LatePast, v.Counts.Terms = len(v.log.Late()), len(v.log.Holds)
	v.Counts.Leaderless, _, _ = v.log.Gap(r.filled, r.calmed)
	r.work.check(v)
	if r.recovery < 0 || r.recovery > r.bound {
		v.sin(noLeader, "time until a process led after the last kill: %s; at most %s are allowed", shown(r.recovery),
			shown(r.bound))
	}
	return v
}

// apart is how far apart two periods of a job begin, with the fastest allowed clocks. A run may
// begin late by the longest stop that loses no lease.
func (r *round) apart() time.Duration {
	const allowed = 0.09 // by which the rates of clocks may differ
	return r.leases(replica.EveryLeases/(1+allowed) - 1)
}

// blind reports whether in a span of time no clock of the process showed the pause that it had
// just been through.
func (r *round) blind(owner string, from, to int64) bool {
	return slices.ContainsFunc(r.events, func(e event) bool {
		return (owner == e.On || strings.HasPrefix(owner, e.On+".")) && e.Blind[0] <= to && from < e.Blind[1]
	})
}

// seatIndex returns the seat of a process or a hold, whose name begins with that of the seat.
func (r *round) seatIndex(owner string) int {
	name, _, _ := strings.Cut(owner, ".")
	return slices.IndexFunc(r.seats, func(s *seat) bool { return s.name == name })
}

// shown formats a length of time for people.
func shown(d time.Duration) string {
	if d < 0 {
		return "never"
	}
	return d.Round(time.Millisecond).String()
}

// parts are where the runs of the service and of shards are written.
var parts = map[string]page.Part{
	"service": partOf("service", "docs/evidence/faults.md"), "shards": partOf("shards", "docs/evidence/performance.md"),
}

func partOf(workload, file string) page.Part {
	return page.Part{
		Name: workload, Command: "go run ./test/chaos -workload " + workload, Results: "test/chaos/results.json", Page: file,
	}
}

// report is the whole of a run.
type report struct {
	Began   time.Time
	Took    time.Duration
	Machine machine.Machine
	// Whole reports whether all faults were used.
	Whole  bool
	Rounds []*verdict
}

// String returns the counts, and each violation.
func (v *verdict) String() string {
	again := ""
	if v.Bound > 0 {
		again = "; a holder after " + shown(v.Recovery)
	}
	text := fmt.Sprintf("round %d: %s, seed %d: %s%s\n  %s\n", v.Number, v.Plan.Engine, v.Plan.Seed,
		page.Plural(len(v.violations), "violation"), again, v.Counts)
	for _, sin := range v.violations {
		text += fmt.Sprintf("  %s: %s\n", sin.Sin, sin.Text)
	}
	return text
}

func (r *report) String() string {
	text := fmt.Sprintf("%s in %v: %s\n  %s\n", page.Plural(len(r.Rounds), "round"), r.Took.Round(time.Second),
		page.Plural(r.violations(), "violation"), r.total())
	if missing := r.unproved(); len(missing) > 0 {
		text += fmt.Sprintf("  nothing shows that these faults had any effect: %s\n", strings.Join(missing, ", "))
	}
	return text + counted("  faults: ", r.total().Faults) + "\n"
}

// counted lists what was counted, behind a word, if anything was.
func counted(word string, of map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s %s", page.Thousands(of[name]), name))
	}
	if len(all) == 0 {
		return ""
	}
	return word + strings.Join(all, ", ")
}

// violations counts them over all rounds.
func (r *report) violations() int {
	n := len(r.unproved())
	for _, x := range r.Rounds {
		n += len(x.violations)
	}
	return n
}

// unproved are the kinds of faults that struck without a trace: for a clock, no replica saw
// them; for the way to an engine, nothing was lost on it. In a run of several rounds
// they are the kinds that never came.
func (r *report) unproved() (missing []string) {
	total, engines, possible := r.total(), map[string]bool{}, map[kind]bool{}
	for _, x := range r.Rounds {
		engines[x.Plan.Engine] = true
		maps.Copy(possible, x.possible)
	}
	for _, k := range slices.Sorted(maps.Keys(possible)) {
		struck, t := total.Faults[k] > 0, traits[k]
		never := r.Whole && len(r.Rounds) >= 3*len(engines) && !struck
		if never || struck && (t.clock() && total.Proved[k] == 0 || t.wire && total.Lost == 0) {
			missing = append(missing, k)
		}
	}
	return missing
}

// total adds the figures of all rounds.
func (r *report) total() counts {
	total := newCounts()
	for _, x := range r.Rounds {
		total.add(&x.Counts)
	}
	return total
}

// markdown returns the service's part of the page. A run with a violation writes none.
func (r *report) markdown() string {
	var b strings.Builder
	t, first := r.total(), r.Rounds[0].Plan
	var recovery, length time.Duration
	for _, x := range r.Rounds {
		recovery, length = max(recovery, x.Recovery), length+x.Plan.Length
	}
	fmt.Fprintf(&b, "Made on %s, on %v: %d rounds, %v under faults; %d clients, %d replicas, lease %v.\n\n",
		r.Began.UTC().Format(time.DateTime+" MST"), r.Machine, len(r.Rounds), length, first.Seats, serviceReplicas,
		first.Lease)
	fmt.Fprintf(&b, "- Holds: %s%s%s).\n", page.Thousands(t.Terms), counted(" (", t.Of), counted("; ", t.Came))
	fmt.Fprintf(&b, "- Effects on the resource: %s. "+
		"Late, after a stop between check and effect: %d; the fence refused %d.\n",
		page.Thousands(t.Operations), t.LatePast, t.Refused)
	fmt.Fprintf(&b, "- Longest time without a holder: %v of %v allowed; "+
		"to the next holder after the last kill: %v.\n", t.Leaderless.Round(10*time.Millisecond), gapBound(first.Lease),
		recovery.Round(10*time.Millisecond))
	fmt.Fprintf(&b, "- The nemesis struck %s, the proxies %s.\n- **What was wrong: 0.**\n",
		times(t.Faults), times(t.Weather))
	return b.String()
}

// times says how often, and in how many ways. The JSON has each.
func times(of map[string]int) string {
	return fmt.Sprintf("%s times in %d ways", page.Thousands(sum(of)), len(of))
}

func sum(of map[string]int) (n int) {
	for _, times := range of {
		n += times
	}
	return n
}

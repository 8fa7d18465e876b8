// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/chaos/trial"
)

// What a round must not show, beside what the judge of its log finds.
const (
	noLeader   trial.Sin = "no leader"  // nobody held the lock in time after the faults
	hook       trial.Sin = "clock"      // a replica's clock did not show what was done to it
	torn       trial.Sin = "torn"       // a reader saw a write that was under way
	history    trial.Sin = "history"    // the service's history says something else
	unexpected trial.Sin = "unexpected" // an error that no fault explains
)

// violation is a sin, and what shows it.
type violation struct {
	Sin  trial.Sin
	Text string
}

// tenancy is one process's time with the lock.
type tenancy struct {
	trial.Hold
	End string // as the process said; "" if it was killed
}

// counts are the figures of a round.
type counts struct {
	Faults  map[kind]int   `json:"faults"`
	Proved  map[kind]int   `json:"proved,omitempty"`
	Came    map[string]int `json:"came,omitempty"`    // what work came to
	Weather map[string]int `json:"weather,omitempty"` // what gates did to calls
	Of      map[string]int `json:"of"`                // tenures, by the kind of process

	Kills      int `json:"kills"`      // SIGKILL of a process
	Stops      int `json:"stops"`      // SIGSTOP of a process for longer than a moment
	Lives      int `json:"lives"`      // processes
	Namespaces int `json:"namespaces"` // of these, in a time namespace of their own

	Tenures   int `json:"tenures"`
	Takeovers int `json:"takeovers"` // tenures after one that was lost, or whose process died

	Operations int `json:"operations"` // all that were begun
	Checks     int `json:"checks"`     // checks that passed, and were told of

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

// allFaults counts them.
func (c counts) allFaults() int {
	return sum(c.Faults) - c.Faults[stepDown]
}

// verdict is what a round has shown.
type verdict struct {
	counts
	Violations []violation
	Tenancies  []tenancy
	Log        *trial.Log
	Late       []trial.Effect
}

func (v *verdict) sin(s trial.Sin, format string, args ...any) {
	v.Violations = append(v.Violations, violation{s, fmt.Sprintf(format, args...)})
}

func (v *verdict) has(s trial.Sin) bool {
	return slices.ContainsFunc(v.Violations, func(x violation) bool { return x.Sin == s })
}

// judge reads what the processes have said, and the resource has seen.
func (r *round) judge() *verdict {
	v := &verdict{counts: newCounts()}
	for _, p := range r.problems {
		v.sin(unexpected, "%s", p)
	}
	told, answers := r.work.read(v)
	for _, s := range r.seats {
		v.Lives += len(s.lives)
	}
	for _, e := range r.events {
		v.Faults[e.Kind]++
		if k := e.Kind; k == kill || k == namespace || k == stopKill {
			v.Kills++
		}
		if traits[e.Kind].stops {
			v.Stops++
		}
	}
	v.Lost += r.lost
	slices.SortFunc(v.Tenancies, func(a, b tenancy) int { return cmp.Compare(a.Begin, b.Begin) })
	v.Log = r.log(v.Tenancies, told)
	v.Log.Answers = answers
	for _, f := range v.Log.Judge() {
		v.sin(f.Sin, "%s", f.Text)
		if f.Sin == trial.Overlap {
			v.Overlaps++
		}
	}
	r.measure(v)
	r.work.check(v)
	if r.recovery < 0 || r.recovery > r.bound {
		v.sin(noLeader, "time until somebody led after the last kill: %s; at most %s are allowed", shown(r.recovery), shown(r.bound))
	}
	return v
}

// log returns the log of the round, and ends the tenancies of the killed as it does.
func (r *round) log(tenancies []tenancy, told map[string]*trial.Told) *trial.Log {
	l := &trial.Log{Effects: slices.Clone(r.effects), Apart: r.apart()}
	for _, t := range tenancies {
		l.Holds = append(l.Holds, t.Hold)
	}
	for i := range l.Effects {
		e := &l.Effects[i]
		e.Told, e.Blind = told[e.ID], r.blind(e.Owner, e.Checked, e.Checked)
	}
	l.EndKilled()
	for i := range tenancies {
		tenancies[i].Last = l.Holds[i].Last
	}
	return l
}

// apart is how far two periods of a job begin apart, with clocks as fast as may be. A run may begin
// late by what a stop can take that no lease is lost by.
func (r *round) apart() time.Duration {
	const allowed = 0.09 // by which the rates of clocks may differ
	return r.leases(replica.EveryLeases/(1+allowed) - 1)
}

// blind says that in a span of time nothing that the process could ask showed the pause that it
// had just been through.
func (r *round) blind(owner string, from, to int64) bool {
	return slices.ContainsFunc(r.events, func(e event) bool {
		return (owner == e.On || strings.HasPrefix(owner, e.On+".")) && e.Blind[0] <= to && from < e.Blind[1]
	})
}

// measure counts what the resource saw, and what followed a loss.
func (r *round) measure(v *verdict) {
	v.Late = v.Log.Late()
	v.LatePast, v.Tenures = len(v.Late), len(v.Tenancies)
	for _, e := range v.Log.Effects {
		if e.Refused {
			v.Refused++
		}
	}
	v.Leaderless, _, _ = v.Log.Gap(r.filled, r.calmed)
	last := map[string]*tenancy{} // of each lock
	for i := range v.Tenancies {
		t := &v.Tenancies[i]
		before := last[t.Lock]
		if last[t.Lock] = t; before != nil && (before.Killed || lossy(before.End)) && !t.Shared {
			v.Takeovers++
		}
	}
}

// seatName returns the seat of a process or a hold, whose name begins with that.
func seatName(owner string) string {
	seat, _, _ := strings.Cut(owner, ".")
	return seat
}

func (r *round) seatIndex(owner string) int {
	return slices.IndexFunc(r.seats, func(s *seat) bool { return s.name == seatName(owner) })
}

// shown writes a length of time as people do.
func shown(d time.Duration) string {
	switch {
	case d < 0:
		return "never"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
}

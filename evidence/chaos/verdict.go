// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
)

// What a round must not show, beside what the judge of its log finds.
const (
	noLeader   trial.Sin = "no leader"  // nobody led in time after the faults
	hook       trial.Sin = "clock"      // a replica's clock did not show what was done to it
	unexpected trial.Sin = "unexpected" // an error that no fault explains
)

// violation is a sin, and where on the time line it is.
type violation struct {
	Sin      trial.Sin
	Text     string
	From, To int64
	Seat     int
}

// tenancy is one replica's time with the lock.
type tenancy struct {
	Token    uint64
	Process  string
	Seat     int
	From, To int64  // the grant: around the first check
	Last     int64  // when the last check that passed began
	End      string // as the replica said; "" if it was killed
	Lost     bool
	ended    int64
}

// counts are the figures of a round.
type counts struct {
	Faults     map[kind]int
	Kills      int // SIGKILL of a replica
	Stops      int // SIGSTOP of a replica for longer than a moment
	Lives      int // processes
	Namespaces int // of these, in a time namespace of their own

	Tenancies int
	Takeovers int // tenancies after one that was lost, or whose process died
	Blanks    int // grants of which the holder knew only when they were over

	Operations int // all that were begun
	Unknown    int // whose caller does not know the outcome
	Unsent     int // the lease had ended right before
	Checks     int // checks that passed, and were told of

	Refused  int // by the fence
	LatePast int // late operations: a resource without a fence lets them in
	LateIn   int // of these, let in by the fence: the new holder had not come yet
	LateGap  int // of these, those from a replica whose clocks did not show a pause yet
	Blind    int // checks that passed while no clock showed a pause
	Proved   map[kind]int
	Lost     int // pieces of bytes that vanished in gates

	Overlaps   int
	Margin     time.Duration // the least from a lost holder's last check to the next grant
	Leaderless time.Duration // the longest time without a leader
}

// verdict is what a round has shown.
type verdict struct {
	counts
	Violations []violation
	Tenancies  []tenancy
	Log        *trial.Log
	Late       []trial.Effect
}

func (v *verdict) sin(s trial.Sin, at violation, format string, args ...any) {
	at.Sin, at.Text = s, fmt.Sprintf(format, args...)
	v.Violations = append(v.Violations, at)
}

func (v *verdict) has(s trial.Sin) bool {
	return slices.ContainsFunc(v.Violations, func(x violation) bool { return x.Sin == s })
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

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return page.Thousands(n) + " " + one + "s"
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"strconv"
	"time"
)

// Instant is a reading of the boot clock in nanoseconds. Readings are comparable
// between the processes of one machine until it restarts, and mean nothing elsewhere.
type Instant int64

// Add returns the instant d after t.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// ParseInstant reads an instant as the arguments of [Command.Last] have it.
func ParseInstant(s string) (Instant, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%.40q is no reading of a clock", s)
	}
	return Instant(n), nil
}

// Limits say until when a command may live.
type Limits struct {
	// Term is the deadline of the work: everything is sent SIGTERM.
	Term Instant
	// Kill is the instant at which everything still alive is sent SIGKILL. Its distance
	// to Expiry is the time that killing may take on a busy machine.
	Kill Instant
	// Expiry is the instant after which others may be at work. A caller that is found
	// stopped then is continued, so that it can report the loss.
	Expiry Instant
}

func (l Limits) check() error {
	if l.Term > l.Kill || l.Kill > l.Expiry {
		return fmt.Errorf("limits out of order: want term <= kill <= expiry, "+
			"have kill %v after term and expiry %v after kill",
			l.Kill.Sub(l.Term), l.Expiry.Sub(l.Kill))
	}
	return nil
}

// orders are what a guardian and a watchdog obey: the limits, and whether the
// command was asked to stop before they are reached.
type orders struct {
	Limits
	// stop is 0, or the instant given to [Guard.Stop].
	stop Instant
}

// ask notes that the command is to stop, and be killed at an instant at the latest. What was
// asked for before can only become earlier.
func (o *orders) ask(kill Instant) {
	kill = max(kill, 1)
	if o.stop != 0 {
		kill = min(kill, o.stop)
	}
	o.stop = kill
}

// term reports whether SIGTERM is due.
func (o orders) term(now Instant) bool { return o.stop != 0 || now >= o.Term }

// kill is the instant at which SIGKILL is due. The lease bounds what Stop was given.
func (o orders) kill() Instant {
	if o.stop != 0 {
		return min(o.stop, o.Kill)
	}
	return o.Kill
}

// looksEnd is how long the family may be kept stopped for SIGTERM to reach all of it: for
// a quarter of the time until SIGKILL.
func (o orders) looksEnd() Instant {
	now := Now()
	return now.Add(o.kill().Sub(now) / 4)
}

// reason is why the command has to end.
func (o orders) reason() Reason {
	if o.stop != 0 {
		return Stopped
	}
	return Overdue
}

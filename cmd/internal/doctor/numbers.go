// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Numbers says what follows from the options.
func Numbers(o tenure.Options) []driver.Finding {
	usable, spare := partsOf(o, heartbeatTimeout(o))
	away := driver.OK("lease", "the store may be away for %v before the lease is lost", shown(spare))
	if spare < o.HeartbeatPeriod {
		away.Level, away.Advice = driver.LevelWarn, "a longer lease, or a shorter heartbeat period, leaves time for another try"
	}
	return []driver.Finding{
		driver.OK("lease", "lease %v, heartbeat every %v with a timeout of %v, grace %v: work is asked to "+
			"stop %v after the last successful heartbeat was sent",
			o.LeaseDuration, o.HeartbeatPeriod, shown(heartbeatTimeout(o)), o.Grace, shown(usable)),
		away,
		driver.OK("lease", "a crashed holder's lock is free %v after its last heartbeat was seen", o.LeaseDuration),
	}
}

// partsOf returns how long after a heartbeat was sent its holder may act, and for how long the
// store may be away, if a heartbeat times out after beat.
func partsOf(o tenure.Options, beat time.Duration) (usable, spare time.Duration) {
	window := time.Duration(float64(o.LeaseDuration) * (1 - o.MaxClockDrift) / (1 + o.MaxClockDrift))
	usable = window - o.Grace
	// The last heartbeat was good; the next one hangs, and so may its repetition.
	return usable, usable - o.HeartbeatPeriod - 2*beat
}

func heartbeatTimeout(o tenure.Options) time.Duration {
	return protocol.Timing{Lease: o.LeaseDuration, RequestTimeout: o.RequestTimeout}.HeartbeatTimeout()
}

// numbersFor says what follows from the options for this store, if that is less than [Numbers]
// says: a client allows for any clock where other lock clients share the store, and waits longer
// for the heartbeats of a slow one. Contenders wait longer on an engine that may lose what it has answered.
func numbersFor(store driver.Store, o tenure.Options) (all []driver.Finding) {
	if g, ok := store.(driver.Guarded); ok && g.Waits() > o.LeaseDuration {
		all = append(all, driver.OK("lease", "with this store, a crashed holder's lock is free %v after its last heartbeat "+
			"was seen, since the server may lose confirmed writes", shown(g.Waits())))
	}
	s, ok := store.(driver.Sharer)
	shares := ok && s.SharesLocks() && o.MaxClockDrift == protocol.RawDrift
	beat := heartbeatTimeout(o)
	_, slow := store.(driver.SlowWriter)
	if slow {
		beat = o.RequestTimeout
	}
	if shares {
		o.MaxClockDrift = protocol.DefaultDrift
	}
	if !shares && beat == heartbeatTimeout(o) {
		return all
	}
	usable, spare := partsOf(o, beat)
	return append(all, driver.OK("lease", "with this store, leases allow clocks %g %% and heartbeats %v: work is "+
		"asked to stop after %v, and the store may be away for %v", 100*o.MaxClockDrift, shown(beat), shown(usable), shown(spare)))
}

func shown(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// latency is how long requests of one kind took.
type latency struct{ least, median, most time.Duration }

func (l latency) String() string {
	return fmt.Sprintf("%v to %v, median %v", shown(l.least), shown(l.most), shown(l.median))
}

func measure(all []time.Duration) latency {
	slices.Sort(all)
	return latency{all[0], all[len(all)/2], all[len(all)-1]}
}

// judge compares the latency of heartbeats with the limit that a client sets to one, a share of
// its lease. Most is what happens if most take longer, remedy what to do then, before the lease
// that they want.
func (l latency) judge(f driver.Finding, limit, share time.Duration, most, slow, remedy string) driver.Finding {
	// The limit should be four times the slowest.
	fits := max(time.Second, (4*share*l.most).Round(time.Second)+time.Second)
	switch {
	case l.median > limit:
		f.Level = driver.LevelBad
		return f.Advise("%s: %s --lease %v or more", most, remedy, fits)
	case l.most > limit/4:
		f.Level = driver.LevelWarn
		return f.Advise("%s: %s --lease %v or more", slow, remedy, fits)
	}
	return f
}

// judgeWrites compares the latency of writes with the timeout of heartbeats, a fifteenth of the
// lease.
func judgeWrites(l latency, o tenure.Options) driver.Finding {
	limit := heartbeatTimeout(o)
	f := driver.OK("latency", "writes take %v; heartbeats time out after %v", l, shown(limit))
	return l.judge(f, limit, 15, "most heartbeats would fail", "slow writes would lose leases", "with this store, use")
}

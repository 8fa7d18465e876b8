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
	usable, spare := partsOf(o)
	away := driver.OK("lease", "the store may be away for %v before the lease is lost", shown(spare))
	if spare < o.HeartbeatPeriod {
		away.Level, away.Advice = driver.LevelWarn, "a longer lease, or a shorter heartbeat period, leaves time for another try"
	}
	return []driver.Finding{
		driver.OK("lease", "lease %v, heartbeat every %v, request timeout %v, grace %v: work is asked to "+
			"stop %v after the last successful heartbeat was sent",
			o.LeaseDuration, o.HeartbeatPeriod, o.RequestTimeout, o.Grace, shown(usable)),
		away,
		driver.OK("lease", "a crashed holder's lock is free %v after its last heartbeat was seen", o.LeaseDuration),
	}
}

// partsOf returns how long after a heartbeat was sent its holder may act, and for how long the
// store may be away.
func partsOf(o tenure.Options) (usable, spare time.Duration) {
	window := time.Duration(float64(o.LeaseDuration) * (1 - o.MaxClockDrift) / (1 + o.MaxClockDrift))
	usable = window - o.Grace
	// The last heartbeat was good; the next one hangs, and so may its repetition.
	return usable, usable - o.HeartbeatPeriod - 2*o.RequestTimeout
}

// numbersBeside says what else follows from the options if other lock clients share the store, so
// that a client allows for any clock.
func numbersBeside(store driver.Store, o tenure.Options) []driver.Finding {
	s, ok := store.(driver.Sharer)
	if !ok || !s.SharesLocks() || o.MaxClockDrift != protocol.RawDrift {
		return nil
	}
	o.MaxClockDrift = protocol.DefaultDrift
	usable, spare := partsOf(o)
	return []driver.Finding{driver.OK("lease", "other lock clients share the store, so leases allow clocks %g %%: work "+
		"is asked to stop after %v, and the store may be away for %v", 100*o.MaxClockDrift, shown(usable), shown(spare))}
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

// judge compares the latency of heartbeats with the limit that a client sets to one. Most is
// what happens if most take longer, remedy what to do then, before the lease that they want.
func (l latency) judge(f driver.Finding, limit time.Duration, most, slow, remedy string) driver.Finding {
	// The limit is a tenth of the lease, and should be four times the slowest.
	fits := max(time.Second, (40*l.most).Round(time.Second)+time.Second)
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

// judgeWrites compares the latency of writes with the request timeout.
func judgeWrites(l latency, o tenure.Options) driver.Finding {
	f := driver.OK("latency", "writes take %v; the request timeout is %v", l, o.RequestTimeout)
	return l.judge(f, o.RequestTimeout, "most heartbeats would fail", "slow writes would lose leases", "with this store, use")
}

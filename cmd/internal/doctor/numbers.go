// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net"
	"time"

	"github.com/tenurelock/tenure"
)

// Numbers says what follows from the options.
func Numbers(o tenure.Options) []Finding {
	window := time.Duration(float64(o.LeaseDuration) * (1 - o.MaxClockDrift) / (1 + o.MaxClockDrift))
	usable := window - o.Grace
	f := []Finding{{
		"lease", OK, fmt.Sprintf("lease %v, heartbeat every %v, request timeout %v, grace %v: work is told to stop %v after the last good heartbeat was sent",
			o.LeaseDuration, o.HeartbeatPeriod, o.RequestTimeout, o.Grace, shown(usable)), "",
	}}
	// The last heartbeat was good; the next one hangs, and so may its repetition.
	spare := usable - o.HeartbeatPeriod - 2*o.RequestTimeout
	level, advice := OK, ""
	if spare < o.HeartbeatPeriod {
		level, advice = Warn, "a longer lease, or a shorter heartbeat, leaves time for one more"
	}
	return append(f,
		Finding{"lease", level, fmt.Sprintf("the store may be away for %v before the lease is lost", shown(spare)), advice},
		Finding{"lease", OK, fmt.Sprintf("a crashed holder's lock is free %v after its last heartbeat was seen", o.LeaseDuration), ""},
	)
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

// judge compares the latency of writes with the request timeout.
func judge(l latency, o tenure.Options) Finding {
	f := Finding{Check: "latency", Level: OK, Finding: fmt.Sprintf("writes take %v; the request timeout is %v", l, o.RequestTimeout)}
	// The timeout is a tenth of the lease, and should be four times the slowest.
	fits := max(time.Second, (40*l.most).Round(time.Second)+time.Second)
	switch {
	case l.median > o.RequestTimeout:
		f.Level = Bad
		f.Advice = fmt.Sprintf("most heartbeats would fail: this store wants --lease %v or more", fits)
	case l.most > o.RequestTimeout/4:
		f.Level = Warn
		f.Advice = fmt.Sprintf("a slow day would cost leases: this store wants --lease %v or more", fits)
	}
	return f
}

// members tells how many of the servers that vote may be lost.
func members(voting int, what string) Finding {
	f := Finding{"members", OK, counted(voting, what), ""}
	switch {
	case voting == 1:
		f.Level, f.Advice = Warn, "if its machine is lost so are the locks and their tokens: run three"
	case voting%2 == 0:
		f.Advice = "an even number stands no more losses than one fewer"
	}
	return f
}

// near says that a host is this machine.
func near(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

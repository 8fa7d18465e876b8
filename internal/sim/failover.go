// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "time"

// Failed is what a failover was like.
type Failed struct {
	After time.Duration // from the crash of the holder to the grant of its successor
	Wait  time.Duration // for how long the contenders had been waiting when it crashed
	Reads float64       // of each contender, per second, until the crash
	Sent  int           // requests of all contenders from the crash to the grant
}

// Failover lets the first process hold, the others wait, the first crash at a
// random moment, and another take over. Nothing else fails.
func Failover(src Source, cfg Config) (Failed, error) {
	l := newLock(src, cfg)
	l.final = true // nobody tries only, or gives up
	l.after(0, l.procs[0].acquire)
	for _, p := range l.procs[1:] {
		l.after(l.t.Lease+l.upTo(l.t.Heartbeat), p.acquire)
	}
	begin := 2 * l.t.Lease
	l.run(func() bool { return l.now >= begin })
	reads := l.Reads
	crash := begin + 2*l.t.Lease + l.upTo(l.t.Lease) + l.upTo(l.t.Heartbeat)
	l.after(crash-l.now, func() { l.procs[0].crash() })
	l.run(func() bool { return l.now >= crash && !l.procs[0].up })
	f := Failed{Wait: crash - begin}
	f.Reads = float64(l.Reads-reads) / f.Wait.Seconds() / float64(len(l.procs)-1)
	sent := l.Reads + l.Writes
	l.run(func() bool { return l.last > 1 || l.now > crash+10*l.t.Lease })
	f.After, f.Sent = l.now-crash, l.Reads+l.Writes-sent
	return f, l.failure()
}

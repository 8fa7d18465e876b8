// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

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
	w := newWorld(src, cfg)
	w.final = true // nobody tries only, or gives up
	w.after(0, w.procs[0].acquire)
	for _, p := range w.procs[1:] {
		w.after(w.t.Lease+w.upTo(w.t.Heartbeat), p.acquire)
	}
	begin := 2 * w.t.Lease
	w.run(func() bool { return w.now >= begin })
	reads := w.Reads
	crash := begin + 2*w.t.Lease + w.upTo(w.t.Lease) + w.upTo(w.t.Heartbeat)
	w.after(crash-w.now, func() { w.crash(w.procs[0]) })
	w.run(func() bool { return w.now >= crash && !w.procs[0].up })
	f := Failed{Wait: crash - begin}
	f.Reads = float64(w.Reads-reads) / f.Wait.Seconds() / float64(len(w.procs)-1)
	sent := w.Reads + w.Writes
	w.run(func() bool { return w.last > 1 || w.now > crash+10*w.t.Lease })
	f.After, f.Sent = w.now-crash, w.Reads+w.Writes-sent
	return f, w.failure()
}

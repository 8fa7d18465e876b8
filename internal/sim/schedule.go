// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// Tight returns a timing with hardly any grace, so that what makes a lease a
// little too long makes two holders.
func Tight() protocol.Timing {
	return protocol.Timing{Grace: time.Millisecond}.WithDefaults()
}

// drawTiming draws what differs between programs: a grace, a bound on progress or on stopping,
// heartbeats that the program sends, and looks that are rare.
func drawTiming(src Source) protocol.Timing {
	t := Tight()
	switch src.Intn(4) {
	case 1:
		t.Grace = t.Lease / 8
	case 2:
		t.Progress = t.Lease / 2
	case 3:
		t.StopTimeout = t.Lease / 4
	}
	if src.Intn(8) == 7 {
		t.Manual = true
	}
	if src.Intn(8) == 7 {
		t.Refresh = time.Hour
	}
	return t
}

// What a schedule has at least.
const (
	minEvents    = 200
	minProcesses = 3
)

// Schedule draws a world with faults, of at least 3 processes and 200 events. One of eight
// has clients of a lock service, another one guardians, and a third one many requests for
// locks under sessions.
func Schedule(src Source) Config {
	t := drawTiming(src)
	c := Config{
		Timing: t, History: [...]int{100, 5, 2, 1}[src.Intn(4)], Processes: minProcesses + src.Intn(3), Locks: 1 + src.Intn(8)/7, Length: time.Duration(1+src.Intn(6)) * t.Lease, Kept: t.Lease,
		Mixed: src.Intn(4) == 3, Unless: src.Intn(2) == 1, Twice: src.Intn(4) == 3, Deletions: src.Intn(4) == 3, Observers: src.Intn(2) == 1,
		Events: minEvents, Faults: true, Rough: src.Intn(8) == 7, Requests: src.Intn(4) != 0, Sessions: src.Intn(2) == 1,
	}
	ghosts := src.Intn(32)
	c.Trying, c.Doubled = ghosts&2 > 0, ghosts&1 > 0
	switch {
	case ghosts >= 28:
		c.serve(src)
	case ghosts >= 24:
		c.Guarded = true
	case ghosts >= 20:
		c.Sessions, c.Requests, c.Length = true, true, 12*t.Lease
	}
	return c
}

// serve draws clients and replicas into a schedule, with fewer other processes.
func (c *Config) serve(src Source) {
	c.Processes, c.Replicas, c.Clients = 1+src.Intn(2), 2+src.Intn(2), 2+src.Intn(3)
}

// Served has a schedule with clients, whatever was drawn.
func (c *Config) Served() {
	if c.Clients == 0 {
		c.Guarded = false
		c.Processes, c.Replicas, c.Clients = 1, 2, 3
	}
}

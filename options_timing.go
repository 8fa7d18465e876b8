// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"cmp"
	"strings"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// Timing are the durations of one lock, or of one session, where they are not to be those
// of the client. The fields are as in [Options]. If all are zero, the client's count. If
// any is set, none of the client's does but the lease duration: what is zero follows from
// the lease duration, as in Options. So the lease duration alone is enough.
//
// [Options.MaxClockDrift] and [Options.Heartbeat] are always the client's.
type Timing struct {
	LeaseDuration   time.Duration
	HeartbeatPeriod time.Duration
	RefreshPeriod   time.Duration
	Grace           time.Duration
	RequestTimeout  time.Duration
	StopTimeout     time.Duration
	ProgressTimeout time.Duration
}

// of returns the timing of a lock of a client that has the other one.
func (t Timing) of(client protocol.Timing) (protocol.Timing, error) {
	if t == (Timing{}) {
		return client, nil
	}
	p := protocol.Timing{
		Lease: cmp.Or(t.LeaseDuration, client.Lease), Heartbeat: t.HeartbeatPeriod, Refresh: t.RefreshPeriod,
		Grace: t.Grace, RequestTimeout: t.RequestTimeout, StopTimeout: t.StopTimeout,
		Progress: t.ProgressTimeout, Manual: client.Manual, Drift: client.Drift,
	}.WithDefaults()
	if err := p.Validate(); err != nil {
		return client, invalid("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return p, nil
}

// napOf is for how long the timers of a lease may sleep: a suspend, or a step of the wall
// clock, is noticed within a fraction of the grace.
func napOf(t protocol.Timing) time.Duration {
	return max(min(time.Second, t.Grace/4), time.Millisecond)
}

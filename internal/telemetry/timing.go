// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Timing has the durations of a client to which its metrics are compared.
type Timing struct {
	Lease, Grace time.Duration
	// Deadline is how long after a heartbeat was sent its holder may act.
	Deadline time.Duration
}

// TimingOf returns the timing of a client with the options, which may be nil.
func TimingOf(o *tenure.Options) Timing {
	if o == nil {
		o = new(tenure.Options)
	}
	drift := o.MaxClockDrift
	if _, raw := clock.Machine(clock.Options{}); raw && o.Clock == nil && drift == 0 {
		drift = protocol.RawDrift // unless other lock clients share the store, which is not known here
	}
	t := protocol.Timing{Lease: o.LeaseDuration, Grace: o.Grace, Drift: drift}.WithDefaults()
	return Timing{t.Lease, t.Grace, t.Usable()}
}

// Buckets are the upper bounds of histograms of requests, in seconds: those of the lock
// service's metrics.
func Buckets() []float64 {
	return []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
}

// WaitBuckets are the upper bounds of histograms of waits for a lock, in seconds: from one
// request to a day.
func WaitBuckets() []float64 {
	return []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 15, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600}
}

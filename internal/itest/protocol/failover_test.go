// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/sim"
)

// TestFailover measures in virtual time how long after the crash of a holder
// the lock is held again: the lease, and a little for seeing the last beat late.
func TestFailover(t *testing.T) {
	const lease = 15 * time.Second
	for _, tt := range []struct {
		name       string
		refresh    time.Duration
		contenders int
		drift      float64
		p99        time.Duration
		reads      float64 // per second and contender, at most
	}{
		{"one contender", time.Second, 1, 1e-4, lease + 200*time.Millisecond, 1 + 1.0/3},
		{"ten contenders", time.Second, 10, 1e-4, lease + 200*time.Millisecond, 1 + 1.0/3},
		{"clocks that slew", time.Second, 1, 0.09, lease*110/100 + time.Second, 1 + 2.0/3},
		{"looks every 3 s", 3 * time.Second, 1, 1e-4, lease + 200*time.Millisecond, 2.0 / 3},
		{"looks once an hour", time.Hour, 1, 1e-4, 2 * lease, 0.1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var fs []sim.Failed
			for seed := range uint64(300) {
				f, err := sim.Failover(sim.Seed(seed), sim.Config{
					Timing: protocol.Timing{Refresh: tt.refresh}.WithDefaults(), Processes: 1 + tt.contenders,
					Latency: 5 * time.Millisecond, Skew: tt.drift,
				})
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				fs = append(fs, f)
			}
			reads, sent := 0.0, 0.0
			for _, f := range fs {
				reads += f.Reads / float64(len(fs))
				sent += float64(f.Sent) / float64(len(fs)*tt.contenders)
			}
			slices.SortFunc(fs, func(a, b sim.Failed) int { return cmp.Compare(a.After, b.After) })
			at := func(p int) time.Duration { return fs[(len(fs)-1)*p/100].After.Round(time.Millisecond) }
			t.Logf("p50 %v, p90 %v, p99 %v, max %v; a waiter reads %.2f times a second; from crash to grant it sends %.0f requests",
				at(50), at(90), at(99), at(100), reads, sent)
			if at(99) > tt.p99 {
				t.Errorf("p99 of failover is %v, want at most %v", at(99), tt.p99)
			}
			if reads > tt.reads {
				t.Errorf("a waiter reads %.2f times a second, want at most %.2f", reads, tt.reads)
			}
		})
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers

import (
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
)

// The periods of the Kinesis Client Library 3 (LeaseRenewer, WorkerMetricStatsReporter,
// LeaseDiscoverer), in a worker that has so many leases: each lease is written in a
// third of the failover time, the worker's metrics each 30 s, and its leases are
// found by a query of an index. The scans of the leader are left out.
const (
	KCLEpsilon = 25 * time.Millisecond
	KCLMetrics = 30 * time.Second
)

// KCL is what the Kinesis Client Library sends in a second, by its periods: it is
// not run.
func KCL(leases int, failover time.Duration) gate.Usage {
	renewals := float64(leases) / (failover/3 - KCLEpsilon).Seconds()
	metrics := 1 / KCLMetrics.Seconds()
	queries := 1 / (failover - KCLEpsilon).Seconds()
	return gate.Usage{
		Requests:    renewals + metrics + queries,
		ByOperation: map[string]float64{"UpdateItem": renewals, "PutItem": metrics, "Query": queries},
		WriteUnits:  renewals + metrics,
		ReadUnits:   queries / 2, // at least: eventually consistent, of keys alone
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers

import (
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// Timing is the timing of a lock client, the same for all clients that are compared.
type Timing struct{ Lease, Heartbeat, Refresh time.Duration }

func (t Timing) String() string {
	return fmt.Sprintf("lease %v, heartbeat %v, refresh %v", t.Lease, t.Heartbeat, t.Refresh)
}

// Tenure opens a client of Tenure, in the calling process. Options may be nil.
func (t Timing) Tenure(db *dynamodb.Client, table string, options *dynamostore.Options) (*tenure.Client, error) {
	store, err := dynamostore.New(db, table, options)
	if err != nil {
		return nil, err
	}
	return tenure.New(store, t.Options())
}

// Options returns the options of a client of Tenure.
func (t Timing) Options() *tenure.Options {
	return &tenure.Options{LeaseDuration: t.Lease, HeartbeatPeriod: t.Heartbeat, RefreshPeriod: t.Refresh}
}

// Open is the request to open a client.
func (t Timing) Open(endpoint, table string) wire.Request {
	return wire.Request{
		Command: wire.Open, Endpoint: endpoint, Table: table,
		LeaseMs: Milliseconds(t.Lease), HeartbeatMs: Milliseconds(t.Heartbeat), RefreshMs: Milliseconds(t.Refresh),
	}
}

// Milliseconds is a time as requests have it.
func Milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers

import (
	"fmt"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Timing is that of a lock client, the same for all of them where they are compared.
type Timing struct{ Lease, Heartbeat, Refresh time.Duration }

func (t Timing) String() string {
	return fmt.Sprintf("lease %v, heartbeat %v, refresh %v", t.Lease, t.Heartbeat, t.Refresh)
}

// Open is the request to open a client.
func (t Timing) Open(endpoint, table string) wire.Request {
	return wire.Request{
		Command: wire.Open, Endpoint: endpoint, Region: dynamo.Region, Table: table,
		LeaseMs: Milliseconds(t.Lease), HeartbeatMs: Milliseconds(t.Heartbeat), RefreshMs: Milliseconds(t.Refresh),
	}
}

// Milliseconds is a time as requests have it.
func Milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

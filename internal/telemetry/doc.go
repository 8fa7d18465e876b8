// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package telemetry makes numbers of what a client and a worker tell by their events, and
// of what the records of locks show. Modules tenureprom and tenureotel hand these numbers
// to metrics systems; what a number means is written here once.
//
// It decides nothing about leases: events are late when a callback is slow, and may be
// dropped. So each state heals by itself. A lease whose heartbeats are not told of any
// more counts as held until its deadline, and no longer.
package telemetry

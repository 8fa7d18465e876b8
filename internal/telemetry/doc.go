// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package telemetry computes metrics from the events of a client and a worker, and from
// the records of locks. Modules tenureprom and tenureotel export them to metrics systems;
// this package defines once what a metric means.
//
// It decides nothing about leases: events are late when a callback is slow, and may be
// dropped. So each state corrects itself. A lease without further heartbeat events
// counts as held until its deadline, and no longer.
package telemetry

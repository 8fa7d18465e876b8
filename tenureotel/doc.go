// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenureotel gives OpenTelemetry the metrics and spans of leases: what this program
// holds, how near its heartbeats come to the deadline, how its terms end.
//
//	telemetry, err := tenureotel.New(&tenureotel.Options{Locks: []string{"scheduler"}})
//	options := tenure.Options{LeaseDuration: 15 * time.Second}
//	telemetry.Attach(&options)
//	client, err := tenure.New(store, &options)
//
// It uses the API of OpenTelemetry alone: what becomes of the numbers is up to the providers
// that the program sets.
//
// # Metrics
//
// No semantic convention of OpenTelemetry names locks, leases or leaders. So the names begin
// with tenure. Durations are in seconds.
//
//	tenure.held                  leases whose deadline has not passed, by lock
//	tenure.token                 the fencing token of a lease, by lock
//	tenure.remaining             s until the deadline, by lock
//	tenure.slack                 s until the deadline less the grace, by lock
//	tenure.busy_share            the busy share of the last whole period, by lock
//	tenure.acquired              terms that began, by lock
//	tenure.acquire.wait          s from the call of an acquire, by lock
//	tenure.ended                 terms that ended, by lock and tenure.end
//	tenure.heartbeat.duration    s that the store took to confirm a heartbeat
//	tenure.heartbeat.late        heartbeats confirmed with less than the grace left, by lock
//	tenure.jeopardy              times at which heartbeats began to fail, by lock
//	tenure.stop_timeout          terms whose work did not stop in time, by lock
//	tenure.store_error           requests of acquires that failed, by lock
//	tenure.session.open          sessions whose deadline has not passed
//	tenure.session.ended         sessions that ended, by tenure.end
//	tenure.events.dropped        events that were dropped because a callback was slow
//	tenure.shard.held            partitions that a worker has, by tenure.group
//	tenure.shard.planned         partitions that a worker is to have, by tenure.group
//	tenure.shard.event           what happened to a worker, by tenure.group and tenure.kind
//
// The attribute tenure.lock is a lock's name if it is in the options, and "other" for all
// others together; [Options.Label] gives other ones. Heartbeats of a session have none.
//
// # Spans
//
// A span "tenure acquire" reaches from the call of an acquire to the grant, and a span
// "tenure hold" from the grant to the end, with an event for jeopardy, safe, stopping and
// lost. It has the name of the lock, the token, and how it ended, and the status Error if the
// lease was lost. A span is made when it has ended, but for "tenure hold", which begins with
// the grant: a process that is killed sends none. Spans are roots: the work's own spans belong
// to the program. Use [Options.NoSpans] where terms are many and short.
//
// What each event means is the same as in package tenureprom.
package tenureotel

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenureprom exports metrics of leases to Prometheus: the locks that this program
// holds, how near its heartbeats come to the deadline, how its terms end; and, for a
// program that holds no locks, the records of locks.
//
//	metrics := tenureprom.New(&tenureprom.Options{Elections: []string{"scheduler"}})
//	prometheus.MustRegister(metrics)
//
//	options := tenure.Options{LeaseDuration: 15 * time.Second}
//	metrics.Attach(&options)
//	client, err := tenure.New(store, &options)
//
// # Metrics of holders
//
// [Metrics] is fed by [tenure.Options.OnEvent], and by the events and numbers of workers of
// package shard. leader_election_master_status is the metric of Kubernetes' client-go and
// controller-runtime, by its name and meaning: 1 while this program leads, 0 while it does
// not. Its sum over all programs is 1, 0 between two leaders, and never 2.
//
// A lease counts as held until its deadline, and no longer, whatever events were dropped.
//
// # What records show
//
// [Locks] polls locks, by their names and prefixes, for programs that hold none of them:
// tenure exporter is such a program. Its metrics begin with tenure_lock_. While the store
// gives no answer they are absent, and tenure_store_up is 0: so an unreachable store
// never looks like a lock without a holder.
//
// # Labels
//
// The label of a lock is its name if it is listed in the options, and "other" for all
// others together. [Options.Label] gives other labels. So the number of series does not grow
// with the number of locks. Owner names are no labels, because each process has its own.
//
// Labels for all series, such as the store, come from [prometheus.WrapRegistererWith].
package tenureprom

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command chaos has real processes work under locks on real engines, and a nemesis do to
// them what happens to programs, and judges what they did. It needs Linux, and the engines
// that it runs on: scripts/engines install NAME. What the processes do is the workload:
//
//	go run ./test/chaos -duration 10m -engines sqlite,etcd,postgres -seed 1 -report chaos.html
//	go run ./test/chaos -workload readers -duration 10m
//	go run ./test/chaos -workload once -duration 10m
//	go run ./test/chaos -workload service -duration 10m
//
// Replicas contend for one lock, read and write one register, or run jobs once for each
// occasion; clients in three languages hold a lock by the lock service. They are killed, stopped,
// suspended, cut off from the engine, started in time namespaces; their clocks are moved; the
// engine is stopped, locked, or killed and started again. What is
// judged is told in docs/evidence/README.md; -log keeps all that was said and done.
//
//	go run ./test/chaos -workload shards
//
// measures a group of package shard under faults. Package trial has the judge of them all, and
// package replica the process of all but the service: this program starts itself.
package main

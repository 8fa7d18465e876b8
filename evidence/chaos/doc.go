// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command chaos has real processes contend for one lock on real engines, and a
// nemesis do to them what happens to programs: they are killed, stopped,
// suspended, cut off from the engine, started in time namespaces; their clocks
// are moved; the engine is stopped, locked, or killed and started again. It
// judges what they did, and writes a page with the timeline of each round. It
// needs Linux, and the engines that it runs on: scripts/engines install NAME.
//
//	go run ./evidence/chaos -duration 10m -engines sqlite,etcd,postgres -seed 1 -report chaos.html
//
// How to read the page, and what is judged, is told in docs/evidence/README.md.
//
// Package replica is the program that it starts several times over; to that end
// it starts itself.
package main

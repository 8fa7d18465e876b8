// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command service has programs in Python, TypeScript and Java hold one lock in turn, by a
// lock service of three replicas, while a nemesis does to all of them what happens to
// programs and networks: clients and replicas are killed, stopped and started again; the
// network is cut; the store is slow; a proxy before each client loses, delays, doubles,
// replays and cuts calls, and answers in the place of the service. The holder writes to a
// resource, once behind a fence and once without. What the clients, the resource and the
// service's own history say of it is judged.
//
//	go run ./evidence/service -duration 10m -seed 1
//
// Whether it can see what is wrong is shown by tests: one rule of a client, or of the
// server, is broken at a time, and a scene of faults that brings it to light must do so.
// See mistakes_test.go, and the mutants of internal/sim whose finder is TestScenes.
package main

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

// variant is a wrong variant of a client or of the server, and what shows it.
type variant struct {
	name string
	// client is the rule that a client breaks (see peers/service/python/mistakes.py), server
	// the one that a replica does, or mutant the file of internal/sim/testdata/mutants, or of
	// this folder's, that breaks it in the machines on which the replicas stand.
	client, server, mutant string
	scene, seen            string
}

// variants are the wrong variants of the service. TestMistakes has each be made once, in its scene, and be seen.
var variants = []variant{
	{name: "a lease is counted from the grant", client: "from-grant", scene: noBeatScene, seen: "ended"},
	{name: "a lease is counted from the answer", client: "from-answer", scene: repeatScene, seen: "ended"},
	{name: "a lease is counted from a repeated sending", client: "from-repeat", scene: repeatScene, seen: "ended"},
	{name: "a repeated acquire renews", server: acquireRenews, scene: deadScene, seen: "the lock was"},
	{name: "a heartbeat is answered from memory", server: fromMemory, scene: replicasScene, seen: "ended"},
	{
		name: "a heartbeat counts whatever beat it follows", mutant: "relay-any-beat", scene: deadScene, seen: "the lock was",
		// A replica that has seen the lock before knows a beat that comes back, and waits no longer for it.
	},
	{
		name: "a heartbeat counts over a released record", mutant: "relay-revives", scene: revivedScene, seen: "the lock was",
		// The simulator has it over a reserved one.
	},
	{name: "a heartbeat drops a request", mutant: "relay-drops-request", scene: stepDownScene, seen: "the lock was"},
	{
		name: "the token of a heartbeat is not compared", mutant: "relay-any-token", scene: tokenScene, seen: "want 410",
		// The simulator has a late write of the store that brings a beat back.
	},
	{name: "a GET decides", client: "get", scene: cacheScene, seen: "ended"},
	{name: "a 5xx means that nothing was done", client: "not-applied", scene: releaseScene, seen: "ended"},
	{name: "a wait outlives its connection", mutant: "wait-outlives", scene: goneScene, seen: "the lock was"},
	{name: "a lease that has expired lives again", client: "revive", scene: lateScene, seen: "token 1 of"},
}

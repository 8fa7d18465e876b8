// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package gate stands between processes and what they talk to, a store or a service: it
// makes the faults of networks, middleboxes and attackers, and counts what goes over the
// wire and what that would cost on DynamoDB.
//
// [TCP] knows bytes alone. [HTTP] knows requests: it loses, delays, doubles and repeats
// them, by chance as its [Weather] has it, or one as a [Strike] asks for.
package gate

import "time"

// Gate is what both kinds of gates can do.
type Gate interface {
	// Address is where a process finds its store.
	Address() string
	// LoseReply lets the next write through, and loses its reply: the connection
	// ends in its place.
	LoseReply()
	// BlackHole lets nothing through any more, in either direction, and ends no
	// connection.
	BlackHole()
	// SlowThenBlackHole lets the next write through, holds its reply back for d,
	// and lets nothing else through.
	SlowThenBlackHole(d time.Duration)
	// Slow has each request take d longer.
	Slow(d time.Duration)
	// Heal ends the faults, and the connections that had them.
	Heal()
	// Count is how many requests there were.
	Count() int
	// Struck is when the last of these faults hit a request, and zero before.
	Struck() time.Time
	Close()
}

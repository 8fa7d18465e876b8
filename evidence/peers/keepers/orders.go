// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package keepers holds many locks in one process of its own, which measures
// itself: with Tenure under one session, with dynamolock with a heartbeat for each.
package keepers

import (
	"fmt"
	"time"

	"github.com/tenurelock/tenure/evidence/peers"
)

// order is what a process is told to do next, in this order; it answers each
// one with Figures, one line of JSON each way.
type order struct {
	Do string `json:"do"`

	// Of open.
	Client   peers.Kind   `json:"client,omitempty"`
	Endpoint string       `json:"endpoint,omitempty"`
	Table    string       `json:"table,omitempty"`
	Timing   peers.Timing `json:"timing,omitzero"`

	Locks int           `json:"locks,omitempty"` // of acquire
	For   time.Duration `json:"for,omitempty"`   // of hold
	To    string        `json:"to,omitempty"`    // of profile: the folder
}

// What a process is told.
const (
	toOpen    = "open"    // the client, and a session; with one lock, to have all of it loaded
	toAcquire = "acquire" // so many locks
	toHold    = "hold"    // for a while
	toClose   = "close"   // the session, or the client, once each lock's work has returned
	toProfile = "profile" // writes a profile of what follows, until it ends
)

// Figures is what a process found out about itself.
type Figures struct {
	Err string `json:"error,omitempty"`

	Took float64 `json:"tookSeconds"`
	CPU  float64 `json:"cpuSeconds"` // without that of the checks themselves

	// Of open and acquire, after a garbage collection; of hold, as they are.
	Heap int64 `json:"heapBytes"`
	RSS  int64 `json:"rssBytes"`

	Goroutines int `json:"goroutines"` // the most that were seen
	Lost       int `json:"lost"`       // locks, ever

	// What the client tells, which dynamolock does not.
	Renewed        int     `json:"renewed,omitempty"`
	LeastSlack     float64 `json:"leastSlackSeconds,omitempty"`     // until the deadline, when the next heartbeat was confirmed
	LeastRemaining float64 `json:"leastRemainingSeconds,omitempty"` // until the new deadline, then
	Jeopardies     int     `json:"jeopardies,omitempty"`
	LostEvents     int     `json:"lostEvents,omitempty"`
}

// Names returns names for so many locks.
func Names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("lock-%d", i)
	}
	return names
}

// RoleName is the role of a process of keepers; [Role] plays it.
const RoleName = "keepers"

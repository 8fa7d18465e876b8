// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package gate stands between processes and their store: it makes faults, and
// counts what goes over the wire and what that would cost on DynamoDB.
package gate

import (
	"sync"
	"time"
)

// Gate is what both kinds of gates can do: [HTTP], which knows requests, and
// [TCP], which knows bytes alone.
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
	// Struck is when the last fault hit a request, and zero before.
	Struck() time.Time
	Close()
}

// fault is what a gate is set to.
type fault int

const (
	pass fault = iota
	losing
	holding // the next write's reply is to be held back
	hole
	swallowing // what is left of a reply that is lost
	losingAll  // replies, each with its connection
)

// state is what both kinds of gates keep.
type state struct {
	// changed is called, with mu held, when a fault or a delay is set. It may be nil.
	changed func()

	mu    sync.Mutex
	fault fault
	hold  time.Duration
	delay time.Duration
	count int
	hit   time.Time
}

func (s *state) set(f fault, hold time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.hold, s.hit = f, hold, time.Time{}
	s.tell()
}

// tell says that something has changed. The caller holds mu.
func (s *state) tell() {
	if s.changed != nil {
		s.changed()
	}
}

// LoseReply loses the reply to the next write: see [Gate].
func (s *state) LoseReply() { s.set(losing, 0) }

// BlackHole lets nothing through any more.
func (s *state) BlackHole() { s.set(hole, 0) }

// SlowThenBlackHole holds back the reply to the next write.
func (s *state) SlowThenBlackHole(d time.Duration) { s.set(holding, d) }

// Slow has each request take d longer.
func (s *state) Slow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
	s.tell()
}

// Count is how many requests there were.
func (s *state) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Struck is when the last fault hit a request.
func (s *state) Struck() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hit
}

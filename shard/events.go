// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"errors"
	"sync/atomic"
	"time"
)

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	// EventJoined: this worker has a place in the group, and is in its
	// membership.
	// Place is which.
	EventJoined EventKind = "joined"
	// EventLost: the session of this worker was lost, and all its partitions
	// with it. It joins again. Err is why.
	EventLost EventKind = "lost"
	// EventLeaving: this worker leaves; it will hand Count partitions over.
	EventLeaving EventKind = "leaving"
	// EventLeft: this worker has left. Count partitions were not handed over.
	EventLeft EventKind = "left"
	// EventPlan: there is a new plan, of the epoch Epoch. Count is how many
	// partitions it gives to this worker.
	EventPlan EventKind = "plan"
	// EventUnassigned: by a new plan, Count partitions have no worker, because
	// all are full, or because all leave. The plan in which that ends has an event
	// with Count 0.
	EventUnassigned EventKind = "unassigned"
	// EventAssigned: this worker has claimed a partition without an owner.
	EventAssigned EventKind = "assigned"
	// EventMovedIn: this worker has a partition that it has asked Peer for, or that
	// Peer has handed over. Took is how long that took from the first request, or
	// from when it began to wait.
	EventMovedIn EventKind = "moved_in"
	// EventMovedOut: this worker has handed a partition over, to Peer.
	EventMovedOut EventKind = "moved_out"
	// EventAdopted: this worker has claimed a partition that another one was to
	// have, and that nobody had for two leases.
	EventAdopted EventKind = "adopted"
	// EventDropped: this worker has released a partition that the group has no
	// more, or that its handler has failed on too often (Err).
	EventDropped EventKind = "dropped"
	// EventRevoked: this worker has lost one partition, and not the session. Err
	// is why.
	EventRevoked EventKind = "revoked"
	// EventHandlerEnded: the handler of a partition returned before it had to,
	// with Err or nil. It is run again after Took.
	EventHandlerEnded EventKind = "handler_ended"
	// EventMoveFailed: a partition that Peer has has not come (Err). It is tried
	// again.
	EventMoveFailed EventKind = "move_failed"
	// EventCoordinator: this worker is the coordinator of the group from now on.
	EventCoordinator EventKind = "coordinator"
	// EventResigned: this worker is the coordinator no more. Err is why, if it
	// did not mean to.
	EventResigned EventKind = "resigned"
	// EventMemberDead: the coordinator has closed the session of a dead worker,
	// so that its partitions can be claimed. Peer is its owner name.
	EventMemberDead EventKind = "member_dead"
	// EventError: something did not work, and is tried again (Err).
	EventError EventKind = "error"
)

// Event is something that happened to a worker.
type Event struct {
	Kind      EventKind
	Group     string
	Time      time.Time // wall clock, for people
	Partition string
	Token     uint64
	Peer      string // the owner name of the other worker
	Place     int
	Epoch     uint64
	Count     int
	Took      time.Duration
	Err       error

	// Missed counts the events before this one that were dropped because
	// OnEvent was too slow.
	Missed uint64
}

// eventBuffer is how many events may wait for a slow callback.
const eventBuffer = 8192

// events hands events to the user's callback, from one goroutine that lives as
// long as Run.
type events struct {
	on     func(Event)
	group  string
	queue  chan Event
	missed atomic.Uint64
	done   chan struct{}
}

func newEvents(group string, on func(Event)) *events {
	e := &events{on: on, group: group, done: make(chan struct{})}
	if on == nil {
		close(e.done)
		return e
	}
	e.queue = make(chan Event, eventBuffer)
	go func() {
		defer close(e.done)
		for ev := range e.queue {
			ev.Missed = e.missed.Swap(0)
			e.on(ev)
		}
	}()
	return e
}

func (e *events) emit(ev Event) {
	if e.queue == nil {
		return
	}
	ev.Time, ev.Group = time.Now(), e.group
	select {
	case e.queue <- ev:
	default:
		e.missed.Add(1)
	}
}

// errEventTimeout is what Run returns when close has given OnEvent up.
var errEventTimeout = errors.New("OnEvent has not returned, although the stop timeout and a lease duration have passed")

// close ends the goroutine after the events that wait. Nothing emits any more. OnEvent is
// the caller's and may never return, so close waits for at most that long, and then
// returns an error.
func (e *events) close(most time.Duration) error {
	if e.queue != nil {
		close(e.queue)
	}
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-e.done:
		return nil
	case <-late.C:
		return errEventTimeout
	}
}

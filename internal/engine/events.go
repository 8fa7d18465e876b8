// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// The kinds of events, which the API documents under the same names.
const (
	EventWaiting      = "waiting"
	EventAcquired     = "acquired"
	EventRenewed      = "renewed"
	EventJeopardy     = "jeopardy"
	EventSafe         = "safe"
	EventStopping     = "stopping"
	EventLost         = "lost"
	EventStopTimeout  = "stop_timeout"
	EventOpened       = "opened"
	EventClosed       = "closed"
	EventBusy         = "busy"
	EventReleased     = "released"
	EventEnded        = "ended"
	EventStoreError   = "store_error"
	EventStoreAnswers = "store_answers"
	EventDrift        = "clock_drift"
)

// Event is an event of the client. The API has an event with the same fields, and documents
// them.
type Event struct {
	Kind, Lock, Session, Owner  string
	Token                       uint64
	Own                         bool
	Time                        time.Time
	Took, Remaining, Held, Busy time.Duration
	Share                       float64
	Grace                       time.Duration
	End                         string
	Err                         error
	Missed                      uint64
}

// eventBuffer is how many events may wait for a slow callback. Further ones are
// dropped and counted: a heartbeat never waits for a callback.
const eventBuffer = 4096

// events delivers events, in one goroutine.
type events struct {
	on     func(Event)
	queue  chan Event
	missed atomic.Uint64
	quit   chan struct{}
	done   chan struct{}
	away   atomic.Pointer[time.Time] // since when the store has given no answer; nil: it answers
}

func newEvents(on func(Event)) *events {
	e := &events{on: on, quit: make(chan struct{}), done: make(chan struct{})}
	if on == nil {
		close(e.done)
		return e
	}
	e.queue = make(chan Event, eventBuffer)
	go e.run()
	return e
}

func (e *events) emit(ev Event) {
	if e.queue == nil {
		return
	}
	ev.Time = time.Now()
	switch ev.Kind {
	case EventStoreError:
		since := ev.Time
		e.away.CompareAndSwap(nil, &since)
	case EventAcquired, EventRenewed, EventWaiting, EventOpened:
		e.answered()
	}
	select {
	case e.queue <- ev:
	default:
		e.missed.Add(1)
	}
}

// answered notes that the store has answered.
func (e *events) answered() {
	if e.away.Load() == nil {
		return
	}
	if since := e.away.Swap(nil); since != nil {
		e.emit(Event{Kind: EventStoreAnswers, Took: time.Since(*since)})
	}
}

// close ends the goroutine after the queued events, and then closes done. Later events
// are dropped.
func (e *events) close() { close(e.quit) }

func (e *events) run() {
	defer close(e.done)
	for {
		select {
		case ev := <-e.queue:
			e.hand(ev)
		case <-e.quit:
			for len(e.queue) > 0 {
				e.hand(<-e.queue)
			}
			return
		}
	}
}

func (e *events) hand(ev Event) {
	ev.Missed = e.missed.Swap(0)
	e.on(ev)
}

// storeFailed emits the error of a call, if that is worth an event at once.
func (e *events) storeFailed(lock string, token uint64, err error) {
	if newsworthy(err) {
		e.emit(Event{Kind: EventStoreError, Lock: lock, Token: token, Err: err})
	}
}

// drifts reports holders with another bound for clock drift.
type drifts struct {
	own  float64
	emit func(Event)

	mu       sync.Mutex
	reported map[string]struct{} // the owners
}

// maxDriftsReported bounds the reported owners. A wrong setting is obvious long
// before.
const maxDriftsReported = 1000

// differs reports the holder that a record shows, once for each owner. It ignores a holder with
// RawDrift if this client has DefaultDrift: both are defaults.
func (d *drifts) differs(rec driver.Record) {
	if rec.Drift == protocol.RawDrift && d.own == protocol.DefaultDrift {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, told := d.reported[rec.Owner]; told || len(d.reported) >= maxDriftsReported {
		return
	}
	d.reported[rec.Owner] = struct{}{}
	ev := Event{
		Kind: EventDrift, Lock: rec.Key, Session: rec.Session, Owner: rec.Owner, Token: rec.Token,
		Err: fmt.Errorf("all processes must have the same MaxClockDrift, or the default: the holder has %v, this client %v", rec.Drift, d.own),
	}
	if id, ok := strings.CutPrefix(rec.Key, driver.SessionPrefix); ok {
		ev.Lock, ev.Session, ev.Token = "", id, 0
	}
	d.emit(ev)
}

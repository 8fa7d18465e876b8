// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
)

// EndUnreleased says that a term ended without a release that its holder knows of: the
// store gave no answer, and the record expires by itself. The other ends are those of
// [tenure.Term.End].
const EndUnreleased = "unreleased"

// Ends are the ends of a term that its holder can report.
var Ends = []string{
	tenure.EndReleased, tenure.EndSteppedDown, tenure.EndHandedOver, tenure.EndExpired, tenure.EndRevoked,
	EndSuperseded, tenure.EndStalled, tenure.EndStopTimeout, EndUnreleased,
}

// EndSuperseded says that the holder found another holder's record, or none, although it
// counted on its lease.
const EndSuperseded = "superseded"

// Account is the state of a client's leases, according to its events. Its methods may be
// called concurrently.
type Account struct {
	mu       sync.Mutex
	leases   map[string]*lease // by lock: the one with the highest token
	sessions map[string]*lease // by id
	missed   uint64
}

// lease is a lease, or a session, that has begun.
type lease struct {
	session  string // the session that keeps it alive, "" if it has its own lease
	token    uint64
	since    time.Time
	deadline time.Time
	grace    time.Duration
	stop     string // why it must end, "" until an event says so
	lost     bool   // it has ended, and its end was counted, although its work may go on
	share    float64
	busy     bool // share is known
}

// NewAccount returns an account of a client.
func NewAccount() *Account {
	return &Account{leases: map[string]*lease{}, sessions: map[string]*lease{}}
}

// Change is what an event adds to the counters.
type Change struct {
	// End is how a term or a session ended; empty if none did. Each ends once.
	End string
	// Late says that a heartbeat was confirmed when less than the grace of its lease
	// was left before the deadline that counted until then.
	Late bool
	// Latency says that Took of the event is how long the store took for a
	// heartbeat.
	Latency bool
}

// Take notes an event.
func (a *Account) Take(e tenure.Event) Change {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.missed += e.Missed
	deadline := e.Time.Add(e.Remaining)
	switch e.Kind {
	case tenure.EventAcquired:
		if l := a.leases[e.Lock]; l != nil && l.token >= e.Token {
			return Change{} // a late event
		}
		a.leases[e.Lock] = &lease{session: e.Session, token: e.Token, since: e.Time, deadline: deadline, grace: e.Grace}
		return Change{}
	case tenure.EventOpened:
		a.sessions[e.Session] = &lease{since: e.Time, deadline: deadline, grace: e.Grace}
		return Change{}
	}
	l := a.of(e)
	if l == nil {
		return Change{}
	}
	switch e.Kind {
	case tenure.EventRenewed:
		if e.Lock != "" && e.Session != "" {
			break // a write of the lock's record: the session reports its own heartbeats
		}
		late := l.deadline.Sub(e.Time) < l.grace && l.stop == ""
		l.deadline = deadline
		return Change{Late: late, Latency: true}
	case tenure.EventSafe, tenure.EventJeopardy:
		if e.Lock == "" || e.Session == "" {
			l.deadline = deadline
		}
	case tenure.EventBusy:
		l.share, l.busy = e.Share, true
	case tenure.EventStopping:
		if l.stop == "" {
			l.stop = endOf(e.Err, tenure.EndReleased)
		}
	case tenure.EventLost, tenure.EventStopTimeout:
		if !l.lost {
			l.lost = true
			return Change{End: endOf(e.Err, EndSuperseded)}
		}
	case tenure.EventReleased, tenure.EventClosed, tenure.EventEnded:
		a.drop(e, l)
		switch {
		case l.lost:
			return Change{}
		case e.Kind == tenure.EventEnded:
			return Change{End: endOf(e.Err, EndUnreleased)}
		case e.End != "":
			return Change{End: e.End}
		case l.stop != "":
			return Change{End: l.stop}
		}
		return Change{End: tenure.EndReleased}
	}
	return Change{}
}

// of returns the lease, or the session, that the event is about; nil if it is not known.
func (a *Account) of(e tenure.Event) *lease {
	if e.Lock == "" {
		return a.sessions[e.Session]
	}
	if l := a.leases[e.Lock]; l != nil && l.token == e.Token {
		return l
	}
	return nil
}

func (a *Account) drop(e tenure.Event, l *lease) {
	switch {
	case e.Lock == "":
		delete(a.sessions, e.Session)
	case a.leases[e.Lock] == l:
		delete(a.leases, e.Lock)
	}
}

// endOf names the end that an error shows, or returns other.
func endOf(err error, other string) string {
	var request *tenure.StepDownError
	var taken *tenure.SupersededError
	switch {
	case errors.As(err, &request) && (request.To != "" || request.ToLabel != ""):
		return tenure.EndHandedOver
	case errors.Is(err, tenure.ErrSteppedDown):
		return tenure.EndSteppedDown
	case errors.As(err, &taken) && taken.Request != nil:
		return tenure.EndRevoked
	case errors.Is(err, tenure.ErrSuperseded):
		return EndSuperseded
	case errors.Is(err, tenure.ErrStalled):
		return tenure.EndStalled
	case errors.Is(err, tenure.ErrExpired):
		return tenure.EndExpired
	case errors.Is(err, tenure.ErrStopTimeout):
		return tenure.EndStopTimeout
	}
	return other
}

// Held is a lease that a client counts on.
type Held struct {
	Lock  string
	Token uint64
	Since time.Time
	// Remaining is what is left until the deadline.
	Remaining time.Duration
	// Slack is that less the grace.
	Slack time.Duration
	// Share is the busy share of the last whole period; Busy says that it is known.
	Share float64
	Busy  bool
}

// forgotten is how long after its deadline a lease without an end event is dropped: the
// event was dropped, or the lease belongs to a client of the lock service.
const forgotten = 24 * time.Hour

// Held returns the leases whose deadline has not passed at the given time, and that were
// not lost, in no order.
func (a *Account) Held(now time.Time) []Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []Held
	for lock, l := range a.leases {
		deadline, grace := l.deadline, l.grace
		if s := a.sessions[l.session]; s != nil {
			if s.lost {
				continue
			}
			deadline, grace = s.deadline, s.grace
		}
		if now.Sub(deadline) > forgotten {
			delete(a.leases, lock)
		}
		if left := deadline.Sub(now); left > 0 && !l.lost {
			list = append(list, Held{lock, l.token, l.since, left, left - grace, l.share, l.busy})
		}
	}
	return list
}

// Sessions returns how many sessions are open: those whose deadline has not passed, and that
// were not lost.
func (a *Account) Sessions(now time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, s := range a.sessions {
		if !s.lost && s.deadline.After(now) {
			n++
		}
	}
	return n
}

// Missed returns how many events were dropped.
func (a *Account) Missed() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.missed
}

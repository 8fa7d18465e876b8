// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// sessionViews is what a client has seen of sessions, those of other processes
// and its own, by their ids. It is guarded by the mutex of what the client has seen.
type sessionViews struct {
	t        protocol.Timing
	env      protocol.Env
	liveness *livenessCache
	known    map[string]*protocol.Sight
	// observing are the observers at work.
	observing map[*protocol.Observer]*run
}

// maxObserved bounds the sessions, and the locks, of which a client remembers all that it
// saw when nobody waits for them. Of up to maxMarks more it remembers since when they have
// shown no life.
const maxObserved = 10_000

// newSessionViews returns those of a client that has seen nothing yet.
func newSessionViews(t protocol.Timing, env protocol.Env, liveness *livenessCache) *sessionViews {
	return &sessionViews{
		t: t, env: env, liveness: liveness,
		known: map[string]*protocol.Sight{}, observing: map[*protocol.Observer]*run{},
	}
}

// AddObserver notes an observer at work: Wake steps it.
func (s *sessionViews) AddObserver(o *protocol.Observer, run *run) { s.observing[o] = run }

// RemoveObserver forgets an observer.
func (s *sessionViews) RemoveObserver(o *protocol.Observer) { delete(s.observing, o) }

// Of returns the sight of a session, the same for all callers.
func (s *sessionViews) Of(id string) *protocol.Sight {
	u := s.known[id]
	if u == nil {
		if len(s.known) >= maxObserved {
			s.thin()
		}
		u = protocol.NewSight(s.t, s.env)
		s.known[id] = u
	}
	return u
}

// thin forgets the sessions that nobody has asked about for the longest time. The
// next caller that asks about one has it read anew. If the session shows the same
// sign of life then, it has shown it since it was first seen.
func (s *sessionViews) thin() {
	looked := func(id string) time.Duration {
		at, _ := s.known[id].Known()
		return at
	}
	ids := slices.SortedFunc(maps.Keys(s.known), func(a, b string) int { return cmp.Compare(looked(a), looked(b)) })
	for _, id := range ids[:len(ids)/2] {
		s.liveness.Note(s.known[id])
		delete(s.known, id)
	}
}

// Wake steps another observer of the client, which has waited for a read of a
// session.
func (s *sessionViews) Wake(m protocol.Machine) {
	if o, ok := m.(*protocol.Observer); ok && s.observing[o] != nil {
		s.observing[o].act(m.Step)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/shell"
)

// sights is what a client has seen of sessions, those of other processes
// and its own, by their ids. It is guarded by the client's seeing.
type sights struct {
	t      protocol.Timing
	env    protocol.Env
	recall *recall
	known  map[string]*protocol.Sight
	// observing are the observers at work.
	observing map[*protocol.Observer]*shell.Run
}

// of returns the sight of a session, the same for all callers.
func (s *sights) of(id string) *protocol.Sight {
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
func (s *sights) thin() {
	looked := func(id string) time.Duration {
		at, _ := s.known[id].Known()
		return at
	}
	ids := slices.SortedFunc(maps.Keys(s.known), func(a, b string) int { return cmp.Compare(looked(a), looked(b)) })
	for _, id := range ids[:len(ids)/2] {
		s.recall.note(s.known[id])
		delete(s.known, id)
	}
}

// wake steps another observer of the client, which has waited for a read of a
// session.
func (s *sights) wake(m protocol.Machine) {
	if o, ok := m.(*protocol.Observer); ok && s.observing[o] != nil {
		s.observing[o].Act(m.Step)
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// sessionSights is what a client has seen of sessions, those of other processes
// and its own, by their ids. It is guarded by the client's seeing.
type sessionSights struct {
	t      protocol.Timing
	env    protocol.Env
	recall *recall
	known  map[string]*protocol.Sight
	// observing are the trackers with observers.
	observing map[*protocol.Observer]*tracker
}

// of returns the sight of a session, the same for all callers.
func (s *sessionSights) of(id string) *protocol.Sight {
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
func (s *sessionSights) thin() {
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
func (s *sessionSights) wake(m protocol.Machine) {
	if o, ok := m.(*protocol.Observer); ok && s.observing[o] != nil {
		s.observing[o].observing.Act(m.Step)
	}
}

// seeSessions reads sessions, so that it can be told whether the locks under
// them are held. It waits as look does.
func (c *Client) seeSessions(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = driver.SessionKey(id)
	}
	sent := c.clock.Contender()
	found, err := c.readAll(ctx, keys)
	if err != nil {
		return err
	}
	c.seeing.Lock()
	defer c.seeing.Unlock()
	now := c.clock.Contender()
	for i, f := range found {
		switch {
		case f.Err == nil:
			c.seen.of(ids[i]).Saw(sent, now, driver.Strong, f.Record, true)
		case isNotFound(f.Err):
			c.seen.of(ids[i]).Saw(sent, now, driver.Strong, driver.Record{}, false)
		default:
			return f.Err
		}
	}
	return nil
}

// openSession returns the id of the session of a lock that was seen under it, and
// is not known to have ended.
func (k *tracker) openSession() (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rec, _ := k.sight.Record()
	return rec.Session, k.sight.Tied() && !k.sight.Ended()
}

// seen returns what was seen last, after a read of the session by others was noted.
func (k *tracker) seen() sighting {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notify()
	return k.sighting()
}

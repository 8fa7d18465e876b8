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
	// peeking are those who wait for the answer of a look at a session for observers.
	peeking map[string][]*contest
}

// of returns the sight of a session, the same for all who ask.
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

// thin forgets the sessions that nobody has looked at for the longest time. Who
// asks for one of them looks at it anew; if it shows the same sign of life then, it
// has shown it since it was first seen.
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

// peeks looks at the session of a lock for observers, if that is due, and returns
// false if not. The caller holds the contest, and is told by lookedOn. All who
// observe locks of one session share a look.
func (k *contest) peeks(now time.Duration) bool {
	c := k.c
	u := k.sight.Under()
	if u == nil || k.sight.Ended() || len(k.observers) == 0 {
		return false
	}
	_, found := u.Record()
	if found && u.NextLook() > now {
		return false
	}
	rec, _ := k.sight.Record()
	id, how := rec.Session, u.How(now)
	if !found {
		how = driver.Strong // it has not been seen, or was not there before the lock was held under it
	}
	waiting, looks := c.seen.peeking[id]
	if c.seen.peeking[id] = append(waiting, k); looks {
		return true
	}
	sent := c.clock.Contender()
	c.send(unhurried, &protocol.Request{Kind: protocol.Peek, Key: driver.SessionPrefix + id, Consistency: how}, func(res protocol.Result) {
		c.seeing.Lock()
		defer c.seeing.Unlock()
		now := c.clock.Contender()
		if res.Err == nil {
			c.seen.of(id).Saw(sent, now, how, res.Record, res.Found)
		}
		waiting := c.seen.peeking[id]
		delete(c.seen.peeking, id)
		for _, k := range waiting {
			k.lookedOn(now, res.Err)
		}
	})
	return true
}

// seeSessions reads sessions, so that it can be told whether the locks under
// them are held. It waits as look does.
func (c *Client) seeSessions(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = driver.SessionPrefix + id
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
func (k *contest) openSession() (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rec, _ := k.sight.Record()
	return rec.Session, k.sight.Tied() && !k.sight.Ended()
}

// seen returns what was seen last, when a look of others at the session was noted.
func (k *contest) seen() sighting {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notify()
	return k.sighting()
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// offer is a lock that was granted for a holder elsewhere, until that shows life.
type offer struct {
	c       *base
	of      *offers
	rec     driver.Record
	run     engine.Run
	m       *protocol.Offer
	awaited bool // Close waits for it
	ended   bool
}

func (s *offers) offer(c *base, g protocol.Grant) *offer {
	o := &offer{c: c, of: s, rec: g.Record, m: protocol.NewOffer(c.timing, c.env, g)}
	o.run = engine.Run{
		Machine: o.m, Mutex: new(sync.Mutex), Clock: c.contender, Timers: c.looks, Send: c.last, Stepped: o.stepped,
		Replied: func(_ time.Duration, _ *protocol.Call, r protocol.Result) {
			if r.Outcome == protocol.Applied {
				c.released(o.rec.Key)
			}
		},
	}
	return o
}

func (o *offer) stepped(time.Duration, protocol.Action) {
	if !o.m.Over() || o.ended {
		return
	}
	o.ended = true
	o.of.drop(o)
	if o.awaited {
		o.c.finished(nil)
	}
}

func (o *offer) record() driver.Record { return o.rec }

// giveUp releases the lock at once. The client waits for that when it is closed, as it
// does not for an offer that its holder may take elsewhere.
func (o *offer) giveUp() {
	o.run.Do(func(now time.Duration) protocol.Action {
		if !o.ended && !o.awaited {
			o.awaited = true
			_ = o.c.began(nil) // closed or not: it is released, or runs out
		}
		return o.m.GiveUp(now)
	})
}

// taken ends the offer: its holder has shown life.
func (o *offer) taken() {
	o.run.Do(func(now time.Duration) protocol.Action {
		o.m.Taken()
		return protocol.Action{}
	})
}

// offers are those of one client.
type offers struct {
	mu  sync.Mutex
	all map[offerKey]*offer
}

type offerKey struct {
	key   string
	token uint64
}

func (s *offers) put(o *offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[offerKey]*offer{}
	}
	s.all[offerKey{o.rec.Key, o.rec.Token}] = o
}

// take returns the offer of a lock, nil if there is none any more, and forgets it.
func (s *offers) take(key string, token uint64) *offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.all[offerKey{key, token}]
	delete(s.all, offerKey{key, token})
	return o
}

func (s *offers) drop(o *offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := (offerKey{o.rec.Key, o.rec.Token}); s.all[id] == o {
		delete(s.all, id)
	}
}

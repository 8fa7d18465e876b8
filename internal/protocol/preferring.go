// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Wish returns when to ask the holder to hand over to a candidate of this process with that
// priority and lease, and false if the candidate is not preferred to it or the holder was
// asked. Leaders must not change to and fro: the holder is asked only when it has led for a
// lease, and at most once in a lease.
func (s *Sight) Wish(priority int, lease time.Duration) (time.Duration, bool) {
	rec, found := s.Record()
	return s.asks(rec, found && rec.Priority < priority, lease)
}

func (s *Sight) asks(rec driver.Record, preferred bool, lease time.Duration) (time.Duration, bool) {
	if !preferred || rec.State != driver.Held || rec.Beat == "" || rec.End != "" || len(rec.Requests) > 0 {
		return 0, false
	}
	at := s.term + lease
	if s.wished {
		at = max(at, s.wish+lease)
	}
	return at, true
}

// Wished notes that it is asked.
func (s *Sight) Wished(now time.Duration) {
	s.wished, s.wish = true, now
}

// Preferring returns that request: of an owner, to the holder that a record shows.
func Preferring(owner string, priority int, rec driver.Record) driver.Request {
	return driver.Request{
		Kind: driver.HandOver, Token: rec.Token, By: owner, To: owner,
		Reason: fmt.Sprintf("preferred: priority %d before %d", priority, rec.Priority),
	}
}

// wish is Wish for the contender.
func (c *Contender) wish(rec driver.Record) (time.Duration, bool) {
	waits := !c.want.Try && !c.want.UnlessAlive
	return c.sight.asks(rec, waits && rec.Priority < c.want.Priority, c.t.Lease)
}

// prefer fills in the call that writes that request. For a lock under a session, the
// request goes into the session's record, where the next heartbeat finds it.
func (c *Contender) prefer(r *Call, rec driver.Record, now time.Duration) {
	version := c.env.Fresh()
	q := Preferring(c.want.Owner, c.want.Priority, rec)
	q.ID = c.env.Fresh()
	r.Prev = rec
	if u := c.sight.under(); u != nil {
		q.Lock = rec.Key
		r.Key, r.Prev = u.rec.Key, u.rec
	}
	r.Next = asking(r.Prev, version, q)
	c.sight.Wished(now)
}

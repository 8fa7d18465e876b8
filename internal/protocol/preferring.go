// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// wish returns when to ask the holder to hand over to this contender, and false if
// the contender is not preferred to it or must not ask. Leaders must not change to and
// fro: the holder is asked only when it has led for a lease, and at most once in a lease.
func (c *Contender) wish(rec driver.Record) (time.Duration, bool) {
	if rec.State != driver.Held || rec.Beat == "" || rec.End != "" || len(rec.Requests) > 0 ||
		rec.Priority >= c.want.Priority || c.want.Try || c.want.UnlessAlive {
		return 0, false
	}
	if c.cools() {
		if k, known := c.failed(rec); known && k > 0 || c.cool.mute == rec.Token {
			return 0, false
		}
	}
	at := c.sight.Term() + c.t.Lease
	if c.sight.wished {
		at = max(at, c.sight.wish+c.t.Lease)
	}
	return at, true
}

// prefer fills in the call that writes that request. For a lock under a session, the
// request goes into the session's record, where the next heartbeat finds it.
func (c *Contender) prefer(r *Call, rec driver.Record, now time.Duration) {
	version := c.env.Fresh()
	q := driver.Request{
		ID: c.env.Fresh(), Kind: driver.HandOver, By: c.want.Owner, To: c.want.Owner,
		Reason: fmt.Sprintf("preferred: priority %d before %d", c.want.Priority, rec.Priority),
	}
	r.Prev = rec
	if u := c.sight.under(); u != nil {
		q.Lock, q.Token = rec.Key, rec.Token
		r.Key, r.Prev = u.rec.Key, u.rec
	}
	r.Next = asking(r.Prev, version, q)
	c.sight.wished, c.sight.wish = true, now
}

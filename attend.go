// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// attend has the store hint when a request is laid into the record, if it can
// watch. The holder looks then, by a heartbeat that is due at once. Without a
// hint it finds the request with its next heartbeat.
func (l *Lease) attend() {
	c := l.c
	if c.watcher == nil {
		return
	}
	c.requests.send(unhurried, request{
		kind: protocol.Look,
		ask: func(context.Context) (rec, former driver.Record, err error) {
			unwatch, err := c.watch(l.key, func() { c.beats.set(&l.hint, 0) })
			if err != nil {
				return rec, former, err // heartbeats go on without it
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.unwatch = unwatch; l.finished {
				l.unattend()
			}
			return rec, former, err
		},
		answer: func(protocol.Result) {},
	})
}

// hintsPerHeartbeat bounds how many heartbeats hints can cause in one period: a
// store may hint without a reason, and more than once.
const hintsPerHeartbeat = 20

// hinted is run after a hint.
func (l *Lease) hinted(time.Duration) {
	l.do(func(now time.Duration) protocol.Action {
		if l.h.Cause() != protocol.None {
			return l.h.Step(now)
		}
		if due := l.h.Sent() + l.c.timing.Heartbeat/hintsPerHeartbeat; now < due {
			l.c.beats.set(&l.hint, due)
			return l.h.Step(now)
		}
		return l.h.Renew(now)
	})
}

// unattend ends the watch. The caller holds the lease.
func (l *Lease) unattend() {
	l.c.beats.drop(&l.hint)
	if l.unwatch == nil {
		return
	}
	l.c.unwatch(l.unwatch)
	l.unwatch = nil
}

// watch asks the store to hint.
func (c *Client) watch(key string, hint func()) (unwatch func(), err error) {
	if err := c.store.before(); err != nil {
		return nil, err
	}
	unwatch, err = c.watcher.Watch(key, hint)
	if err != nil {
		err = c.store.judge(err)
	}
	return unwatch, err
}

// unwatch ends a watch, not here: a store may take its time.
func (c *Client) unwatch(unwatch func()) {
	c.requests.send(unhurried, request{
		kind: protocol.Look,
		ask: func(context.Context) (rec, former driver.Record, err error) {
			unwatch()
			return rec, former, err
		},
		answer: func(protocol.Result) {},
	})
}

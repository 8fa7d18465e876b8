// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// watchRequests has the store hint when a request is written into the record, if it
// can watch. A hint makes a heartbeat due at once. Without a hint the holder finds
// the request with its next heartbeat.
func (l *Lease) watchRequests() {
	c := l.c
	if c.watcher == nil {
		return
	}
	l.hint.Run = l.hinted
	c.alone(func(ctx context.Context) error {
		unwatch, err := c.watch(ctx, l.key, func() { c.beats.Set(&l.hint, 0) })
		if err != nil {
			return err // heartbeats go on without it
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.unwatch = unwatch; l.finished {
			l.unwatchRequests()
		}
		return nil
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
		if due := l.h.Sent() + l.t.Heartbeat/hintsPerHeartbeat; now < due {
			l.c.beats.Set(&l.hint, due)
			return l.h.Step(now)
		}
		return l.h.Renew(now)
	})
}

// unwatchRequests ends the watch. The caller holds the lease.
func (l *Lease) unwatchRequests() {
	l.c.beats.Drop(&l.hint)
	if l.unwatch == nil {
		return
	}
	l.c.unwatch(l.unwatch)
	l.unwatch = nil
}

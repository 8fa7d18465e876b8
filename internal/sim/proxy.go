// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// cached is an answer that a proxy has kept.
type cached struct {
	reply
	until time.Duration
}

// cacheKey is what a proxy takes for the same question: the lock and the token, or the
// whole call.
func (l *lock) cacheKey(d protocol.Dispatch) string {
	if l.cfg.Wrong == CachedByLock {
		return fmt.Sprint(d.Token)
	}
	return fmt.Sprint(d.Token, d.After, d.Next)
}

// cache keeps an answer, where that mistake is made.
func (l *lock) cache(d protocol.Dispatch, r reply) {
	if l.cfg.Wrong == CachedByLock || l.cfg.Wrong == CachedByCall {
		l.proxy[l.cacheKey(d)] = cached{r, l.now + l.t.Lease}
	}
}

func (l *lock) fromCache(d protocol.Dispatch) (reply, bool) {
	c, ok := l.proxy[l.cacheKey(d)]
	if ok = ok && l.now < c.until; ok {
		l.tally.Cached++
	}
	return c.reply, ok
}

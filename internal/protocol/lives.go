// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Lives is what one process has seen of the lives of an engine that may lose writes: see
// [driver.Guarded]. A write of the process may open a life that it saw first long enough ago:
// whatever the engine had lost before that life began, no holder acts on it any more.
type Lives struct {
	waits  time.Duration
	seen   map[string]time.Duration // by life: after the reply that first named it
	latest string                   // the life that the latest reply named
}

// NewLives returns the lives of an engine, whose store waits so long, to a process that has seen
// none. Evidence of an earlier process does not count.
func NewLives(waits time.Duration) *Lives {
	return &Lives{waits: waits, seen: map[string]time.Duration{}}
}

// maxLives bounds the lives that are remembered. A server that is cut off shows one, and its
// successor another. If a life is forgotten, it is only opened later.
const maxLives = 16

// Saw notes the life that the record of a reply names; an empty one says nothing. now is the
// instant after the reply.
func (l *Lives) Saw(now time.Duration, life string) {
	if life == "" {
		return
	}
	l.latest = life
	if _, known := l.seen[life]; known {
		return
	}
	if len(l.seen) >= maxLives {
		clear(l.seen)
	}
	l.seen[life] = now
}

// Since returns the instant after the reply that first named the life, and false if no reply has.
func (l *Lives) Since(life string) (time.Duration, bool) {
	since, seen := l.seen[life]
	return since, seen
}

// Opening returns what a write that is sent now may open, zero for nothing. wall is the wall
// clock's time, on which only tokens depend.
func (l *Lives) Opening(now time.Duration, wall time.Time) driver.Opening {
	if since, known := l.seen[l.latest]; known && now >= since+l.waits {
		return driver.OpeningOf(l.latest, wall)
	}
	return driver.Opening{}
}

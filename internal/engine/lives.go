// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// lives has seen the lives of an engine that may lose writes: see [driver.Guarded]. A life that it
// saw first long enough ago may be opened: whatever the engine has lost before that life began, no
// holder acts on it any more. A nil lives has none.
type lives struct {
	now   func() time.Duration // the contender's clock
	waits time.Duration

	mu     sync.Mutex
	seen   map[string]time.Duration // by life: after the reply that first named it
	latest string                   // the life that the latest reply named
}

// maxLives bounds the lives that are remembered. A server that is cut off shows one, and its
// successor another. If a life is forgotten, it is only opened later.
const maxLives = 16

// saw notes the life in the record of a reply, or of the conflict that err is. It returns err.
func (l *lives) saw(rec driver.Record, err error) error {
	if l == nil {
		return err
	}
	if conflict, is := errors.AsType[*driver.ConflictError](err); is {
		rec = conflict.Current
	}
	if rec.Life == "" {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = rec.Life
	if _, known := l.seen[rec.Life]; known {
		return err
	}
	if len(l.seen) >= maxLives {
		clear(l.seen)
	}
	l.seen[rec.Life] = l.now()
	return err
}

// opens returns next with what this process allows the write to open.
func (l *lives) opens(next driver.Record) driver.Record {
	if l == nil {
		return next
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if since, known := l.seen[l.latest]; known && l.now() >= since+l.waits {
		next.Opens = driver.OpeningOf(l.latest, time.Now())
	}
	return next
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// lives are a client's [protocol.Lives], for many goroutines. A nil lives has none.
type lives struct {
	now func() time.Duration // the contender's clock

	mu sync.Mutex
	of *protocol.Lives
}

// saw notes the life in the record of a reply, or of the conflict that err is. It returns err.
func (l *lives) saw(rec driver.Record, err error) error {
	if l == nil {
		return err
	}
	if conflict, is := errors.AsType[*driver.ConflictError](err); is {
		rec = conflict.Current
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of.Saw(l.now(), rec.Life)
	return err
}

// since is [protocol.Lives.Since].
func (l *lives) since(life string) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of.Since(life)
}

// opens returns next, which opens the latest life if that is allowed.
func (l *lives) opens(next driver.Record) driver.Record {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		next.Opens = l.of.Opening(l.now(), time.Now())
	}
	return next
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap

import (
	"sync"
	"time"
)

// Idle are the idle connections of a client for HTTP. What lies between a program and its
// engine may forget a connection without a word: each call that takes one such out of the
// pool waits for all of its time. All methods may be called concurrently.
type Idle struct {
	drop func()

	mu   sync.Mutex
	last time.Time // of such a closing
}

// dropPause is the least time between two closings: where new connections get no answer
// either, there is no use in more.
const dropPause = time.Second

// NewIdle returns the connections that drop closes. If it is nil, they cannot be closed.
func NewIdle(drop func()) *Idle {
	if drop == nil {
		drop = func() {}
	}
	return &Idle{drop: drop}
}

// Unheard is called after a request that got no answer. It closes them, at most once a
// second.
func (i *Idle) Unheard() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now := time.Now(); i.last.IsZero() || now.Sub(i.last) >= dropPause {
		i.last = now
		i.drop()
	}
}

// Close closes them.
func (i *Idle) Close() error {
	i.drop()
	return nil
}

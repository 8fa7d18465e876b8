// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// tellPatience bounds the telling of what has changed, and closePatience how long the
	// end of a store waits for it. What is not told by then is found by looks.
	tellPatience  = 5 * time.Second
	closePatience = time.Second
)

// teller tells others which keys have changed, in the background: those that change while
// it tells of others go together. A hint that cannot be told is dropped.
type teller struct {
	store *Store

	mu      sync.Mutex
	keys    map[string]bool // not told yet
	done    chan struct{}   // closed when nothing is left to tell; nil: nothing is
	telling bool            // a goroutine does
}

// note notes a key that has changed. Close waits from then on until it is told.
func (t *teller) note(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys == nil {
		t.keys = map[string]bool{}
	}
	t.keys[key] = true
	if t.done == nil {
		t.done = make(chan struct{})
	}
}

// tell tells of what was noted. It is called when the connection of the change is free
// again: to tell on another one, which may have to be made first, takes longer.
func (t *teller) tell() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done != nil && !t.telling {
		t.telling = true
		go t.run(t.done)
	}
}

func (t *teller) run(done chan struct{}) {
	defer close(done)
	for {
		t.mu.Lock()
		keys := t.keys
		t.keys = nil
		if len(keys) == 0 {
			t.done, t.telling = nil, false
		}
		t.mu.Unlock()
		if len(keys) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(t.store.ctx, tellPatience)
		_, _ = t.store.notify(ctx, slices.Collect(maps.Keys(keys)))
		cancel()
	}
}

func (s *Store) notify(ctx context.Context, payloads []string) ([]row, error) {
	return s.run(ctx, s.notes, []any{channelOf(s.table), payloads}, "")
}

// await returns when nothing is left to tell, or when patience is over.
func (t *teller) await() {
	t.mu.Lock()
	done := t.done
	t.mu.Unlock()
	if done == nil {
		return
	}
	over := time.NewTimer(closePatience)
	defer over.Stop()
	select {
	case <-done:
	case <-over.C:
	}
}

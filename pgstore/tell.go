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
	// tellPatience bounds a notification of changes, and closePatience how long Close
	// waits for it. Later changes are found by polls.
	tellPatience  = 5 * time.Second
	closePatience = time.Second
	// tellPause is the least time between two notifications, so that a process with many
	// releases does not send one more statement with each of them.
	tellPause = 5 * time.Millisecond
)

// teller notifies others of changed keys, in the background: keys that change during a
// notification go together in the next. A hint that cannot be sent is dropped.
type teller struct {
	store *Store

	mu      sync.Mutex
	keys    map[string]bool // not sent yet
	done    chan struct{}   // closed when nothing is left to send; nil: nothing is
	telling bool            // a goroutine does
}

// note notes a changed key. Close waits from then on until it is sent.
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

// tell sends the noted keys. It is called when the connection of the change is free
// again: another connection, which may have to be made first, takes longer.
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
		select {
		case <-time.After(tellPause):
		case <-t.store.ctx.Done():
		}
	}
}

func (s *Store) notify(ctx context.Context, payloads []string) ([]row, error) {
	return s.run(ctx, s.notes, []any{channelOf(s.table), payloads})
}

// await returns when nothing is left to send, or when patience is over.
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

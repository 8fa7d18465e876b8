// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func (h *handle) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	const size = 4
	if err := h.fail(ctx); err != nil {
		return driver.Page{}, err
	}
	h.db.mu.Lock()
	defer h.db.mu.Unlock()
	if _, known := h.db.records[cursor]; !known && h.db.is("cursors are records") {
		cursor = ""
	}
	page := driver.Page{Unreadable: map[string]error{}}
	var keys []string
	for key := range h.db.records {
		match := strings.HasPrefix(key, prefix)
		if h.db.is("prefix ignored") {
			match = true
		}
		if h.db.is("prefix folds case") {
			match = strings.HasPrefix(strings.ToLower(key), strings.ToLower(prefix))
		}
		if h.db.is("closed not listed") && h.db.records[key].State == driver.Closed {
			match = false
		}
		if match && key > cursor {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if h.db.is("list folds case") {
		slices.SortFunc(keys, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	}
	if len(keys) > size {
		keys = keys[:size]
		page.Cursor = keys[size-1]
		if h.db.is("list ends after a page") {
			page.Cursor = ""
		}
		if h.db.is("pages overlap") {
			page.Cursor = keys[size-2]
		}
	}
	for _, key := range keys {
		switch r := h.db.records[key]; {
		case r.State != unreadable:
			page.Records = append(page.Records, h.copy(r))
		case !h.db.is("unreadable not listed"):
			page.Unreadable[key] = driver.ErrUnreadable
		}
	}
	return page, nil
}

func (h *handle) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	cold, err := h.beginWatch(ctx)
	if err != nil {
		return nil, err
	}
	h.db.mu.Lock()
	defer h.db.mu.Unlock()
	h.db.serial++
	n := h.db.serial
	if h.db.is("one watch per key") {
		for n, w := range h.db.watches {
			if w.key == key {
				delete(h.db.watches, n)
			}
		}
	}
	w := watch{key: key, owner: h, hint: hint}
	if cold && h.db.is("watch armed late") {
		w.armed = time.Now().Add(20 * time.Millisecond)
	}
	h.db.watches[n] = w
	if h.db.is("watch ends with its context") {
		context.AfterFunc(ctx, func() {
			h.db.mu.Lock()
			defer h.db.mu.Unlock()
			delete(h.db.watches, n)
		})
		<-time.After(time.Millisecond) // for a context that is done already
	}
	return func() {
		h.db.mu.Lock()
		defer h.db.mu.Unlock()
		if !h.db.is("watch never stops") {
			delete(h.db.watches, n)
		}
	}, nil
}

func (h *handle) hint(key string) {
	h.db.mu.Lock()
	var hints []func()
	for n, w := range h.db.watches {
		if w.key != key || h.db.is("no hint of others") && w.owner != h ||
			h.db.is("watch armed by the next call") && !w.owner.isDialed() || time.Now().Before(w.armed) {
			continue
		}
		hints = append(hints, w.hint)
		if h.db.is("watch hints once") {
			delete(h.db.watches, n)
		}
	}
	h.db.mu.Unlock()
	for _, hint := range hints {
		hint()
	}
}

func (h *handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed && h.db.is("second Close fails") {
		return driver.ErrClosed
	}
	if h.db.is("Close waits for the engine") {
		_ = h.db.answer(context.Background(), true)
	}
	h.closed = true
	return nil
}

// The engine can be stopped, so that it answers nothing until it is resumed.

// stop stops the engine.
func (db *database) stop(*testing.T) (resume func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	hang := make(chan struct{})
	db.hang = hang
	return func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.hang = nil
		close(hang)
	}
}

// answer waits until the engine answers, or the context is done; deaf, for the engine
// alone.
func (db *database) answer(ctx context.Context, deaf bool) error {
	db.mu.Lock()
	hang := db.hang
	db.mu.Unlock()
	switch {
	case hang == nil:
	case deaf:
		<-hang
	default:
		select {
		case <-hang:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// An engine may count the writes of each key, from its creation on, and a handle
// may remember, for each key, the last record that it saw, and its count.

func (h *handle) put(r driver.Record) {
	h.db.records[h.id(r.Key)] = r
	h.db.nodes[h.id(r.Key)]++
	h.saw(r)
}

func (h *handle) saw(r driver.Record) {
	h.nodes[r.Key] = node{r.Version, r.Token, h.db.nodes[h.id(r.Key)]}
}

type node struct {
	version string
	token   uint64
	count   int
}

// byNode reports whether the node stands at the count at which this handle has seen
// prev, if it has, in the store that goes by that.
func (h *handle) byNode(prev driver.Record) (same, known bool) {
	if !h.db.is("node's version alone") {
		return false, false
	}
	n, known := h.nodes[prev.Key]
	known = known && n.version == prev.Version && n.token == prev.Token
	return n.count == h.db.nodes[h.id(prev.Key)], known
}

// textOnly reports whether an error is of the check that a bug leaves out.
func (h *handle) textOnly(err error) bool {
	return h.db.is("text unchecked") && strings.Contains(err.Error(), "U+0000")
}

// beginWatch fails as any call, and reports whether it is the first one of the handle.
func (h *handle) beginWatch(ctx context.Context) (cold bool, err error) {
	h.mu.Lock()
	dialed := h.dialed
	h.mu.Unlock()
	switch h.db.bug {
	case "watch ignores its context":
		ctx = context.Background()
	case "watch hangs past its context":
		_ = h.db.answer(ctx, true)
	}
	if err := h.fail(ctx); err != nil {
		return false, err
	}
	if h.db.is("watch armed by the next call") {
		h.mu.Lock()
		h.dialed = dialed
		h.mu.Unlock()
	}
	return !dialed, nil
}

func (h *handle) isDialed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dialed
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"slices"
	"strings"
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

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// database is a store written from package driver alone, and not shared with
// memstore, in which one thing can be broken.
type database struct {
	bug string

	mu      sync.Mutex
	records map[string]driver.Record
	watches map[int]watch
	serial  int
}

type watch struct {
	key   string
	owner *handle
	hint  func()
}

func newDatabase(bug string) *database {
	return &database{bug: bug, records: map[string]driver.Record{}, watches: map[int]watch{}}
}

func (db *database) is(bug string) bool { return db.bug == bug }

// open returns a handle. All have a Watch, but for one bug.
func (db *database) open() driver.Store {
	h := &handle{db: db, cache: map[string]driver.Record{}}
	if db.is("no Watch") {
		return struct{ driver.Store }{h}
	}
	return h
}

type handle struct {
	db     *database
	mu     sync.Mutex
	closed bool
	cache  map[string]driver.Record
}

func (h *handle) fail(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed && !h.db.is("usable after Close") {
		return driver.ErrClosed
	}
	if h.db.is("context ignored") {
		return nil
	}
	return ctx.Err()
}

func (h *handle) id(key string) string {
	switch {
	case h.db.is("keys in lower case"):
		return strings.ToLower(key)
	case h.db.is("keys trimmed"):
		return strings.TrimRight(key, " ")
	}
	return key
}

// keep is what is left of a record once it is stored.
func (h *handle) keep(r driver.Record) driver.Record {
	if !h.db.is("memory shared") {
		r = r.Clone()
	}
	r.Since, r.Until = r.Since.Truncate(time.Millisecond), r.Until.Truncate(time.Millisecond)
	switch h.db.bug {
	case "lease in seconds":
		r.Lease = r.Lease.Truncate(time.Second)
	case "times in seconds":
		r.Since = r.Since.Truncate(time.Second)
	case "label dropped":
		r.Label = ""
	case "label of the former tenure dropped":
		if r.Prev != nil {
			r.Prev.Label = ""
		}
	case "token a float":
		r.Token = uint64(float64(r.Token))
	}
	return r
}

func (h *handle) conflict(r driver.Record, found bool, key string) error {
	switch h.db.bug {
	case "conflict without record":
		return &driver.ConflictError{Key: key}
	case "conflict a plain error":
		return driver.NotApplied(driver.Permanent(errors.New("condition failed")))
	case "conflict without Absent":
		return &driver.ConflictError{Key: key, Current: r}
	}
	return &driver.ConflictError{Key: key, Current: r.Clone(), Absent: !found}
}

func (h *handle) Get(ctx context.Context, key string, _ driver.Consistency) (driver.Record, error) {
	if err := h.fail(ctx); err != nil {
		return driver.Record{}, err
	}
	h.db.mu.Lock()
	defer h.db.mu.Unlock()
	r, found := h.db.records[h.id(key)]
	if cached, ok := h.cache[key]; ok && h.db.is("reads cached") {
		return cached.Clone(), nil
	}
	if !found {
		return driver.Record{}, fmt.Errorf("get: %w", driver.ErrNotFound)
	}
	if r.State == unreadable {
		if h.db.is("unreadable read as it is") {
			return r.Clone(), nil
		}
		return driver.Record{}, driver.ErrUnreadable
	}
	h.cache[key] = r
	if h.db.is("memory shared") {
		return r, nil
	}
	return r.Clone(), nil
}

// unreadable is the state of a record that stands for one of another format.
const unreadable driver.State = "unreadable"

func (h *handle) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := h.fail(ctx); err != nil {
		return now, prev, driver.NotApplied(err)
	}
	if err := driver.CheckClaim(next); err != nil && !h.db.is("writes unchecked") {
		return now, prev, err
	}
	h.db.mu.Lock()
	defer h.db.mu.Unlock()
	prev, found := h.db.records[h.id(next.Key)]
	if h.db.is("claim not atomic") {
		h.db.mu.Unlock()
		runtime.Gosched()
		h.db.mu.Lock()
	}
	free := !found || prev.State == driver.Released || h.db.is("claim overwrites held") ||
		h.db.is("claim takes unknown states") && prev.State != driver.Held
	switch {
	case found && prev.State == unreadable && !h.db.is("unreadable claimed"):
		return driver.Record{}, driver.Record{}, driver.ErrUnreadable
	case !free && prev.State != unreadable:
		return driver.Record{}, driver.Record{}, h.conflict(prev, found, next.Key)
	case prev.Token == driver.MaxToken && !h.db.is("token wraps"):
		return driver.Record{}, driver.Record{}, errors.New("no more tokens")
	}
	now = driver.Claimed(next, prev, found)
	switch h.db.bug {
	case "token not raised":
		now.Token = max(prev.Token, 1)
	case "token of the caller":
		now.Token = max(next.Token, 1)
	case "token wraps":
		now.Token &= driver.MaxToken
	case "claim loses data":
		now.Data = next.Data
	case "claim forgets Prev":
		now.Prev = nil
	case "Prev always released":
		if now.Prev != nil {
			now.Prev.End = driver.EndReleased
		}
	}
	now = h.keep(now)
	h.db.records[h.id(next.Key)] = now
	if h.db.is("claim returns no prev") {
		prev = driver.Record{}
	}
	if h.db.is("memory shared") {
		return now, prev, nil
	}
	return now.Clone(), prev.Clone(), nil
}

func (h *handle) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if err := h.fail(ctx); err != nil {
		return driver.Record{}, driver.NotApplied(err)
	}
	if err := driver.CheckSwap(prev, next); err != nil && !h.db.is("writes unchecked") {
		return driver.Record{}, err
	}
	h.db.mu.Lock()
	stored, found := h.db.records[h.id(next.Key)]
	if h.db.is("swap not atomic") {
		h.db.mu.Unlock()
		runtime.Gosched()
		h.db.mu.Lock()
	}
	if !found && !h.db.is("swap creates") ||
		found && stored.Version != prev.Version && !h.db.is("swap ignores version") ||
		found && stored.Token != prev.Token && !h.db.is("swap ignores token") ||
		found && stored.Owner != prev.Owner && h.db.is("swap compares owner") {
		defer h.db.mu.Unlock()
		return driver.Record{}, h.conflict(stored, found, next.Key)
	}
	switch {
	case h.db.is("swap merges") && next.Data == nil:
		next.Data = stored.Data
	case h.db.is("release keeps version") && next.State == driver.Released:
		next.Version = stored.Version
	case h.db.is("takeover keeps token"):
		next.Token = stored.Token
	}
	next = h.keep(next)
	h.db.records[h.id(next.Key)] = next
	if h.db.is("release deletes") && next.State == driver.Released {
		delete(h.db.records, h.id(next.Key))
	}
	h.db.mu.Unlock()
	if next.State == driver.Released {
		h.hint(next.Key)
	}
	if h.db.is("applied said to be not") {
		runtime.Gosched()
		if err := ctx.Err(); err != nil {
			return driver.Record{}, driver.NotApplied(err)
		}
	}
	if h.db.is("memory shared") {
		return next, nil
	}
	return next.Clone(), nil
}

func (h *handle) Delete(ctx context.Context, prev driver.Record) error {
	if err := h.fail(ctx); err != nil {
		return driver.NotApplied(err)
	}
	h.db.mu.Lock()
	stored, found := h.db.records[h.id(prev.Key)]
	if !found {
		h.db.mu.Unlock()
		if h.db.is("delete of absent fails") {
			return driver.ErrNotFound
		}
		return nil
	}
	if stored.Token != prev.Token && !h.db.is("delete ignores token") ||
		stored.Version != prev.Version && !h.db.is("delete ignores version") {
		defer h.db.mu.Unlock()
		return h.conflict(stored, found, prev.Key)
	}
	delete(h.db.records, h.id(prev.Key))
	if h.db.is("delete takes the prefix") {
		for key := range h.db.records {
			if strings.HasPrefix(key, prev.Key) {
				delete(h.db.records, key)
			}
		}
	}
	h.db.mu.Unlock()
	if !h.db.is("no hint of delete") {
		h.hint(prev.Key)
	}
	return nil
}

func (h *handle) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	const size = 4
	if err := h.fail(ctx); err != nil {
		return driver.Page{}, err
	}
	h.db.mu.Lock()
	defer h.db.mu.Unlock()
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
			page.Records = append(page.Records, r.Clone())
		case !h.db.is("unreadable not listed"):
			page.Unreadable[key] = driver.ErrUnreadable
		}
	}
	return page, nil
}

func (h *handle) Watch(key string, hint func()) (stop func(), err error) {
	if err := h.fail(context.Background()); err != nil {
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
	h.db.watches[n] = watch{key: key, owner: h, hint: hint}
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
		if w.key != key || h.db.is("no hint of others") && w.owner != h {
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
	h.closed = true
	return nil
}

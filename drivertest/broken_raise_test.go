// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

// Raise is Raise with a possible bug.
func (h *handle) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if h.db.is("raise ignores its context") {
		ctx = context.WithoutCancel(ctx)
	}
	if err := h.fail(ctx); err != nil && !h.db.is("raise after Close") {
		return driver.Record{}, driver.NotApplied(err)
	}
	if err := driver.CheckRaise(prev, next); err != nil && !h.unchecked(prev, next) {
		return driver.Record{}, err
	}
	h.db.mu.Lock()
	stored, found := h.db.records[h.id(next.Key)]
	if h.db.is("raise not atomic") {
		h.db.stepAside()
	}
	switch {
	case prev.Version == "" && !found && h.db.raisesKept(prev):
		if !h.db.is("keeping, raised and kept") {
			delete(h.db.kept, prev.Key)
		}
	case prev.Version == "" && found && h.db.is("raise from nothing over a record"):
	case stored.State == unreadable && h.db.is("raise of what is unreadable"):
	case !found && !h.db.is("raise creates"),
		found && stored.Version != prev.Version && !h.db.is("raise ignores version"),
		found && stored.Token != prev.Token && !h.db.is("raise ignores token"),
		found && stored.Owner != prev.Owner && h.db.is("raise compares owner"),
		found && stored.State == driver.Reserved && h.db.is("raise of reserved refused"):
		defer h.db.mu.Unlock()
		return driver.Record{}, h.conflict(stored, found, next.Key)
	}
	switch h.db.bug {
	case "raise by one":
		next.Token = stored.Token + 1
	case "raise keeps data":
		next.Data = stored.Data
	case "raise loses data":
		next.Data = nil
	case "raise forgets Prev":
		next.Prev = nil
	case "raise keeps version":
		next.Version = stored.Version
	case "raise of the highest wraps":
		next.Token &= driver.MaxToken >> 1
	}
	next = h.keep(next)
	h.put(next)
	h.db.mu.Unlock()
	if !h.db.is("no hint of a raise") {
		h.hint(next.Key)
	}
	return h.copy(next), nil
}

// unchecked reports whether a bug lets a raise go that the check refuses.
func (h *handle) unchecked(prev, next driver.Record) bool {
	switch h.db.bug {
	case "raises unchecked":
		return true
	case "raise may stay":
		return next.Token == prev.Token
	case "raise may fall":
		return next.Token < prev.Token
	case "raise to held":
		return next.State == driver.Held
	case "raise of a session":
		return prev.State == driver.Alive
	}
	return false
}

// A database may keep the tokens of deleted locks.

// keeping reports whether it does.
func (db *database) keeping() bool { return strings.HasPrefix(db.bug, "keeping") }

func (db *database) raisesKept(prev driver.Record) bool {
	token, kept := db.kept[prev.Key]
	return kept && (token == prev.Token || db.is("keeping, raised from any token"))
}

// retainer is a handle of such a database.
type retainer struct{ *handle }

func (k retainer) KeepsTokens() bool { return true }

func (k retainer) ListTokens(_ context.Context, prefix, cursor string) (driver.Page, error) {
	const size = 2
	k.db.mu.Lock()
	defer k.db.mu.Unlock()
	var page driver.Page
	var keys []string
	for key := range k.db.kept {
		if key > cursor && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	if k.db.is("keeping, records listed") {
		for key := range k.db.records {
			if key > cursor && strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	if len(keys) > size {
		keys = keys[:size]
		if page.Cursor = keys[size-1]; k.db.is("keeping, one page listed") {
			page.Cursor = ""
		}
	}
	for _, key := range keys {
		page.Records = append(page.Records, driver.Record{Key: key, Token: max(k.db.kept[key], k.db.records[key].Token)})
	}
	return page, nil
}

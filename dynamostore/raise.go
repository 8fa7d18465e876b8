// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

// Raise is Swap to a token that is higher by any amount: see [driver.Raiser]. In a
// shared table the token item rises with it. The token of a lock without an item,
// which [Store.ListTokens] shows, is raised by a prev without a version: the lock
// then has an item again, which is released.
func (s *Store) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if prev.Version != "" {
		return s.swap(ctx, prev, next, driver.CheckRaise)
	}
	if err := s.ready(ctx); err != nil {
		return driver.Record{}, driver.NotApplied(err)
	}
	if err := driver.CheckRaise(prev, next); err != nil {
		return driver.Record{}, err
	}
	if !s.sharesToken(next.Key) { // no token is kept without a record
		stands, err := s.look(ctx, next.Key, driver.Strong)
		return driver.Record{}, conflictWith(next.Key, stands, err)
	}
	next = next.Detach()
	e := s.options.replace(next, false)
	e.condition = isAbsent
	beside := s.beside(next, "#tk = :pt")
	beside.Update.ExpressionAttributeValues[":pt"] = number(prev.Token)
	if err := s.together(ctx, s.update(next.Key, e), beside); err != nil {
		_, err = s.conflict(ctx, next.Key, err)
		return driver.Record{}, err
	}
	return next, nil
}

// ListTokens returns the tokens of locks without an item, in a shared table: see
// [driver.TokenRetainer]. Clients of other kinds delete items at a release, and so
// these may be most of the locks. It scans the table as [Store.List] does.
func (s *Store) ListTokens(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	if err := s.ready(ctx); err != nil {
		return driver.Page{}, err
	}
	var page driver.Page
	if !s.options.SharedTable {
		return page, nil
	}
	if cursor != "" {
		cursor = tokenPrefix + cursor
	}
	items, err := s.gather(ctx, tokenPrefix+prefix, cursor, func(string) bool { return true })
	if err != nil {
		return page, err
	}
	items, page.Cursor = s.cut(items)
	page.Cursor = strings.TrimPrefix(page.Cursor, tokenPrefix)
	for chunk := range slices.Chunk(items, maxBatch) {
		keys := make([]string, len(chunk))
		for i, it := range chunk {
			keys[i] = strings.TrimPrefix(s.keyOf(it), tokenPrefix)
		}
		locks, err := s.getItems(ctx, keys, driver.Strong)
		if err != nil {
			return driver.Page{}, err
		}
		for i, it := range chunk {
			if _, found := locks[keys[i]]; found {
				continue
			}
			r := reader{it: it}
			rec := driver.Record{Key: keys[i], Token: r.token()}
			if r.err == nil {
				page.Records = append(page.Records, rec)
				continue
			}
			if page.Unreadable == nil {
				page.Unreadable = map[string]error{}
			}
			page.Unreadable[rec.Key] = fmt.Errorf("item of %q: %w: %w", tokenPrefix+rec.Key, driver.ErrUnreadable, r.err)
		}
	}
	return page, nil
}

var (
	_ driver.Raiser        = (*Store)(nil)
	_ driver.TokenRetainer = (*Store)(nil)
	_ driver.Sharer        = (*Store)(nil)
)

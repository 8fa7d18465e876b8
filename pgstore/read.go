// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure/driver"
)

// pageSize is how many records List returns at once.
const pageSize = 500

// Get returns the record of key. Both kinds of reads are the same: one request to the
// primary.
func (s *Store) Get(ctx context.Context, key string, _ driver.Consistency) (driver.Record, error) {
	r, err := s.look(ctx, key, func(sql *statements) *statement { return sql.get })
	if err != nil {
		return driver.Record{}, err
	}
	rec, found, err := s.record(key, &r)
	if err == nil && !found {
		err = fmt.Errorf("%w: %q", driver.ErrNotFound, key)
	}
	return rec, err
}

// looking is the statement with which look finds out why a write was refused.
func looking(sql *statements) *statement { return sql.look }

func (s *Store) look(ctx context.Context, key string, which func(*statements) *statement) (row, error) {
	if !isKey(key) {
		return row{}, nil
	}
	rows, err := s.read(ctx, which, key)
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("postgres: %d rows for one key", len(rows))
	}
	if err != nil {
		return row{}, err
	}
	return rows[0], nil
}

// GetBatch returns what Get would return for each of the keys, in one request.
func (s *Store) GetBatch(ctx context.Context, keys []string, _ driver.Consistency) ([]driver.Lookup, error) {
	asked := make([]string, len(keys))
	for i, key := range keys {
		if isKey(key) {
			asked[i] = key // no record has the empty one
		}
	}
	rows, err := s.read(ctx, func(sql *statements) *statement { return sql.getBatch }, asked)
	if err == nil && len(rows) != len(keys) {
		err = fmt.Errorf("postgres: %d rows for %d keys", len(rows), len(keys))
	}
	if err != nil {
		return nil, err
	}
	out := make([]driver.Lookup, len(keys))
	for i := range rows {
		found := false
		out[i].Record, found, out[i].Err = s.record(keys[i], &rows[i])
		if out[i].Err == nil && !found {
			out[i].Err = fmt.Errorf("%w: %q", driver.ErrNotFound, keys[i])
		}
	}
	return out, nil
}

// List returns 500 records at once. The cursor is the last key.
func (s *Store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	if prefix != "" && !isKey(prefix) || cursor != "" && !isKey(cursor) {
		return driver.Page{}, nil
	}
	rows, err := s.read(ctx, func(sql *statements) *statement { return sql.list }, prefix, cursor, int64(s.page))
	if err != nil {
		return driver.Page{}, err
	}
	var page driver.Page
	for i := range rows {
		if !rows[i].found {
			break // there is no record at all
		}
		rec, _, err := s.record(rows[i].Name, &rows[i])
		if err != nil {
			if page.Unreadable == nil {
				page.Unreadable = map[string]error{}
			}
			page.Unreadable[rec.Key] = err
			continue
		}
		page.Records = append(page.Records, rec)
	}
	if len(rows) == s.page {
		page.Cursor = rows[len(rows)-1].Name
	}
	return page, nil
}

// isKey reports whether a key can be in the table: PostgreSQL takes no other text.
func isKey(key string) bool {
	return driver.CheckClaim(driver.Record{Key: key, Version: "v", Owner: "o", Lease: 1e9, State: driver.Held}) == nil
}

// read runs a statement whose rows begin with a flag: whether the server is a standby.
func (s *Store) read(ctx context.Context, which func(*statements) *statement, args ...any) ([]row, error) {
	at, err := s.at(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := s.run(ctx, which(&at.sql), args)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if rows[i].flag {
			if s.own {
				s.pool.Reset()
			}
			return nil, fmt.Errorf("postgres: %w", errStandby)
		}
		if err := s.stands(&rows[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// examine reads the table once. Problems of the table are permanent errors.
func (s *Store) examine(ctx context.Context) error {
	d, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	return driver.NotApplied(driver.Permanent(errors.Join(d.Problems()...)))
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// pageSize is how many records List, and a request of GetBatch, read at once.
const pageSize = 500

// Get returns the record of key. Both kinds of reads are the same: one request to the primary.
func (s *Store) Get(ctx context.Context, key string, _ driver.Consistency) (driver.Record, error) {
	is, err := s.look(ctx, key)
	if err != nil {
		return driver.Record{}, err
	}
	return recordOf(key, is)
}

func recordOf(key string, is freed) (driver.Record, error) {
	rec, err := versioned.RecordOf(is)
	if errors.Is(err, driver.ErrNotFound) {
		err = fmt.Errorf("%w: %q", err, key)
	}
	return rec, err
}

func (s *Store) look(ctx context.Context, key string) (freed, error) {
	rows, err := s.query(ctx, s.sql.get, []byte(key))
	if err != nil || len(rows) == 0 {
		return freed{}, err
	}
	return rows[0].freed(), nil
}

// GetBatch returns what Get would return for each of the keys, in one request for each 500 of them.
func (s *Store) GetBatch(ctx context.Context, keys []string, _ driver.Consistency) ([]driver.Lookup, error) {
	out := make([]driver.Lookup, 0, len(keys))
	for len(keys) > 0 {
		some := keys[:min(len(keys), pageSize)]
		keys = keys[len(some):]
		args := make([]any, len(some))
		for i, key := range some {
			args[i] = []byte(key)
		}
		rows, err := s.query(ctx, s.sql.getBatch(len(some)), args...)
		if err != nil {
			return nil, err
		}
		found := map[string]freed{}
		for i := range rows {
			found[string(rows[i].name)] = rows[i].freed()
		}
		for _, key := range some {
			rec, err := recordOf(key, found[key])
			out = append(out, driver.Lookup{Record: rec.Clone(), Err: err}) // a key may be asked for twice
		}
	}
	return out, nil
}

// List returns 500 records at once. The cursor is the last key.
func (s *Store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	compare, from := ">", cursor
	if cursor < prefix || cursor == "" {
		compare, from = ">=", prefix
	}
	rows, err := s.query(ctx, strings.Replace(s.sql.list, ">", compare, 1), []byte(from), []byte(prefix), []byte(prefix),
		int64(s.page))
	if err != nil {
		return driver.Page{}, err
	}
	var page driver.Page
	for i := range rows {
		versioned.AddTo(&page, string(rows[i].name), rows[i].freed())
	}
	if len(rows) == s.page {
		page.Cursor = string(rows[len(rows)-1].name)
	}
	return page, nil
}

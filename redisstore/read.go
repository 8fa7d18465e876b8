// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

// pageSize is how many records List, and a request of GetBatch, read at once.
const pageSize = 200

// Get returns the record of key, in one request to the primary. Both kinds of reads are the same.
func (s *Store) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	found, err := s.GetBatch(ctx, []string{key}, c)
	if err != nil {
		return driver.Record{}, err
	}
	return found[0].Record, found[0].Err
}

// GetBatch returns what Get would return for each of the keys, in one request for each 200 of them.
func (s *Store) GetBatch(ctx context.Context, keys []string, _ driver.Consistency) ([]driver.Lookup, error) {
	out := make([]driver.Lookup, 0, len(keys))
	for len(keys) > 0 {
		some := keys[:min(len(keys), pageSize)]
		keys = keys[len(some):]
		asked := make([]string, 0, len(some)+1)
		asked = append(asked, s.key("life"))
		for _, key := range some {
			asked = append(asked, s.recordKey(key))
		}
		a, err := s.call(ctx, &readLua, asked)
		switch {
		case err != nil:
			return nil, err
		case len(a.rest) != len(some) || a.word != "open" && a.word != "closed":
			return nil, fmt.Errorf("redis: an answer %.40q with %d records for %d keys", a.word, len(a.rest), len(some))
		}
		for i, key := range some {
			rec, found, err := decode(key, a.rest[i])
			if err == nil && a.word == "closed" {
				rec, found = s.inClosedLife(key, rec, found, a.life)
			}
			switch {
			case err != nil:
				rec = driver.Record{}
			case !found:
				err = fmt.Errorf("%w: %q", driver.ErrNotFound, key)
			default:
				rec.Life = a.life
			}
			out = append(out, driver.Lookup{Record: rec, Err: err})
		}
	}
	return out, nil
}

// inClosedLife returns what is shown of a record while the life of the engine is closed.
func (s *Store) inClosedLife(key string, rec driver.Record, found bool, life string) (driver.Record, bool) {
	free := !found || rec.State == driver.Released || rec.State == driver.Reserved
	if free && !strings.HasPrefix(key, driver.OwnPrefix) {
		return driver.InClosedLife(rec, key, life, s.waits), true
	}
	return rec, found
}

// List returns 200 records at once, in two requests. The cursor is the last key.
func (s *Store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	from, to := "["+prefix, "+"
	if cursor != "" && cursor >= prefix {
		from = "(" + cursor
	}
	if n := len(prefix); n > 0 { // no byte of UTF-8 is the last one
		to = "(" + prefix[:n-1] + string([]byte{prefix[n-1] + 1})
	}
	a, err := s.call(ctx, &namesLua, []string{s.key("life"), s.key("names")}, from, to, strconv.Itoa(s.page))
	if err != nil {
		return driver.Page{}, err
	}
	if len(a.rest) == 0 {
		return driver.Page{}, errors.New("redis: an answer lacks its names")
	}
	keys, err := a.rest[0].AsStrSlice()
	if err != nil {
		return driver.Page{}, fmt.Errorf("redis: the names cannot be read: %w", err)
	}
	found, err := s.GetBatch(ctx, keys, driver.Strong)
	if err != nil {
		return driver.Page{}, err
	}
	var page driver.Page
	for i, f := range found {
		switch {
		case f.Err == nil && f.Record.Token == 0: // deleted since, in a closed life
		case f.Err == nil:
			page.Records = append(page.Records, f.Record)
		case errors.Is(f.Err, driver.ErrUnreadable):
			if page.Unreadable == nil {
				page.Unreadable = map[string]error{}
			}
			page.Unreadable[keys[i]] = f.Err
		}
	}
	if len(keys) == s.page {
		page.Cursor = keys[len(keys)-1]
	}
	return page, nil
}

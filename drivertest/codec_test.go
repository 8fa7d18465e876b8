// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/drivertest"
)

// shelf is an engine that keeps bytes by keys, and store what a store on it comes to
// with package recordcodec: the whole contract. One thing can be broken.
type shelf struct {
	bug  string
	mu   sync.Mutex
	text map[string][]byte
}

type store struct {
	*shelf
	mu     sync.Mutex
	closed bool
}

// texts returns a harness for a database that keeps text.
func texts(bug string) drivertest.Harness {
	s := &shelf{bug: bug, text: map[string][]byte{}}
	set := func(key, text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.text[key] = []byte(text)
	}
	read := func(key string) string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return string(s.text[key])
	}
	return drivertest.Harness{
		Open:           func(*testing.T) driver.Store { return &store{shelf: s} },
		Raises:         true,
		TimePrecision:  time.Nanosecond,
		LeasePrecision: time.Nanosecond,
		Ops:            400,
		Plant:          func(_ *testing.T, rec driver.Record) { set(rec.Key, s.encode(rec)) },
		PlantUnreadable: func(_ *testing.T, key string) {
			set(key, `{"key":"k","version":"v","owner":"o","token":1,"lease":null,"state":"held"}`)
		},
		PlantLater: func(t *testing.T, key string) {
			text, whole := strings.CutSuffix(read(key), "}")
			if !whole {
				t.Fatalf("the record of %q is %s", key, text)
			}
			set(key, text+`,"later": {"list":[1.50,null]}}`)
		},
		HasLater: func(_ *testing.T, key string) bool {
			return strings.Contains(read(key), `"later":{"list":[1.50,null]}`) || strings.Contains(read(key), `"later": `)
		},
		OlderState: func(_ *testing.T, key string) driver.State {
			var older struct{ State driver.State }
			if err := json.Unmarshal([]byte(read(key)), &older); err != nil {
				return ""
			}
			return older.State
		},
	}
}

func (s *shelf) encode(rec driver.Record) string {
	switch s.bug {
	case "text without what is unknown":
		rec.Unknown = ""
	case "text drops what is unknown at a raise":
		if rec.End == driver.EndRaised {
			rec.Unknown = ""
		}
	case "text of a session as of any":
		return strings.Replace(recordcodec.Encode(rec), `"state":"resting"`, `"state":"held"`, 1)
	}
	return recordcodec.Encode(rec)
}

func (s *shelf) decode(key string) (rec driver.Record, found bool, err error) {
	text, found := s.text[key]
	if !found {
		return rec, false, nil
	}
	switch rec, err = recordcodec.Decode(string(text)); {
	case err != nil && s.bug == "text that is damaged as zero":
		return driver.Record{Key: key, Version: "v", Owner: "o", Token: 1, State: driver.Held}, true, nil
	case err != nil && s.bug == "text of a session as of any":
		rec, err = recordcodec.Decode(strings.Replace(string(text), `"state":"held"`, `"state":"resting"`, 1))
	}
	return rec, true, err
}

// put lays a record down, and returns it as a reader has it.
func (s *shelf) put(rec driver.Record) (driver.Record, error) {
	s.text[rec.Key] = []byte(s.encode(rec))
	rec, _, err := s.decode(rec.Key)
	return rec, err
}

// begin locks the engine for one call.
func (s *store) begin(ctx context.Context) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, driver.NotApplied(err)
	}
	s.shelf.mu.Lock()
	return s.shelf.mu.Unlock, nil
}

func (s *store) Get(ctx context.Context, key string, _ driver.Consistency) (driver.Record, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	defer end()
	rec, found, err := s.decode(key)
	if err == nil && !found {
		err = driver.ErrNotFound
	}
	return rec, err
}

func (s *store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := driver.CheckClaim(next); err != nil {
		return now, prev, err
	}
	end, err := s.begin(ctx)
	if err != nil {
		return now, prev, err
	}
	defer end()
	prev, found, err := s.decode(next.Key)
	switch {
	case err != nil:
		return now, driver.Record{}, err
	case found && prev.State != driver.Released:
		return now, driver.Record{}, &driver.ConflictError{Key: next.Key, Current: prev}
	case prev.Token == driver.MaxToken:
		return now, driver.Record{}, driver.NotApplied(driver.Permanent(errors.New("no more tokens")))
	}
	now, err = s.put(driver.Claimed(next, prev, found))
	return now, prev, err
}

func (s *store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckSwap(prev, next))
}

func (s *store) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckRaise(prev, next))
}

func (s *store) swap(ctx context.Context, prev, next driver.Record, refused error) (driver.Record, error) {
	if refused != nil {
		return driver.Record{}, refused
	}
	end, err := s.begin(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	defer end()
	if err := s.compare(prev); err != nil {
		return driver.Record{}, err
	}
	return s.put(next)
}

// compare returns an error unless the record is the one that a caller has read.
func (s *shelf) compare(prev driver.Record) error {
	is, found, err := s.decode(prev.Key)
	if err == nil && (!found || is.Version != prev.Version || is.Token != prev.Token) {
		err = &driver.ConflictError{Key: prev.Key, Current: is, Absent: !found}
	}
	return err
}

func (s *store) Delete(ctx context.Context, prev driver.Record) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if s.text[prev.Key] == nil {
		return nil
	}
	if err := s.compare(prev); err != nil {
		return err
	}
	delete(s.text, prev.Key)
	return nil
}

func (s *store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return driver.Page{}, err
	}
	defer end()
	var keys []string
	for key := range s.text {
		if strings.HasPrefix(key, prefix) && key > cursor {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	const size = 5
	page := driver.Page{Unreadable: map[string]error{}}
	if len(keys) > size {
		keys = keys[:size]
		page.Cursor = keys[size-1]
	}
	for _, key := range keys {
		if rec, _, err := s.decode(key); err != nil {
			page.Unreadable[key] = err
		} else {
			page.Records = append(page.Records, rec)
		}
	}
	return page, nil
}

func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// TestStoreOfTexts: what package recordcodec makes of a record is all that a store has
// to keep.
func TestStoreOfTexts(t *testing.T) {
	drivertest.Run(t, func(*testing.T) drivertest.Harness { return texts("") })
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bytes"
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

// pageSize is the highest number of records that List returns at once.
const pageSize = 500

// Get returns the record of key. Every read is strong.
func (s *Store) Get(ctx context.Context, key string, _ driver.Consistency) (driver.Record, error) {
	return read(ctx, s, func(c *conn) (driver.Record, error) {
		rec, err := get(c, key)
		return rec, s.readFault(err)
	})
}

// Claim writes next if its key is absent or released.
//
// A claim that the first read shows to be impossible ends there: it takes no
// lock and waits for no disk. Others are decided inside their transaction.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := driver.CheckClaim(next); err != nil {
		return now, prev, err
	}
	next = next.Detach()
	look, err := s.Get(ctx, next.Key, driver.Strong)
	if err == nil && look.State != driver.Released {
		return now, prev, &driver.ConflictError{Key: next.Key, Current: look}
	}
	if answer := unreadable(err); answer != nil {
		return now, prev, answer
	}
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return now, prev, driver.NotApplied(err)
	}
	var result struct{ now, prev driver.Record }
	w := &write{key: next.Key, durable: true}
	w.apply = func(c *conn) (err error) {
		result.now, result.prev, w.answer, err = claim(c, next)
		return err
	}
	if err := s.submit(ctx, w); err != nil {
		return now, prev, err
	}
	return result.now.Clone(), result.prev, nil // Claimed has them share Data
}

func claim(c *conn, next driver.Record) (now, prev driver.Record, answer, err error) {
	prev, err = get(c, next.Key)
	found := err == nil
	switch {
	case found && prev.State != driver.Released:
		return now, prev, &driver.ConflictError{Key: next.Key, Current: prev}, nil
	case found && prev.Token >= driver.MaxToken:
		answer = fmt.Errorf("claim of %q: token %d cannot rise", next.Key, prev.Token)
		return now, prev, driver.Unsupported(answer), nil
	case !found && !errors.Is(err, driver.ErrNotFound):
		answer = unreadable(err)
		if answer != nil {
			err = nil
		}
		return now, prev, answer, err
	}
	now = driver.Claimed(next, prev, found)
	_, err = c.exec(sqlPut, encode(now)...)
	return now, prev, nil, err
}

// Swap replaces prev by next if the stored version and token are those of
// prev.
func (s *Store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckSwap)
}

// Raise is Swap to a token that is higher by any amount: see [driver.Raiser].
func (s *Store) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckRaise)
}

// durable says whether a swap must outlive a power loss. Data are another's to read. A heartbeat that is
// undone ends its lease early. If a lock went back to its own lease, on which no holder counts any
// more once it is attached to a session, that would expire while the session lives on.
func durable(prev, next driver.Record) bool {
	attached := next.Session != "" && next.Session != prev.Session
	return next.Token != prev.Token || attached || !bytes.Equal(next.Data, prev.Data)
}

func (s *Store) swap(ctx context.Context, prev, next driver.Record, check func(prev, next driver.Record) error) (driver.Record, error) {
	if err := check(prev, next); err != nil {
		return driver.Record{}, err
	}
	next = next.Detach()
	// All columns but the name, then the condition.
	values := append(encode(next)[1:], next.Key, prev.Version, int64(prev.Token))
	w := &write{key: next.Key, durable: durable(prev, next)}
	w.apply = func(c *conn) error {
		n, err := c.exec(sqlSwap, values...)
		if n == 0 && err == nil {
			w.answer, err = conflict(c, next.Key)
			return err
		}
		w.wake = driver.Wakes(prev, next)
		return err
	}
	if err := s.submit(ctx, w); err != nil {
		return driver.Record{}, err
	}
	return next, nil
}

// Delete removes the record of prev's key if its version and token are those
// of prev.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	w := &write{key: prev.Key}
	w.apply = func(c *conn) error {
		n, err := c.exec(sqlDelete, prev.Key, prev.Version, int64(prev.Token))
		if n == 0 && err == nil {
			w.answer, err = conflict(c, prev.Key)
			return err
		}
		w.wake = true
		return err
	}
	err := s.submit(ctx, w)
	if absent := (*driver.ConflictError)(nil); errors.As(err, &absent) && absent.Absent {
		return nil
	}
	return err
}

// List returns the records whose key begins with prefix and comes after
// cursor. A page is one state of the store; records that are created or
// deleted between two pages may or may not be seen.
func (s *Store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	return read(ctx, s, func(c *conn) (driver.Page, error) {
		var page driver.Page
		seen, last := 0, ""
		err := c.query(sqlList, func(row []sqldriver.Value) bool {
			rec, err := decode(row)
			if !strings.HasPrefix(rec.Key, prefix) {
				return false
			}
			if seen == s.pageSize {
				page.Cursor = last
				return false
			}
			seen, last = seen+1, rec.Key
			if err == nil {
				page.Records = append(page.Records, rec)
				return true
			}
			if page.Unreadable == nil {
				page.Unreadable = map[string]error{}
			}
			page.Unreadable[rec.Key] = err
			return true
		}, prefix, cursor, int64(s.pageSize)+1)
		return page, s.readFault(err)
	})
}

// get returns driver.ErrNotFound, driver.ErrUnreadable, or the engine's error
// as it is.
func get(c *conn, key string) (driver.Record, error) {
	rec, err := driver.Record{}, driver.ErrNotFound
	if queryErr := c.query(sqlGet, func(row []sqldriver.Value) bool {
		rec, err = decode(row)
		return false
	}, key); queryErr != nil {
		return driver.Record{}, queryErr
	}
	if err != nil {
		return driver.Record{}, err
	}
	return rec, nil
}

// conflict returns the record that a write without a changed row conflicts
// with, read in the transaction of the write, or an error of the engine.
func conflict(c *conn, key string) (answer, err error) {
	rec, err := get(c, key)
	switch {
	case err == nil:
		return &driver.ConflictError{Key: key, Current: rec}, nil
	case errors.Is(err, driver.ErrNotFound):
		return &driver.ConflictError{Key: key, Absent: true}, nil
	}
	if answer := unreadable(err); answer != nil {
		return answer, nil
	}
	return nil, err
}

func (s *Store) readFault(err error) error {
	if err == nil || errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrUnreadable) {
		return err
	}
	// Nothing was to be written: it may as well be asked again at once.
	return driver.NotApplied(fault(s.file, err))
}

// read has fn use one of the reading connections, in a goroutine, so that a
// disk that does not answer blocks no caller for longer than ctx.
func read[T any](ctx context.Context, s *Store, fn func(*conn) (T, error)) (T, error) {
	var zero T
	if err := s.ready(ctx); err != nil {
		return zero, err
	}
	var c *conn
	select {
	case c = <-s.readers:
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-s.closing:
		return zero, driver.ErrClosed
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		if r.err = s.check(); r.err == nil {
			r.value, r.err = fn(c)
		}
		s.readers <- c
		done <- r
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

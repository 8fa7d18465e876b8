// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/driver/versioned"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

// pageSize is how many records List returns at once.
const pageSize = 200

// Get returns the record of key. An eventual read is answered by the server that this
// store is connected to, which may lag behind. A strong read makes it catch up first.
func (s *Store) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	is, err := s.read(ctx, key, c)
	if err != nil {
		return driver.Record{}, err
	}
	rec, err := versioned.RecordOf(is)
	return rec.Clone(), err
}

// GetBatch returns what Get would return for each of the keys, in one round trip.
func (s *Store) GetBatch(ctx context.Context, keys []string, c driver.Consistency) ([]driver.Lookup, error) {
	states, err := s.readAll(ctx, keys, c)
	if err != nil {
		return nil, err
	}
	all := make([]driver.Lookup, len(states))
	for i, is := range states {
		all[i].Record, all[i].Err = versioned.RecordOf(is)
	}
	return all, nil
}

// List returns the records whose key begins with prefix and comes after cursor. It reads
// the names of all records first. Records that are created or deleted meanwhile may or
// may not be seen.
func (s *Store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	var page driver.Page
	requests := make([]wire.Request, 0, folders+1)
	requests = append(requests, barrier())
	for n := range folders {
		requests = append(requests, wire.GetChildren(s.folder(n), false))
	}
	replies, err := s.ask(ctx, requests...)
	if err == nil {
		err = s.passed(replies[0])
	}
	if err != nil {
		return page, err
	}
	var keys []string
	for _, reply := range replies[1:] {
		if reply.Code == wire.NoNode {
			continue
		}
		if reply.Code != wire.OK {
			return page, driver.NotApplied(s.refused(reply.Code))
		}
		names, err := reply.Children()
		if err != nil {
			return page, driver.NotApplied(s.failed(err))
		}
		for _, name := range names {
			if key, ours := unescape(name); ours && strings.HasPrefix(key, prefix) && key > cursor {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	if len(keys) > s.page {
		keys = keys[:s.page]
		page.Cursor = keys[len(keys)-1]
	}
	states, err := s.readAll(ctx, keys, driver.Eventual) // the names were as new
	if err != nil {
		return driver.Page{}, err
	}
	for i, is := range states {
		versioned.AddTo(&page, keys[i], is)
	}
	return page, nil
}

// read returns the state of a record.
func (s *Store) read(ctx context.Context, key string, c driver.Consistency) (state, error) {
	all, err := s.readAll(ctx, []string{key}, c)
	if err != nil {
		return state{}, err
	}
	if all[0].there || c == driver.Strong {
		s.known.Note(key, all[0])
	}
	return all[0], nil
}

func (s *Store) readAll(ctx context.Context, keys []string, c driver.Consistency) ([]state, error) {
	var requests []wire.Request
	if c == driver.Strong {
		requests = append(requests, barrier())
	}
	for _, key := range keys {
		requests = append(requests, wire.GetData(s.path(key)))
	}
	if len(requests) == 0 {
		return nil, s.life.Ready(ctx)
	}
	replies, err := s.ask(ctx, requests...)
	if err != nil {
		return nil, err
	}
	if c == driver.Strong {
		if err := s.passed(replies[0]); err != nil {
			return nil, err
		}
	}
	replies = replies[len(replies)-len(keys):]
	all := make([]state, len(keys))
	for i, key := range keys {
		if all[i], err = stateOf(key, replies[i]); err != nil {
			return nil, driver.NotApplied(err)
		}
	}
	return all, nil
}

// barrier is a transaction that changes nothing. A read after it, on the same connection,
// sees every write that was confirmed before. A sync is not enough: if its client is
// connected to the leader, the leader answers without having applied what a follower has
// confirmed already, and without asking its quorum.
func barrier() wire.Request { return wire.Multi(wire.Check("/", wire.AnyVersion)) }

// passed returns an error unless the quorum has answered the barrier. A check that was
// refused because of a missing permission is such an answer as well.
func (s *Store) passed(reply wire.Reply) error {
	code, err := reply.Failed()
	switch {
	case err != nil:
		return driver.NotApplied(s.failed(err))
	case code != wire.OK && code != wire.NoNode && code != wire.NoAuth:
		return driver.NotApplied(s.refused(code))
	}
	return nil
}

// ask sends requests that change nothing.
func (s *Store) ask(ctx context.Context, requests ...wire.Request) ([]wire.Reply, error) {
	if err := s.life.Ready(ctx); err != nil {
		return nil, err
	}
	replies, err := s.client.Do(ctx, requests...)
	if err != nil {
		return nil, driver.NotApplied(s.failed(err))
	}
	return replies, nil
}

// stateOf returns the record of the answer to GetData.
func stateOf(key string, reply wire.Reply) (state, error) {
	switch reply.Code {
	case wire.OK:
	case wire.NoNode:
		return state{}, nil
	default:
		return state{}, refusal(reply.Code)
	}
	data, stat, err := reply.Data()
	if err != nil {
		return state{}, fmt.Errorf("zookeeper: %w", err)
	}
	is := state{there: true, version: stat.Version}
	mark, text, found := strings.Cut(string(data), "\n")
	is.mark = mark
	switch is.rec, is.err = recordcodec.Decode(text); {
	case !found || mark == "":
		is.err = fmt.Errorf("%w: its first line has no mark", driver.ErrUnreadable)
	case is.err == nil && is.rec.Key != key:
		is.err = fmt.Errorf("%w: it is the record of %.60q", driver.ErrUnreadable, is.rec.Key)
	}
	if is.err != nil {
		is.rec, is.err = driver.Record{}, fmt.Errorf("zookeeper node of %.100q: %w", key, is.err)
	}
	return is, nil
}

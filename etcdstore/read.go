// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/driver/versioned"
)

const (
	// pageSize is how many records List returns at once.
	pageSize = 200
	// maxOps is how many operations etcd takes in one transaction by default
	// (--max-txn-ops).
	maxOps = 128
	// opsEach is how many a record takes.
	opsEach = 2
)

func (s *Store) recordKey(key string) string { return s.prefix + "r/" + key }
func (s *Store) wakeKey(key string) string   { return s.prefix + "w/" + key }
func (s *Store) dataKey(key string) string   { return s.prefix + "d/" + key }

// Get returns the record of key. An eventual read is answered by the requested
// member, which may lag behind.
func (s *Store) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	is, err := s.read(ctx, key, c)
	if err != nil {
		return driver.Record{}, err
	}
	return versioned.RecordOf(is)
}

// GetBatch returns what Get would return for each of the keys, in one request for each
// 64 of them.
func (s *Store) GetBatch(ctx context.Context, keys []string, c driver.Consistency) ([]driver.Lookup, error) {
	all := make([]driver.Lookup, 0, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), maxOps/opsEach)
		var ops []clientv3.Op
		for _, key := range keys[:n] {
			ops = append(ops, s.gets(key, c)...)
		}
		responses, err := s.ask(ctx, ops)
		if err != nil {
			return nil, err
		}
		for i, key := range keys[:n] {
			is := s.stateOf(key, responses[i*opsEach:])
			var found driver.Lookup
			found.Record, found.Err = versioned.RecordOf(is)
			all = append(all, found)
		}
		keys = keys[n:]
	}
	return all, nil
}

// List returns the records whose key begins with prefix and comes after cursor. A page
// is one state of the store; records that are created or deleted between two pages may
// or may not be seen.
func (s *Store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	var page driver.Page
	from, end := s.recordKey(prefix), clientv3.GetPrefixRangeEnd(s.recordKey(prefix))
	if after := s.recordKey(cursor) + "\x00"; cursor != "" && after > from {
		from = after
	}
	if from >= end {
		return page, nil
	}
	responses, err := s.ask(ctx, []clientv3.Op{clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(s.page))})
	if err != nil {
		return page, err
	}
	got := responses[0].GetResponseRange()
	keys := make([]string, 0, len(got.Kvs))
	for _, kv := range got.Kvs {
		keys = append(keys, strings.TrimPrefix(string(kv.Key), s.recordKey("")))
	}
	if got.More {
		page.Cursor = keys[len(keys)-1]
	}
	// The data may be apart, and there may be much of them.
	for len(keys) > 0 {
		n := min(len(keys), maxOps/opsEach)
		found, err := s.GetBatch(ctx, keys[:n], driver.Strong)
		if err != nil {
			return driver.Page{}, err
		}
		for i, f := range found {
			switch f.Err {
			case nil:
				page.Records = append(page.Records, f.Record)
			case driver.ErrNotFound: //nolint:errorlint // ours; it was deleted meanwhile
			default:
				if page.Unreadable == nil {
					page.Unreadable = map[string]error{}
				}
				page.Unreadable[keys[i]] = f.Err
			}
		}
		keys = keys[n:]
	}
	return page, nil
}

// read returns the state of a record.
func (s *Store) read(ctx context.Context, key string, c driver.Consistency) (state, error) {
	responses, err := s.ask(ctx, s.gets(key, c))
	if err != nil {
		return state{}, err
	}
	is := s.stateOf(key, responses)
	if is.rev != 0 || c == driver.Strong {
		s.known.Note(key, is)
	}
	return is, nil
}

// gets are the operations that read one record.
func (s *Store) gets(key string, c driver.Consistency) []clientv3.Op {
	var how []clientv3.OpOption
	if c == driver.Eventual {
		how = append(how, clientv3.WithSerializable())
	}
	return []clientv3.Op{clientv3.OpGet(s.recordKey(key), how...), clientv3.OpGet(s.dataKey(key), how...)}
}

// ask reads in a transaction. The client sends that once, where it would send a plain
// read again and again until its context ends.
func (s *Store) ask(ctx context.Context, ops []clientv3.Op) ([]*etcdserverpb.ResponseOp, error) {
	if err := s.life.Ready(ctx); err != nil {
		return nil, err
	}
	ctx, done := s.bound(ctx)
	defer done()
	out, err := s.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, driver.NotApplied(s.failed(err)) // nothing was to be written
	}
	return out.Responses, nil
}

// bound returns a context that ends with the store as well. The store's own client ends
// its calls when it is closed.
func (s *Store) bound(ctx context.Context) (context.Context, func()) {
	if s.own {
		return ctx, func() {}
	}
	return s.life.Bound(ctx)
}

// stateOf returns the record of the answers to gets.
func (s *Store) stateOf(key string, answers []*etcdserverpb.ResponseOp) state {
	kvs := answers[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return state{}
	}
	is := state{rev: kvs[0].ModRevision}
	is.rec, is.err = recordcodec.Decode(string(kvs[0].Value))
	if is.err == nil && is.rec.Key != key {
		is.err = fmt.Errorf("%w: it is the record of %.60q", driver.ErrUnreadable, is.rec.Key)
	}
	if data := answers[1].GetResponseRange().Kvs; len(data) > 0 {
		is.rec.Data, is.apart = data[0].Value, true
	}
	if is.err != nil {
		is.rec, is.err = driver.Record{}, fmt.Errorf("etcd key %.100q: %w", s.recordKey(key), is.err)
	}
	return is
}

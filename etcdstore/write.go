// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"bytes"
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/driver/versioned"
)

// maxInline is the longest data that are kept within the record. Longer data would be
// stored again with each heartbeat.
const maxInline = 4 << 10

// Claim writes next if its key is absent or released. Without knowledge of the key it
// asks for an absent one: the answer has the record if there is one.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	return s.writer.Claim(ctx, next)
}

// Swap replaces prev by next if the stored version and token are those of prev.
func (s *Store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.writer.Swap(ctx, prev, next)
}

// Raise is Swap to a token that is higher by any amount: see [driver.Raiser].
func (s *Store) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.writer.Raise(ctx, prev, next)
}

// Delete removes the record of prev's key if its version and token are those of prev.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	return s.writer.Delete(ctx, prev)
}

// write makes a step in one transaction, whose answer has the record if it is in another
// state.
func (s *Store) write(ctx context.Context, key string, was state, step versioned.Step) (is state, missed bool, err error) {
	ctx, done := s.bound(ctx)
	defer done()
	ops, becomes := s.opsOf(was, step)
	out, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(s.recordKey(key)), "=", was.rev)).
		Then(ops...).
		Else(s.gets(key, driver.Strong)...).
		Commit()
	switch {
	case err != nil:
		return is, false, s.failed(err)
	case !out.Succeeded:
		return s.stateOf(key, out.Responses), true, nil
	case !step.Remove:
		becomes.rev = out.Header.Revision
	}
	return becomes, false, nil
}

// opsOf returns what takes a step, and what that makes of the state.
func (s *Store) opsOf(was state, step versioned.Step) ([]clientv3.Op, state) {
	key := step.Record.Key
	if step.Remove {
		return []clientv3.Op{clientv3.OpDelete(s.recordKey(key)), clientv3.OpDelete(s.dataKey(key)), clientv3.OpDelete(s.wakeKey(key))}, state{}
	}
	if was.apart && was.rec.Data == nil {
		was.rec.Data = step.Prev.Data // memory keeps none that are long, and it is Prev that stands there
	}
	ops, becomes := s.put(was, step.Record)
	if step.Wakes || was.rev == 0 { // the deletion of the key is what a watch will see
		ops = append(ops, clientv3.OpPut(s.wakeKey(key), ""))
	}
	return ops, becomes
}

// put returns what writes the record in the place of another state, and what that makes
// of it.
func (s *Store) put(is state, rec driver.Record) ([]clientv3.Op, state) {
	becomes := state{rec: rec, apart: len(rec.Data) > maxInline}
	var ops []clientv3.Op
	text := rec
	switch {
	case becomes.apart:
		text.Data = nil
		if !is.apart || !bytes.Equal(is.rec.Data, rec.Data) {
			ops = append(ops, clientv3.OpPut(s.dataKey(rec.Key), string(rec.Data)))
		}
	case is.apart:
		ops = append(ops, clientv3.OpDelete(s.dataKey(rec.Key)))
	}
	put := clientv3.OpPut(s.recordKey(rec.Key), "")
	put.WithValueBytes(recordcodec.Append(nil, text))
	return append(ops, put), becomes
}

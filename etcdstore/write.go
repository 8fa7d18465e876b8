// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// maxTries bounds how often one call writes, each time after etcd has said that what the
// call had taken for the record is not so.
const maxTries = 3

// maxInline is the longest data that are kept within the record. Longer ones would be
// stored again with each heartbeat.
const maxInline = 4 << 10

// Claim writes next if its key is absent or released. Without knowledge of the key it
// asks for an absent one: the answer has the record if there is one.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := driver.CheckClaim(next); err != nil {
		return now, prev, err
	}
	next = next.Detach()
	begin, ok := s.known.of(next.Key)
	if !ok || begin.rec.State != driver.Released || begin.rec.Token >= driver.MaxToken || begin.apart {
		begin = state{}
	}
	err = s.change(ctx, next.Key, begin, func(is state) ([]clientv3.Op, state, error) {
		switch {
		case is.err != nil:
			return nil, is, driver.Permanent(is.err)
		case is.found() && is.rec.State != driver.Released:
			return nil, is, &driver.ConflictError{Key: next.Key, Current: is.rec}
		case is.found() && is.rec.Token >= driver.MaxToken:
			return nil, is, driver.Unsupported(fmt.Errorf("claim of %q: token %d cannot rise", next.Key, is.rec.Token))
		}
		prev = is.rec
		now = driver.Claimed(next, prev, is.found())
		ops, becomes := s.put(is, now)
		if !is.found() {
			ops = append(ops, clientv3.OpPut(s.wakeKey(now.Key), "")) // its deletion is what a watch will see
		}
		return ops, becomes, nil
	})
	if err != nil {
		return driver.Record{}, driver.Record{}, err
	}
	return now.Clone(), prev.Clone(), nil // Claimed has them share Data, and memory has prev
}

// Swap replaces prev by next if the stored version and token are those of prev.
func (s *Store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckSwap)
}

// Raise is Swap to a token that is higher by any amount: see [driver.Raiser].
func (s *Store) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckRaise)
}

func (s *Store) swap(ctx context.Context, prev, next driver.Record, check func(prev, next driver.Record) error) (driver.Record, error) {
	if err := check(prev, next); err != nil {
		return driver.Record{}, err
	}
	next = next.Detach()
	err := s.changeFrom(ctx, prev, func(is state) ([]clientv3.Op, state) {
		if is.apart && is.rec.Data == nil {
			is.rec.Data = prev.Data // memory keeps none that are long, and it is prev that stands there
		}
		ops, becomes := s.put(is, next)
		if driver.Wakes(prev, next) {
			ops = append(ops, clientv3.OpPut(s.wakeKey(next.Key), ""))
		}
		return ops, becomes
	})
	if err != nil {
		return driver.Record{}, err
	}
	return next.Clone(), nil
}

// Delete removes the record of prev's key if its version and token are those of prev.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	err := s.changeFrom(ctx, prev, func(state) ([]clientv3.Op, state) {
		return []clientv3.Op{
			clientv3.OpDelete(s.recordKey(prev.Key)), clientv3.OpDelete(s.dataKey(prev.Key)), clientv3.OpDelete(s.wakeKey(prev.Key)),
		}, state{}
	})
	if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) && conflict.Absent {
		return nil
	}
	return err
}

// changeFrom is change for a write that replaces a certain version and token.
func (s *Store) changeFrom(ctx context.Context, prev driver.Record, write func(state) ([]clientv3.Op, state)) error {
	begin, ok := s.known.of(prev.Key)
	if !ok || begin.rec.Version != prev.Version || begin.rec.Token != prev.Token {
		begin.rev = unseen
	}
	return s.change(ctx, prev.Key, begin, func(is state) ([]clientv3.Op, state, error) {
		switch {
		case is.err != nil:
			return nil, is, driver.Permanent(is.err)
		case !is.found():
			return nil, is, &driver.ConflictError{Key: prev.Key, Absent: true}
		case is.rec.Version != prev.Version || is.rec.Token != prev.Token:
			return nil, is, &driver.ConflictError{Key: prev.Key, Current: is.rec}
		}
		ops, becomes := write(is)
		return ops, becomes, nil
	})
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
	return append(ops, clientv3.OpPut(s.recordKey(rec.Key), recordcodec.Encode(text))), becomes
}

// unseen stands for the revision of a record of which nothing is known.
const unseen = -1

// change writes what decide says, if the record is still in the state for which decide
// has said it. It may begin with a guess, for which decide has no other answer than a
// write: what etcd shows then is none.
func (s *Store) change(ctx context.Context, key string, is state, decide func(state) ([]clientv3.Op, state, error)) error {
	if err := s.ready(ctx); err != nil {
		return driver.NotApplied(err)
	}
	if is.rev == unseen {
		var err error
		if is, err = s.read(ctx, key, driver.Strong); err != nil {
			return driver.NotApplied(err)
		}
	}
	for try := 1; ; try++ {
		ops, becomes, err := decide(is)
		if err != nil {
			return definite(err)
		}
		if try > maxTries {
			// Others have changed it each time. The record may be free again.
			return &driver.ConflictError{Key: key, Current: is.rec, Absent: !is.found()}
		}
		bound, done := s.bound(ctx)
		out, err := s.client.Txn(bound).
			If(clientv3.Compare(clientv3.ModRevision(s.recordKey(key)), "=", is.rev)).
			Then(ops...).
			Else(s.gets(key, driver.Strong)...).
			Commit()
		done()
		if err != nil {
			s.known.forget(key)
			return s.failed(err)
		}
		if out.Succeeded {
			if becomes.rec.Key != "" { // it was not deleted
				becomes.rev = out.Header.Revision
			}
			s.known.note(key, becomes)
			return nil
		}
		is = s.stateOf(key, out.Responses)
		s.known.note(key, is)
	}
}

// definite marks an answer of decide as one after which nothing was written, unless it
// is a conflict, which says so itself.
func definite(err error) error {
	if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) {
		return err
	}
	return driver.NotApplied(err)
}

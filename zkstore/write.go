// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

const (
	// maxTries bounds how often one call writes, each time after ZooKeeper has said that
	// what the call had taken for the record is not so.
	maxTries = 3
	// maxRequest is the longest request in bytes. A server ends the connection at one that
	// is longer than jute.maxbuffer, 1 MB by default, and with it all that is under way.
	maxRequest = 1<<20 - 4096
)

// Claim writes next if its key is absent or released. Without knowledge of the key it
// asks for an absent one, and reads what is there behind that, in the same round trip.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := driver.CheckClaim(next); err != nil {
		return now, prev, err
	}
	next = next.Detach()
	begin, ok := s.known.of(next.Key)
	if !ok || begin.rec.State != driver.Released || begin.rec.Token >= driver.MaxToken {
		begin = state{}
	}
	err = s.change(ctx, next.Key, &begin, true, func(is state) ([]wire.Op, state, error) {
		switch {
		case is.err != nil:
			return nil, is, driver.Permanent(is.err)
		case is.there && is.rec.State != driver.Released:
			return nil, is, &driver.ConflictError{Key: next.Key, Current: is.rec}
		case is.there && is.rec.Token >= driver.MaxToken:
			return nil, is, driver.Unsupported(fmt.Errorf("claim of %q: token %d cannot rise", next.Key, is.rec.Token))
		}
		prev = is.rec
		now = driver.Claimed(next, prev, is.there)
		path := s.path(next.Key)
		if is.there {
			ops, becomes := s.beat(path, is, now)
			return ops, becomes, nil
		}
		becomes := state{rec: now, there: true, mark: rand.Text()}
		return []wire.Op{
			wire.Create(path, encode(becomes), s.acl), wire.Create(path+"/"+becomes.mark, nil, s.acl),
		}, becomes, nil
	})
	if err != nil {
		return driver.Record{}, driver.Record{}, err
	}
	return now.Clone(), prev.Clone(), nil // Claimed has them share Data
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
	path := s.path(next.Key)
	err := s.changeFrom(ctx, prev, func(is state) ([]wire.Op, state) {
		if !driver.Wakes(prev, next) {
			return s.beat(path, is, next)
		}
		becomes := state{rec: next, there: true, version: is.version + 1, mark: rand.Text()}
		return []wire.Op{
			wire.Delete(path+"/"+is.mark, wire.AnyVersion), wire.Create(path+"/"+becomes.mark, nil, s.acl),
			wire.SetData(path, encode(becomes), is.version),
		}, becomes
	})
	if err != nil {
		return driver.Record{}, err
	}
	return next.Clone(), nil
}

// beat is a write that nobody waits for: the mark stays.
func (s *Store) beat(path string, is state, rec driver.Record) ([]wire.Op, state) {
	becomes := state{rec: rec, there: true, version: is.version + 1, mark: is.mark}
	return []wire.Op{wire.Check(path+"/"+is.mark, wire.AnyVersion), wire.SetData(path, encode(becomes), is.version)}, becomes
}

// Delete removes the record of prev's key if its version and token are those of prev.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	path := s.path(prev.Key)
	err := s.changeFrom(ctx, prev, func(is state) ([]wire.Op, state) {
		return []wire.Op{wire.Delete(path+"/"+is.mark, wire.AnyVersion), wire.Delete(path, is.version)}, state{}
	})
	if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) && conflict.Absent {
		return nil
	}
	return err
}

// changeFrom is change for a write that replaces a certain version and token.
func (s *Store) changeFrom(ctx context.Context, prev driver.Record, write func(state) ([]wire.Op, state)) error {
	begin := &state{}
	if known, ok := s.known.of(prev.Key); ok && known.rec.Version == prev.Version && known.rec.Token == prev.Token {
		*begin = known
	} else {
		begin = nil
	}
	return s.change(ctx, prev.Key, begin, false, func(is state) ([]wire.Op, state, error) {
		switch {
		case is.err != nil:
			return nil, is, driver.Permanent(is.err)
		case !is.there:
			return nil, is, &driver.ConflictError{Key: prev.Key, Absent: true}
		case is.rec.Version != prev.Version || is.rec.Token != prev.Token:
			return nil, is, &driver.ConflictError{Key: prev.Key, Current: is.rec}
		}
		ops, becomes := write(is)
		return ops, becomes, nil
	})
}

// change writes what decide says, if the record is still in the state for which decide
// has said it. It may begin with a guess, for which decide has no other answer than a
// write, and reads first without one. With look it reads behind the write, in the same
// round trip, what may stand in the way.
func (s *Store) change(ctx context.Context, key string, begin *state, look bool, decide func(state) ([]wire.Op, state, error)) error {
	if err := s.ready(ctx); err != nil {
		return driver.NotApplied(err)
	}
	if begin == nil {
		is, err := s.read(ctx, key, driver.Strong)
		if err != nil {
			return driver.NotApplied(err)
		}
		begin = &is
	}
	path := s.path(key)
	for is, try := *begin, 1; ; try++ {
		ops, becomes, err := decide(is)
		if err != nil {
			return definite(err)
		}
		if try > maxTries {
			// Others have changed it each time. The record may be free again.
			return &driver.ConflictError{Key: key, Current: is.rec, Absent: !is.there}
		}
		requests := []wire.Request{wire.Multi(ops...)}
		if size := requests[0].Size(); size > maxRequest {
			return driver.Unsupported(fmt.Errorf("write of %q: it takes %d bytes, and a server may take no more than 1 MB (jute.maxbuffer)", key, size))
		}
		if look {
			requests = append(requests, wire.GetData(path))
		}
		replies, err := s.client.Do(ctx, requests...)
		if err != nil {
			s.known.forget(key)
			return s.failed(err)
		}
		code, err := replies[0].Failed()
		switch {
		case err != nil:
			s.known.forget(key)
			return s.failed(err)
		case code == wire.OK:
			s.known.note(key, becomes)
			return nil
		case code == wire.NoNode && !is.there && becomes.there:
			if err := s.makeFolders(ctx, path); err != nil {
				return driver.NotApplied(err)
			}
			continue
		case code != wire.NoNode && code != wire.NodeExists && code != wire.BadVersion && code != wire.NotEmpty:
			return s.refused(code)
		}
		if look {
			is, err = stateOf(key, replies[1])
		} else {
			is, err = s.read(ctx, key, driver.Strong)
		}
		if err != nil {
			return driver.NotApplied(err)
		}
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

// makeFolders makes the nodes above a record. Others may do so at the same time.
func (s *Store) makeFolders(ctx context.Context, path string) error {
	denied := ""
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		replies, err := s.client.Do(ctx, wire.Alone(wire.Create(path[:i], nil, s.acl)))
		if err != nil {
			return s.failed(err)
		}
		switch code := replies[0].Code; code {
		case wire.OK, wire.NodeExists:
		case wire.NoAuth: // the right to make it may be missing, and the node be there
			denied = path[:i]
		case wire.NoNode:
			if denied != "" {
				return driver.Permanent(fmt.Errorf("node %s is not there, and this user may not make it: have it made by one who may, or name that user: %w", denied, wire.NoAuth))
			}
			return s.refused(code)
		default:
			return s.refused(code)
		}
	}
	replies, err := s.client.Do(ctx, wire.GetChildren(path[:len(path)-len(path[lastSlash(path):])], false))
	if err != nil {
		return s.failed(err)
	}
	if code := replies[0].Code; code != wire.OK {
		return s.refused(code)
	}
	return nil
}

func lastSlash(path string) int {
	for i := len(path) - 1; ; i-- {
		if path[i] == '/' {
			return i
		}
	}
}

// encode returns the data of a node.
func encode(s state) []byte { return []byte(s.mark + "\n" + recordcodec.Encode(s.rec)) }

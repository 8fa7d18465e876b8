// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/driver/versioned"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

// maxRequest is the longest request in bytes. A request longer than jute.maxbuffer, 1 MB
// by default, makes the server end the connection, and with it all that is under way.
const maxRequest = 1<<20 - 4096

// Claim writes next if its key is absent or released. If the state of the key is not
// known, it assumes an absent key, and reads the record in the same round trip.
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

// opsOf returns what takes a step, and what that makes of the state.
func (s *Store) opsOf(path string, is state, step versioned.Step) ([]wire.Op, state) {
	becomes := state{rec: step.Record, there: true, version: is.version + 1, mark: rand.Text()}
	switch {
	case step.Remove:
		return []wire.Op{wire.Delete(path+"/"+is.mark, wire.AnyVersion), wire.Delete(path, is.version)}, state{}
	case !is.there:
		becomes.version = 0
		return []wire.Op{
			wire.Create(path, encode(becomes), s.acl), wire.Create(path+"/"+becomes.mark, nil, s.acl),
		}, becomes
	case step.Wakes:
		return []wire.Op{
			wire.Delete(path+"/"+is.mark, wire.AnyVersion), wire.Create(path+"/"+becomes.mark, nil, s.acl),
			wire.SetData(path, encode(becomes), is.version),
		}, becomes
	}
	// No waiter needs it: the mark stays.
	becomes.mark = is.mark
	return []wire.Op{wire.Check(path+"/"+is.mark, wire.AnyVersion), wire.SetData(path, encode(becomes), is.version)}, becomes
}

// write makes a step in one transaction. After the transaction of a claim it reads,
// in the same round trip, the record that may conflict.
func (s *Store) write(ctx context.Context, key string, was state, step versioned.Step) (is state, missed bool, err error) {
	path := s.path(key)
	ops, becomes := s.opsOf(path, was, step)
	requests := []wire.Request{wire.Multi(ops...)}
	if size := requests[0].Size(); size > maxRequest {
		return is, false, driver.Unsupported(fmt.Errorf("write of %q: it takes %d bytes, and a server may accept no more than 1 MB (jute.maxbuffer)", key, size))
	}
	if step.Claim {
		requests = append(requests, wire.GetData(path))
	}
	replies, err := s.client.Do(ctx, requests...)
	if err != nil {
		return is, false, s.failed(err)
	}
	code, err := replies[0].Failed()
	switch {
	case err != nil:
		return is, false, s.failed(err)
	case code == wire.OK:
		return becomes, false, nil
	case code == wire.NoNode && !was.there:
		return was, true, driver.NotApplied(s.makeFolders(ctx, path))
	case code != wire.NoNode && code != wire.NodeExists && code != wire.BadVersion && code != wire.NotEmpty:
		return is, false, s.refused(code)
	}
	if step.Claim {
		is, err = stateOf(key, replies[1])
	} else {
		is, err = s.read(ctx, key, driver.Strong)
	}
	return is, true, driver.NotApplied(err)
}

// makeFolders creates the nodes above a record. Others may do so at the same time.
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
				return driver.Permanent(fmt.Errorf("node %s does not exist, and this user may not create it: have a user that may create it, or name that user here: %w", denied, wire.NoAuth))
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
func encode(s state) []byte { return recordcodec.Append([]byte(s.mark+"\n"), s.rec) }

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore

import (
	"context"

	"github.com/tenurelock/tenure/driver"
)

// MaxStale is how many writes of a key a stale read can be behind.
const MaxStale = 8

// Past is implemented by inner stores that can show their records as they were,
// for [Fault.Stale]. All stores onto the same records have one past, so that
// each of several programs under test sees what the others had written before.
type Past interface {
	// KeepPast has the states of each key before its last n writes kept from now
	// on.
	KeepPast(n int)
	// GetPast returns the record of key as it was before its last ago writes, or
	// an error that matches [driver.ErrNotFound] if it was absent then.
	GetPast(ctx context.Context, key string, ago int) (driver.Record, error)
	// ListPast is List of such records.
	ListPast(ctx context.Context, prefix, cursor string, ago int) (driver.Page, error)
}

// eventual reports whether the call is a read that may be stale.
func (c Call) eventual() bool {
	return c.Op == OpGet && c.Consistency == driver.Eventual || c.Op == OpList
}

// sendPast makes a stale read of the inner store.
func (s *Store) sendPast(ctx context.Context, call Call, ago int) (r reply, err error) {
	past, ok := s.inner.(Past)
	if !ok {
		panic("faultstore: Stale needs a store that implements faultstore.Past, as memstore.Store does") //nolint:forbidigo // a programmer's error
	}
	ago = min(ago, MaxStale)
	if call.Op == OpList {
		r.page, err = past.ListPast(ctx, call.Key, call.Cursor, ago)
	} else {
		r.now, err = past.GetPast(ctx, call.Key, ago)
	}
	return r, err
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore

import (
	"context"

	"github.com/tenurelock/tenure/driver"
)

// raising is a Store whose inner store is a Raiser, and watchingRaising one whose inner
// store is a Watcher as well: they are separate types, like watching.
type (
	raising         struct{ *Store }
	watchingRaising struct{ watching }
)

// Raise calls Raise of the inner store.
func (r *raising) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return r.raise(ctx, prev, next)
}

// Raise calls Raise of the inner store.
func (r *watchingRaising) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return r.raise(ctx, prev, next)
}

func (s *Store) raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	r, err := s.do(ctx, Call{Op: OpRaise, Key: next.Key, Prev: prev.Clone(), Next: next.Clone()})
	return r.now, err
}

var (
	_ driver.Store   = (*watchingRaising)(nil)
	_ driver.Watcher = (*watchingRaising)(nil)
	_ driver.Raiser  = (*watchingRaising)(nil)
	_ driver.Raiser  = (*raising)(nil)
)

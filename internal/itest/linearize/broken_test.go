// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// staleReads sometimes shows what its handle read before.
type staleReads struct {
	*memstore.Store
	n    atomic.Int64
	last sync.Map
}

func (s *staleReads) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	if rec, ok := s.last.Load(key); ok && s.n.Add(1)%3 == 0 {
		return rec.(driver.Record).Clone(), nil
	}
	rec, err := s.Store.Get(ctx, key, c)
	if err == nil {
		s.last.Store(key, rec)
	}
	return rec, err
}

// staleConflicts shows in a conflict what its handle wrote before.
type staleConflicts struct {
	*memstore.Store
	last sync.Map
}

func (s *staleConflicts) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	now, err := s.Store.Swap(ctx, prev, next)
	var conflict *driver.ConflictError
	if rec, ok := s.last.Load(next.Key); ok && errors.As(err, &conflict) {
		conflict.Current = rec.(driver.Record).Clone()
	}
	if err == nil {
		s.last.Store(next.Key, now)
	}
	return now, err
}

// force makes a swap whatever is stored.
func force(ctx context.Context, s *memstore.Store, next driver.Record) (driver.Record, error) {
	for {
		cur, err := s.Get(ctx, next.Key, driver.Strong)
		if err != nil {
			return driver.Record{}, err
		}
		next.Token = min(max(next.Token, cur.Token), cur.Token+1)
		now, err := s.Swap(ctx, cur, next)
		if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) {
			continue
		}
		return now, err
	}
}

// lostUpdates compares first and swaps afterwards.
type lostUpdates struct{ *memstore.Store }

func (s lostUpdates) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	cur, err := s.Get(ctx, next.Key, driver.Strong)
	think()
	if err != nil || cur.Version != prev.Version || cur.Token != prev.Token {
		return s.Store.Swap(ctx, prev, next)
	}
	return force(ctx, s.Store, next)
}

// ignoresToken compares the version alone.
type ignoresToken struct{ *memstore.Store }

func (s ignoresToken) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	cur, err := s.Get(ctx, next.Key, driver.Strong)
	think()
	if err == nil && cur.Version == prev.Version {
		next.Token, prev.Token = cur.Token+(next.Token-prev.Token), cur.Token
	}
	return s.Store.Swap(ctx, prev, next)
}

// overwritesHeld grants every claim.
type overwritesHeld struct{ *memstore.Store }

func (s overwritesHeld) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	now, prev, err = s.Store.Claim(ctx, next)
	var conflict *driver.ConflictError
	if errors.As(err, &conflict) && conflict.Current.Version != next.Version {
		next = driver.Claimed(next, conflict.Current, true)
		now, err = s.Swap(ctx, conflict.Current, next)
		prev = conflict.Current
	}
	return now, prev, err
}

// liar says of some writes that they were not applied, when they were.
type liar struct {
	*memstore.Store
	n atomic.Int64
}

func (s *liar) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	now, err := s.Store.Swap(ctx, prev, next)
	if err == nil && s.n.Add(1)%10 == 0 {
		return driver.Record{}, driver.NotApplied(errors.New("timeout"))
	}
	return now, err
}

// retries sends each write twice, as the client library of an engine does that
// missed the first reply: the second answer is a conflict with itself.
type retries struct{ *memstore.Store }

func (s retries) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if _, _, err := s.Store.Claim(ctx, next); err != nil {
		return now, prev, err
	}
	return s.Store.Claim(ctx, next)
}

// forcesRequests lays requests whatever is stored, in the holder's record as in
// its successor's.
type forcesRequests struct{ *memstore.Store }

func (s forcesRequests) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	cur, err := s.Get(ctx, next.Key, driver.Strong)
	if err == nil && cur.State == driver.Held && driver.Laid(prev, next) {
		laid := cur.Clone()
		laid.Version, laid.Requests = next.Version, next.Requests
		return force(ctx, s.Store, laid)
	}
	return s.Store.Swap(ctx, prev, next)
}

// claimsMore grants claims of records in one more state.
type claimsMore struct {
	*memstore.Store
	state driver.State
}

func (s claimsMore) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	now, prev, err = s.Store.Claim(ctx, next)
	var conflict *driver.ConflictError
	if errors.As(err, &conflict) && conflict.Current.State == s.state && conflict.Current.Version != next.Version {
		if prev = conflict.Current; s.state.OfSession() {
			if err := s.Delete(ctx, prev); err != nil {
				return now, prev, err
			}
			return s.Store.Claim(ctx, next)
		}
		now, err = s.Swap(ctx, prev, driver.Claimed(next, prev, true))
	}
	return now, prev, err
}

// keepsSession leaves the session of a lock in its record when it changes hands.
type keepsSession struct{ *memstore.Store }

func (s keepsSession) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if next.Session == "" && next.State == driver.Held {
		next.Session = prev.Session
	}
	return s.Store.Swap(ctx, prev, next)
}

// forgetsAsked claims without a memory of who asked.
type forgetsAsked struct{ *memstore.Store }

func (s forgetsAsked) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	now, prev, err = s.Store.Claim(ctx, next)
	if err == nil && now.Prev != nil {
		now.Prev.Asked = nil
	}
	return now, prev, err
}

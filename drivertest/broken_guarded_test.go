// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/memstore"
)

// unguarded is a guarded store with one possible bug.
type unguarded struct {
	*memstore.Store
	bug string
}

func unguardedHarness(bug string) drivertest.Harness {
	s := memstore.New()
	s.Guard(time.Hour)
	h := drivertest.Harness{
		Watches: true, Raises: true,
		Open: func(*testing.T) driver.Store { return &unguarded{s.Open(), bug} },
		Lose: func(*testing.T) func() {
			earlier := s.Copy()
			return func() { s.Lose(earlier) }
		},
	}
	if bug == "guarded undeclared" {
		h.Lose = nil
	}
	return h
}

func (s *unguarded) is(bug string) bool { return s.bug == "guarded "+bug }

// present returns the life of the engine, and what is stored under a key.
func (s *unguarded) present(ctx context.Context, key string) (life string, rec driver.Record, found bool) {
	var is *driver.ConflictError // which shows a Delete what is there
	if errors.As(s.Delete(ctx, driver.Record{Key: key, Version: "none"}), &is) {
		return is.Current.Life, is.Current, true
	}
	shown, _ := s.Store.Get(ctx, key, driver.Strong)
	return shown.Life, driver.Record{}, false
}

func (s *unguarded) Get(ctx context.Context, key string, how driver.Consistency) (driver.Record, error) {
	rec, err := s.Store.Get(ctx, key, how)
	if s.is("shown as stored") && rec.State == driver.Reserved {
		_, stored, found := s.present(ctx, key)
		if !found {
			return driver.Record{}, driver.ErrNotFound
		}
		return stored, nil
	}
	return s.returned(rec), err
}

func (s *unguarded) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	for i, rec := range page.Records {
		if _, stored, found := s.present(ctx, rec.Key); found && s.is("listed as stored") {
			page.Records[i] = stored
		}
	}
	return page, err
}

func (s *unguarded) returned(rec driver.Record) driver.Record {
	switch {
	case s.is("one life for ever") && rec.Life != "":
		rec.Life = "life"
	case s.is("no life"):
		rec.Life = ""
	}
	return rec
}

// opens returns next with the opening that a bug adds or forges.
func (s *unguarded) opens(ctx context.Context, next driver.Record, raises bool) driver.Record {
	life, stored, found := s.present(ctx, next.Key)
	forged := driver.Opening{Life: life, Base: next.Opens.Base}
	switch {
	case s.is("claims") && raises && !found, s.is("claims of released") && raises && stored.State == driver.Released,
		s.is("reserved") && stored.State == driver.Reserved, s.is("takeovers") && raises && stored.State == driver.Held,
		s.is("opened by any name") && next.Opens.Life != "":
		next.Opens = forged
	case s.is("opened by no write"):
		next.Opens = driver.Opening{}
	case s.is("opened by claims alone") && !raises:
		next.Opens = driver.Opening{}
	case s.is("token by step"):
		next.Opens.Base = 0
	case s.is("any lease"):
		next.Lease = min(next.Lease, time.Hour)
	}
	return next
}

func (s *unguarded) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	now, prev, err = s.Store.Claim(ctx, s.opens(ctx, next, next.State == driver.Held))
	if s.is("opening returned") {
		now.Opens = next.Opens
	}
	return s.returned(now), s.returned(prev), err
}

func (s *unguarded) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if s.is("bound to no life") {
		prev.Life = ""
	}
	now, err := s.Store.Swap(ctx, prev, s.opens(ctx, next, next.Token > prev.Token))
	var conflict *driver.ConflictError
	if s.is("session survives") && next.State == driver.Alive && errors.As(err, &conflict) && conflict.Current.State == driver.Closed {
		_ = s.Delete(ctx, prev)
		now, _, err = s.Store.Claim(ctx, next)
	}
	if s.is("opening returned") {
		now.Opens = next.Opens
	}
	return s.returned(now), err
}
